"""Opens the data folder of a node: its lock, its layout, and what must not be opened.

```
<data>/lock                            held as long as the node runs; the holder's number in it
<data>/layout                          how many shards, which generation: four copies, written last
<data>/metadata/                       the metadata group's store
<data>/shards/<generation>/<shard>/    a shard's store
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.ports.recovered import Finding
from headrace.runtime.files.disk import FileDisk, FolderInUseError
from headrace.runtime.files.folders import FOLDER_MODE, sync_folder
from headrace.runtime.files.quarantine import QUARANTINE_NAME
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

_LAYOUT_TEMPORARY = f"{LAYOUT_NAME}.tmp"  # what an interrupted format leaves
_KNOWN = (
    LOCK_NAME,
    _LAYOUT_TEMPORARY,
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
def hold_folder(folder: Path) -> Iterator[None]:
    """Create a folder if it does not exist, and lock it.

    A folder of something else is not touched.

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
        yield
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
    for store in store_folders(folder):
        found = [path for name in ("journal.*", "checkpoint.*") for path in store.glob(name)]
        if found:
            return min(found)
    return min((folder / PARTITIONS_NAME).glob("*"), default=None)


def store_folders(folder: Path) -> tuple[Path, Path]:
    """Return the folders of the two stores of a node with one shard."""
    return folder / METADATA_NAME, folder / SHARDS_NAME / str(FIRST_GENERATION) / "0"


def format_folder(folder: Path, configs: tuple[StoreConfig, StoreConfig]) -> None:
    """Create the stores of a new node; the layout record is written last and completes it."""
    for path, config in zip(store_folders(folder), configs, strict=True):
        with FileDisk(path, lambda: None) as disk:
            disk.write_files(format_store(config, 0))
    partitions = folder / PARTITIONS_NAME
    partitions.mkdir(mode=FOLDER_MODE, exist_ok=True)
    config = configs[0]
    record = LayoutRecord(
        cluster=config.cluster,
        replica=config.replica,
        replica_count=config.replica_count,
        shard_count=1,
        generation=FIRST_GENERATION,
    )
    _write_layout(folder, b"".join(encode_layout(record, sequence=1)))


def _write_layout(folder: Path, data: bytes) -> None:
    """Write the record: a temporary file, synced, renamed, and the folder synced."""
    temporary = folder / _LAYOUT_TEMPORARY
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    try:
        os.write(fd, data)
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
        return decode_layout(choose_layout((folder / LAYOUT_NAME).read_bytes()).payload).shard_count
    except (OSError, CorruptError):
        return None


def check_layout(folder: Path, config: StoreConfig) -> int:
    """Compare the layout record with the configuration; return the cluster number in it.

    Raises:
        FolderRefusedError: They differ, or the record is damaged.
    """
    path = folder / LAYOUT_NAME
    choice = choose_layout(path.read_bytes())
    if not choice.payload:
        raise FolderRefusedError(
            f"{path}: fewer than two of the four copies of the layout record agree; restore the"
            " file from a copy of this folder"
        )
    try:
        record = decode_layout(choice.payload)
    except CorruptError as error:
        raise FolderRefusedError(f"{path}: {error}") from None
    if record.cluster >> _NODE_BITS != config.cluster >> _NODE_BITS:
        raise FolderRefusedError(
            f"{path}: the folder belongs to another cluster: check cluster.name"
        )
    if (record.replica, record.replica_count) != (config.replica, config.replica_count):
        raise FolderRefusedError(
            f"{path}: the folder is replica {record.replica} of {record.replica_count}, not"
            f" {config.replica} of {config.replica_count}"
        )
    if record.shard_count != 1:
        raise FolderRefusedError(f"{path}: the folder has {record.shard_count} shards, not 1")
    return record.cluster


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
