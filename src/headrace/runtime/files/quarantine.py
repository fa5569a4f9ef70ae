"""The folder `quarantine`: what a start could not account for, kept as evidence (FM-11, P7).

```
quarantine/<n>/REASON       where it lay, why it was taken away, what to do
              /<name>       the file or folder itself, or
              /<name>.<at>  bytes of a file, from that position on
```

Nothing reads it; the operator may remove it after inspection.

Invariants: the reason is durable before anything is moved, and bytes are before they are cut.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from headrace.runtime.files.folders import FOLDER_MODE, sync_folder
from headrace.runtime.files.whole import write_parts

QUARANTINE_NAME = "quarantine"  # of the folder, beside that of segments
REASON_NAME = "REASON"

_FILE_MODE = 0o600


class Quarantine:
    """Keeps evidence below one folder, created on first use.

    Any thread may call it, and all shards of a node share the folder and its numbers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept_count = 0
        self.kept_bytes = 0
        self._lock = Lock()

    def move(self, path: Path, parent: int, why: str) -> str:
        """Move a file or folder here, from its parent folder's descriptor; return a sentence.

        Raises:
            OSError: It could not be moved, and is where it was.
        """
        size = _size_of(path)
        with self._lock:
            case = self._make_case()
            with _undone(case):
                self._write_reason(case, f"{self._name(path)}, whole, {size} bytes\n{why}\n")
                os.rename(path.name, case / path.name, src_dir_fd=parent)
            sync_folder(case)
            os.fsync(parent)
            self._count(size)
        return f"{path}: {why}; moved to {case}"

    def copy(self, path: Path, position: int, chunks: Iterable[bytes], why: str) -> str:
        """Keep bytes of a file, durable when this returns; return a sentence.

        Raises:
            OSError: They could not be written.
        """
        with self._lock:
            case = self._make_case()
            with _undone(case):
                size = _write(case / f"{path.name}.{position}", chunks)
                about = f"{self._name(path)}, {size} bytes from {position} on\n{why}\n"
                self._write_reason(case, about)
            self._count(size)
        return f"{path}: {why}; {size} bytes from {position} on are kept in {case}"

    def _make_case(self) -> Path:
        self.folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        while True:
            numbers = [int(each.name) for each in self.folder.iterdir() if each.name.isdecimal()]
            case = self.folder / str(max(numbers, default=0) + 1)
            try:
                case.mkdir(mode=FOLDER_MODE)
            except FileExistsError:
                continue  # Another shard of the node has taken the number meanwhile.
            return case

    def _write_reason(self, case: Path, reason: str) -> None:
        _write(case / REASON_NAME, [reason.encode()])
        for folder in (case, self.folder, self.folder.parent):
            sync_folder(folder)

    def _name(self, path: Path) -> str:
        """Return a path relative to the data folder."""
        return path.relative_to(self.folder.parent).as_posix()

    def _count(self, size: int) -> None:
        self.kept_count += 1
        self.kept_bytes += size


@contextmanager
def _undone(case: Path) -> Iterator[None]:
    """Remove a case that keeps nothing: each retry would leave another one."""
    try:
        yield
    except OSError:
        shutil.rmtree(case, ignore_errors=True)
        raise


def _size_of(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(each.lstat().st_size for each in path.rglob("*") if each.is_file())


def _write(path: Path, chunks: Iterable[bytes]) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE_MODE)
    size = 0
    try:
        for chunk in chunks:
            size += write_parts(fd, (chunk,), size)
        os.fsync(fd)
    finally:
        os.close(fd)
    return size
