"""Opens the stores of a node: formats a new folder, numbers the start, compares all of them.

```
prepare_folder    format or change the number of shards; which stores there are
open_store_at     read a store, once for each; nothing is written
finish_opening    all of one moment (DK16); what the layout record does not name goes
```

One process does all of it, or several shards open their stores and the supervisor the rest: no
store is written before `finish_opening` has returned (O5.8).

Flow: recover.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from headrace.server.config.sections import ServerConfig
from headrace.server.folders import (
    OpenedStore,
    all_configs,
    check_layout,
    draw_cluster,
    format_folder,
    is_new,
    open_one,
    store_folders,
)
from headrace.server.generations import change_shard_count, remove_leftovers
from headrace.server.settings import store_configs
from headrace.server.starts import check_starts, next_start
from headrace.storage.config import StoreConfig
from headrace.storage.layout import LayoutRecord
from headrace.storage.moments import Moment
from headrace.wire.replica.handshake import cluster_id

_log = logging.getLogger(__name__)


class Prepared(msgspec.Struct, frozen=True):
    """The stores of a node at one start: the metadata's, then one for each shard."""

    layout: LayoutRecord
    start: int
    paths: tuple[Path, ...]

    def paths_of(self, shard: int) -> tuple[Path, ...]:
        """Return the stores that one shard of several opens: shard 0 has the metadata's too."""
        own = self.paths[1 + shard]
        return (self.paths[0], own) if shard == 0 else (own,)


def prepare_folder(config: ServerConfig, *, shard_count: int, boot_identity: int) -> Prepared:
    """Give the folder, which this process holds, so many shards; return its stores.

    Raises:
        FolderRefusedError: The folder must not be opened.
        StrangeFolderError: It belongs to something else.
        ChangeFailedError: The number of shards could not be changed.
        DiskFailedError: It cannot be read.
        OSError: It cannot be read or written.
    """
    folder = config.server.data_dir
    named = cluster_id(config.cluster.name)
    if is_new(folder):
        own = store_configs(config, draw_cluster(named), boot_identity)
        format_folder(folder, own, shard_count=shard_count)
    layout = check_layout(folder, store_configs(config, named, boot_identity)[0])
    if layout.shard_count != shard_count:
        _log.warning("the folder had %d shards, and gets %d", *(layout.shard_count, shard_count))
        layout = change_shard_count(
            folder,
            store_configs(config, layout.cluster, boot_identity),
            shard_count,
            is_preallocating=config.journal.preallocate,
        )
    paths = store_folders(folder, layout)
    return Prepared(layout, next_start(paths), paths)


def open_store_at(
    prepared: Prepared,
    path: Path,
    config: ServerConfig,
    *,
    boot_identity: int,
    wake: Callable[[], None],
) -> OpenedStore:
    """Open one of the stores; nothing in it is changed yet.

    Raises:
        FolderRefusedError: It must not be opened; the sentence names file, position and remedy.
        FolderLockedError: Another process has it.
        DiskFailedError: It could not be read.
    """
    store = _config_of(
        prepared, path, store_configs(config, prepared.layout.cluster, boot_identity)
    )
    return open_one(path, store, wake, is_preallocating=config.journal.preallocate)


def _config_of(
    prepared: Prepared, path: Path, configs: tuple[StoreConfig, StoreConfig]
) -> StoreConfig:
    numbered = all_configs(configs, prepared.layout.shard_count)[prepared.paths.index(path)]
    return msgspec.structs.replace(numbered, start=prepared.start)


def finish_opening(folder: Path, layout: LayoutRecord, moments: Mapping[Path, Moment]) -> None:
    """Compare the stores, all of which are open; remove what an interrupted change left.

    Raises:
        FolderRefusedError: One is older than another, or a node has used what would have to go.
    """
    check_starts(moments)
    try:
        for path in remove_leftovers(folder, layout):
            _log.warning("%s: removed, the layout record does not name it", path)
    except OSError as error:
        _log.warning("what the layout record does not name cannot be removed: %s", error)


def tell_opened(path: Path, store: OpenedStore) -> None:
    """Keep what the store will overwrite, and report the findings of recovery."""
    for finding in store.findings:
        place = f"{path.name}/{finding.file} at {finding.position}"
        _log.warning("%s: %s: %s", place, finding.kind, finding.text)
    for name in store.keep_cuts():
        _log.warning("%s/%s keeps the bytes that were cut", path.name, name)
