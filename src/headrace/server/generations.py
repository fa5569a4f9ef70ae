"""Changes the number of shards of a stopped node, one generation of stores to the next (O2.5).

```
old stores read -> shards/<next>.tmp written, synced, read back -> renamed to shards/<next>
  -> layout record names it -> shards/<old> renamed to shards/<old>.tmp, removed
```

The layout record alone decides which generation counts. A crash before it is durable leaves the old
one, a crash after it the new one, both whole; a start removes the rest. The metadata store and the
segments are not touched. Reasons: docs/decisions/0032-another-shard-count.md.

Flow:       recover.
Invariants: a folder named by a number alone is a whole generation; the one that the layout record
            names is never removed, nor one that a node has used since.
"""

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from headrace.runtime.files.disk import QUARANTINE_PREFIX, DiskFailedError, FileDisk, evidence_of
from headrace.runtime.files.folders import make_folder, sync_folder
from headrace.runtime.files.whole import read_file
from headrace.server.folders import (
    LAYOUT_TEMPORARY,
    SHARDS_NAME,
    FolderRefusedError,
    OpenedStore,
    all_configs,
    check_layout,
    generation_folder,
    open_one,
    read_layout,
    store_folders,
    write_layout,
)
from headrace.server.starts import check_starts
from headrace.storage.config import LAYOUT_NAME, SUPERBLOCK_NAME, StoreConfig
from headrace.storage.layout import LayoutRecord
from headrace.storage.resharding import (
    Contents,
    NotMovableError,
    build_store,
    contents_of,
    share_out,
)
from headrace.storage.superblock import choose_superblock

_TEMPORARY = ".tmp"
_GENERATION = re.compile(r"(0|[1-9]\d*)(\.tmp)?", re.ASCII)
_log = logging.getLogger(__name__)


class ChangeFailedError(Exception):
    """The disk failed during the change; the sentence says which generation counts now."""


class Leftover(msgspec.Struct, frozen=True):
    """A generation of shards that the layout record does not name.

    `is_used`: it is newer than the named one, and a node may have used it.
    """

    path: Path
    is_used: bool


def change_shard_count(
    folder: Path,
    configs: tuple[StoreConfig, StoreConfig],
    count: int,
    *,
    is_preallocating: bool = True,
) -> LayoutRecord:
    """Give a node another number of shards; return its layout, unchanged if it has that number.

    Hold the folder (`hold_folder`). `configs` are those of the metadata store and of shard 0, with
    the cluster of the layout record; `is_preallocating` as in `FileDisk`.

    Raises:
        FolderRefusedError: The stores must not be opened, or hold what cannot be moved; nothing was
            changed.
        ChangeFailedError: The disk failed; a start goes on with what the layout record names.
        DiskFailedError: The stores cannot be read.
        OSError: The layout record cannot be read.
    """
    assert count > 0, "the configuration was checked"
    old = check_layout(folder, configs[0])
    with _opened_stores(folder, old, configs) as stores:
        check_starts({path: store.opened.moment for path, store in stores.items()})
        new = msgspec.structs.replace(old, shard_count=count, generation=old.generation + 1)
        with _told(old, count):
            remove_leftovers(folder, old)
            if count == old.shard_count:
                return old
            shares = _share_out(folder, stores, count)
            _write_generation(
                folder,
                new,
                shares,
                all_configs(configs, count)[1:],
                _evidence(stores),
                is_preallocating=is_preallocating,
            )
            write_layout(folder, new, sequence=read_layout(folder)[1] + 1)
    try:
        remove_leftovers(folder, new)
    except OSError as error:
        _log.warning("generation %d: the next start removes it: %s", old.generation, error)
    return new


@contextmanager
def _opened_stores(
    folder: Path, layout: LayoutRecord, configs: tuple[StoreConfig, StoreConfig]
) -> Iterator[dict[Path, OpenedStore]]:
    """Open the stores of a node, the metadata's first; none of them is written."""
    paths = store_folders(folder, layout)
    with ExitStack() as stack:
        stores = {}
        for path, config in zip(paths, all_configs(configs, layout.shard_count), strict=True):
            stores[path] = open_one(path, config, _ignore)
            stack.callback(stores[path].disk.close)
        yield stores


def _share_out(
    folder: Path, stores: Mapping[Path, OpenedStore], count: int
) -> tuple[Contents, ...]:
    shards = list(stores.items())[1:]
    try:
        return share_out(
            {path.relative_to(folder).as_posix(): store.opened for path, store in shards},
            shard_count=count,
            start=min(store.opened.moment.start for store in stores.values()),
        )
    except NotMovableError as error:
        raise FolderRefusedError(str(error)) from None


def _evidence(stores: Mapping[Path, OpenedStore]) -> dict[str, bytes]:
    """Return the files that the old shards keep as evidence, and those that a start would add."""
    kept = []
    for path, store in list(stores.items())[1:]:
        kept += [read_file(each) for each in sorted(path.glob(f"{QUARANTINE_PREFIX}*"))]
        kept += [evidence_of(cut) for cut in store.opened.quarantine]
    return {f"{QUARANTINE_PREFIX}{number}": data for number, data in enumerate(kept, start=1)}


