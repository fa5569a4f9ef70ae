"""Opens the data folder of a node: its lock, its layout, and what must not be opened.

```
<data>/lock                            held as long as the node runs; the holder's number in it
<data>/layout                          how many shards, which generation: four copies, written last
<data>/metadata/                       the metadata group's store
<data>/shards/<generation>/<shard>/    a shard's store
<data>/shards/<generation>.tmp/        not complete, or not needed any more (`generations`)
<data>/partitions/                     segments
<data>/quarantine/                     what a start could not account for; nothing reads it
<data>/clock                           the time by the monotonic clock of this boot (`clock_mark`)
```

A folder without a layout record is new: a format interrupted by a crash is repeated. One with a
layout record is never formatted (FM-7).

Flow: recover.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headrace.ports.recovered import Finding
from headrace.runtime.files.disk import FileDisk, FolderInUseError
from headrace.runtime.files.folders import FOLDER_MODE, sync_folder
from headrace.runtime.files.quarantine import QUARANTINE_NAME
from headrace.runtime.files.whole import read_file, write_parts
from headrace.server.clock_mark import CLOCK_NAME
from headrace.storage.config import LAYOUT_NAME
from headrace.storage.layout import LayoutRecord, choose_layout, decode_layout, encode_layout
from headrace.storage.store import Opened, Refused, StoreConfig, Wiped, format_store, open_store
from headrace.wire.errors import CorruptError

LOCK_NAME = "lock"
METADATA_NAME = "metadata"
SHARDS_NAME = "shards"
PARTITIONS_NAME = "partitions"
FIRST_GENERATION = 1

LAYOUT_TEMPORARY = f"{LAYOUT_NAME}.tmp"  # what an interrupted write of the record leaves
_KNOWN = (
    LOCK_NAME,
    LAYOUT_TEMPORARY,
    METADATA_NAME,
    SHARDS_NAME,
    PARTITIONS_NAME,
    QUARANTINE_NAME,
    CLOCK_NAME,
    f"{CLOCK_NAME}.tmp",
)
_NODE_BITS = 64
_FILE_MODE = 0o600


class FolderRefusedError(Exception):
    """The content of the folder must not be opened; nothing in it was changed."""


class FolderLockedError(Exception):
    """Another process has the folder; its pid, if it left one."""

    def __init__(self, holder: int | None) -> None:
        self.holder = holder
        super().__init__(f"in use by process {holder}")


class StrangeFolderError(Exception):
    """The folder holds files, and none of them is a node's."""


@contextmanager
def hold_folder(folder: Path) -> Iterator[int]:
    """Create a folder if it does not exist, and lock it; return the descriptor that has the lock.

    The lock holds until every process that inherited the descriptor has ended. A folder of
    something else is not touched.

    Raises:
        StrangeFolderError: It holds files, and none of them is a node's.
        FolderLockedError: Another process has it.
        OSError: It cannot be created or opened.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    is_new(folder)
    fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderLockedError(_read_holder(fd)) from None
        folder.chmod(FOLDER_MODE)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield fd
    finally:
        os.close(fd)


def _read_holder(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None


def is_new(folder: Path) -> bool:
    """Whether no node has used the folder yet; an interrupted format does not count.

    Raises:
        StrangeFolderError: It holds something else.
        FolderRefusedError: It was used, and its layout record is gone (DK14).
    """
    if (folder / LAYOUT_NAME).exists():
        return False
    names = sorted(entry.name for entry in folder.iterdir())
    if any(name not in _KNOWN for name in names):
        raise StrangeFolderError
    trace = _find_trace(folder)
    if trace is not None:
        raise FolderRefusedError(
            f"{folder / LAYOUT_NAME} at byte 0: the layout record is missing, and {trace} shows"
            " that a node has used the folder; restore the file from a copy of this folder"
        )
    return True


def _find_trace(folder: Path) -> Path | None:
    """Return a file that exists only after the layout record is durable, if there is one."""
    for store in (METADATA_NAME, f"{SHARDS_NAME}/*/*"):
        for name in ("checkpoint.*", "journal.*"):
            found = min(folder.glob(f"{store}/{name}"), default=None)
            if found is not None:
                return found
    return min((folder / PARTITIONS_NAME).glob("*"), default=None)


def store_folders(folder: Path, layout: LayoutRecord) -> tuple[Path, ...]:
    """Return the folders of a node's stores: the metadata's, then one for each shard."""
    generation = generation_folder(folder, layout.generation)
    shards = [generation / str(shard) for shard in range(layout.shard_count)]
    return (folder / METADATA_NAME, *shards)


def generation_folder(folder: Path, generation: int) -> Path:
    """Return the folder of one generation of the shards."""
    return folder / SHARDS_NAME / str(generation)


def all_configs(
    configs: tuple[StoreConfig, StoreConfig], shard_count: int
) -> tuple[StoreConfig, ...]:
    """Return the configurations of a node's stores, from those of the metadata and shard 0."""
    metadata, first = configs
    numbers = range(first.journal, first.journal + shard_count)
    return (metadata, *(msgspec.structs.replace(first, journal=number) for number in numbers))