@contextmanager
def _told(old: LayoutRecord, count: int) -> Iterator[None]:
    """Report a failure of the disk as one of the change."""
    try:
        yield
    except (OSError, DiskFailedError) as error:
        raise ChangeFailedError(
            f"the number of shards could not be changed from {old.shard_count} to {count}: {error};"
            " the node goes on with the generation that its layout record names, and its next start"
            " removes the other"
        ) from error


def _write_generation(
    folder: Path,
    new: LayoutRecord,
    shares: tuple[Contents, ...],
    configs: tuple[StoreConfig, ...],
    evidence: Mapping[str, bytes],
    *,
    is_preallocating: bool,
) -> None:
    """Write the stores of a generation, whole and durable; shard 0 gets the evidence.

    Raises:
        OSError: They could not be written; what was written is removed if possible.
        DiskFailedError: They could not be read back.
    """
    final = generation_folder(folder, new.generation)
    temporary = final.with_name(final.name + _TEMPORARY)
    try:
        for shard, (share, config) in enumerate(zip(shares, configs, strict=True)):
            path = temporary / str(shard)
            make_folder(path)
            built = build_store(share, config)
            with FileDisk(path, _ignore, is_preallocating=is_preallocating) as disk:
                files = built.files if shard else {**built.files, **evidence}
                disk.write_files(files, journal_bytes=built.journal_bytes)
            _read_back(path, config, share)
    except (OSError, DiskFailedError):
        with suppress(OSError):
            _remove_tree(temporary)  # It may be what fills the disk.
        raise
    temporary.rename(final)
    sync_folder(final.parent)


def _read_back(path: Path, config: StoreConfig, share: Contents) -> None:
    """Compare a store with what it must hold, as the medium has it.

    Raises:
        DiskFailedError: It cannot be read, or holds something else.
    """
    try:
        store = open_one(path, config, _ignore)
    except FolderRefusedError as error:
        raise DiskFailedError(f"what was written cannot be read: {error}") from error
    store.disk.close()
    if contents_of(store.opened) != share:
        raise DiskFailedError(f"{path}: what was read is not what was written")


# What the layout record does not name.


def find_leftovers(folder: Path, layout: LayoutRecord) -> list[Leftover]:
    """Return the generations of shards that the layout record does not name, in order.

    Nothing with another name, no file and no symbolic link is among them.
    """
    found = []
    for path in sorted((folder / SHARDS_NAME).glob("*")):
        name = _GENERATION.fullmatch(path.name)
        if name is None or path.is_symlink() or not path.is_dir():
            continue
        if name[2] is not None:
            found.append(Leftover(path, is_used=False))
        elif int(name[1]) != layout.generation:
            is_newer = int(name[1]) > layout.generation
            found.append(Leftover(path, is_used=is_newer and not is_unused(path)))
    return found


def is_unused(generation: Path) -> bool:
    """Whether certainly no node has opened a store of a generation.

    The change writes a superblock once; every opening writes it again.
    """
    stores = [path for path in generation.glob("*") if path.is_dir()]
    return bool(stores) and all(_last_sequence(store) == 1 for store in stores)


def _last_sequence(store: Path) -> int:
    try:
        return choose_superblock(read_file(store / SUPERBLOCK_NAME)).sequence_max
    except OSError:
        return 0


def used_sentence(path: Path, layout: LayoutRecord) -> str:
    """Return why a node with this newer generation must not start."""
    return (
        f"{path}: a node may have used these stores, and the layout record names generation"
        f" {layout.generation}: the file {LAYOUT_NAME} is from an older copy; restore the whole"
        " data folder from one copy"
    )


def remove_leftovers(folder: Path, layout: LayoutRecord) -> list[Path]:
    """Remove what an interrupted change of the shard count left; return what was removed.

    The layout record must be durable, and the stores that it names must have been opened.

    Raises:
        FolderRefusedError: A node has used what would have to be removed; nothing was changed.
        OSError: It cannot be removed.
    """
    leftovers = find_leftovers(folder, layout)
    for each in leftovers:
        if each.is_used:
            raise FolderRefusedError(used_sentence(each.path, layout))
    named = generation_folder(folder, layout.generation)
    # Those that were begun first: a name with the suffix must be free for the others.
    leftovers.sort(key=lambda each: each.path.suffix != _TEMPORARY)
    for each in leftovers:
        assert each.path != named, "the generation in use stays"
        path = each.path
        if path.suffix != _TEMPORARY:
            path = path.with_name(path.name + _TEMPORARY)
            each.path.rename(path)
            sync_folder(path.parent)
        _remove_tree(path)
    with suppress(FileNotFoundError):
        (folder / LAYOUT_TEMPORARY).unlink()
    return [each.path for each in leftovers]


def _remove_tree(path: Path) -> None:
    assert path.suffix == _TEMPORARY, "a whole generation is renamed first"
    shutil.rmtree(path)
    sync_folder(path.parent)


def _ignore() -> None:
    """Ignore that the disk has events: nothing was submitted."""