def format_folder(
    folder: Path, configs: tuple[StoreConfig, StoreConfig], *, shard_count: int = 1
) -> None:
    """Create the stores of a new node; the layout record is written last and completes it."""
    config = configs[0]
    record = LayoutRecord(
        cluster=config.cluster,
        replica=config.replica,
        replica_count=config.replica_count,
        shard_count=shard_count,
        generation=FIRST_GENERATION,
    )
    stores = store_folders(folder, record)
    for stray in generation_folder(folder, FIRST_GENERATION).glob("*"):
        if stray not in stores:  # Of an interrupted format with more shards.
            shutil.rmtree(stray)
    for path, config in zip(stores, all_configs(configs, shard_count), strict=True):
        with FileDisk(path, lambda: None) as disk:
            disk.write_files(format_store(config, 0))
    partitions = folder / PARTITIONS_NAME
    partitions.mkdir(mode=FOLDER_MODE, exist_ok=True)
    write_layout(folder, record, sequence=1)


def write_layout(folder: Path, record: LayoutRecord, *, sequence: int) -> None:
    """Write the record: a temporary file, synced, renamed, and the folder synced.

    Raises:
        OSError: It is not known to be durable. The folder has the old record, or the new one.
    """
    temporary = folder / LAYOUT_TEMPORARY
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    try:
        write_parts(fd, encode_layout(record, sequence=sequence), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(folder / LAYOUT_NAME)
    sync_folder(folder)


def draw_cluster(cluster: int) -> int:
    """Return the number under which a new cluster of one formats its stores.

    The upper half is the cluster's, the lower one is drawn: without it, the stores of two nodes
    with the same cluster name could take each other's place (DK17).
    """
    return cluster >> _NODE_BITS << _NODE_BITS | secrets.randbits(_NODE_BITS)


def read_shard_count(folder: Path) -> int | None:
    """Return how many shards a folder has, without changing it; None if that cannot be told.

    A folder that was never used has none; what is wrong with another one, its opening reports.
    """
    try:
        return read_layout(folder)[0].shard_count
    except (OSError, FolderRefusedError):
        return None


def check_layout(folder: Path, config: StoreConfig) -> LayoutRecord:
    """Compare the layout record with the configuration; return it, durable.

    A killed process may have left a record that was never synced: without it, a later power failure
    would bring back the one before, and with it stores that were replaced.

    Raises:
        FolderRefusedError: They differ, or the record is damaged.
        OSError: The record cannot be read or synced.
    """
    path = folder / LAYOUT_NAME
    _sync_file(path)
    sync_folder(folder)
    record = read_layout(folder)[0]
    if record.cluster >> _NODE_BITS != config.cluster >> _NODE_BITS:
        raise FolderRefusedError(
            f"{path}: the folder belongs to another cluster: check cluster.name"
        )
    if (record.replica, record.replica_count) != (config.replica, config.replica_count):
        raise FolderRefusedError(
            f"{path}: the folder is replica {record.replica} of {record.replica_count}, not"
            f" {config.replica} of {config.replica_count}"
        )
    return record


def read_layout(folder: Path) -> tuple[LayoutRecord, int]:
    """Return the layout record, and the highest sequence of its copies.

    Raises:
        FolderRefusedError: It is damaged.
        OSError: It cannot be read.
    """
    path = folder / LAYOUT_NAME
    choice = choose_layout(read_file(path))
    if not choice.payload:
        raise FolderRefusedError(
            f"{path}: fewer than two of the four copies of the layout record agree; restore the"
            " file from a copy of this folder"
        )
    try:
        return decode_layout(choice.payload), choice.sequence_max
    except CorruptError as error:
        raise FolderRefusedError(f"{path}: {error}") from None


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class OpenedStore:
    """A store and the disk that carries out its effects."""

    def __init__(self, disk: FileDisk, opened: Opened) -> None:
        self.disk = disk
        self.opened = opened

    def keep_cuts(self) -> list[str]:
        """Write what the store will overwrite to files of evidence; return their names."""
        return self.disk.keep_cuts(self.opened.quarantine)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of recovery."""
        return self.opened.findings


def open_one(
    path: Path, config: StoreConfig, wake: Callable[[], None], *, is_preallocating: bool = True
) -> OpenedStore:
    """Open one store; nothing in it is changed yet. `is_preallocating` as in `FileDisk`.

    Raises:
        FolderRefusedError: It must not be opened; the sentence names file, position and remedy.
        FolderLockedError: Another process has it.
        DiskFailedError: It could not be read.
    """
    if not path.is_dir():
        raise FolderRefusedError(
            f"{path} is missing; restore it from a copy of this folder, or begin with an empty one"
        )
    try:
        disk = FileDisk(path, wake, is_preallocating=is_preallocating)
    except FolderInUseError:
        raise FolderLockedError(None) from None
    try:
        opened = _judge(path, open_store(config, disk.read_files()))
        return OpenedStore(disk, opened)
    except BaseException:
        disk.close()
        raise


def _judge(path: Path, opened: Opened | Wiped | Refused) -> Opened:
    if isinstance(opened, Refused):
        raise FolderRefusedError(f"{path}: {opened.sentence}")
    if isinstance(opened, Wiped):
        told = "; ".join(finding.text for finding in opened.findings)
        raise FolderRefusedError(
            f"{path} has lost what it held ({told or 'its files are gone'}), and a single node has"
            " no peer to restore it from; restore it from a copy of this folder"
        )
    return opened
