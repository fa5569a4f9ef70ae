"""The calls that change files, counted in this process: one of them fails, or ends the work.

A model of the medium stands beside: what was synced by then is what a power failure leaves. It
knows files by their inodes and keeps them open, so that none is given out again.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.base.prng import Prng

_CALLS = (
    "pwrite",
    "pwritev",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "rmdir",
    "mkdir",
    "ftruncate",
    "posix_fallocate",
    "open",
)


class EndedError(BaseException):
    """The process has ended here."""


class Step(NamedTuple):
    """One call that changes files."""

    number: int
    call: str


class DurableCalls:
    """Counts calls; `at` is the number of the one before which `error` is raised, 0 for none."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.at = 0
        self.error: Callable[[], BaseException] = EndedError
        self.medium: Medium | None = None

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            is_reading = name == "open" and not arguments[1] & os.O_CREAT
            if not is_reading:
                self.steps.append(Step(len(self.steps) + 1, name))
                if len(self.steps) == self.at:
                    raise self.error()
            result = real(*arguments, **named)
            if name in ("fsync", "fdatasync") and self.medium is not None:
                self.medium.on_synced(arguments[0])
            return result

        return call


@contextmanager
def counted_calls() -> Iterator[DurableCalls]:
    """Count the calls of the block."""
    calls = DurableCalls()
    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, calls.wrap(name, getattr(os, name)))
        yield calls


class Survival(Enum):
    """What a power failure leaves of the work since the last syncs."""

    NOTHING = "nothing"
    NAMES = "names"  # of files, as they were; their bytes are lost
    SOME = "some"  # each folder as it was or as it was synced, each file likewise or torn


class Medium:
    """The durable state of one folder and everything below it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}  # inodes by name
        self._held: dict[int, int] = {}  # descriptors by inode
        for path in (root, *root.rglob("*")):
            fd = os.open(path, os.O_RDONLY)
            self.on_synced(fd)
            os.close(fd)

    def close(self) -> None:
        for fd in self._held.values():
            os.close(fd)

    def on_synced(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}")
        inode = os.fstat(fd).st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        if path.is_dir():
            with os.scandir(path) as entries:
                self._folders[inode] = {each.name: each.inode() for each in entries}
        else:
            self._files[inode] = path.read_bytes()

    def leave(self, target: Path, survival: Survival, prng: Prng) -> None:
        """Make the folder that a power failure leaves."""
        self._leave_folder(target, self._root.stat().st_ino, self._root, survival, prng)

    def _leave_folder(
        self, target: Path, inode: int, actual: Path | None, survival: Survival, prng: Prng
    ) -> None:
        target.mkdir(mode=0o700)
        now = {} if actual is None else {each.name: each.stat().st_ino for each in actual.iterdir()}
        is_now = survival is Survival.NAMES or (survival is Survival.SOME and prng.chance(1, 2))
        for name, each in sorted((now if is_now else self._folders.get(inode, {})).items()):
            path = None if actual is None or now.get(name) != each else actual / name
            if each in self._folders or (path is not None and path.is_dir()):
                self._leave_folder(target / name, each, path, survival, prng)
            else:
                (target / name).write_bytes(self._bytes(each, path, survival, prng))

    def _bytes(self, inode: int, path: Path | None, survival: Survival, prng: Prng) -> bytes:
        durable = self._files.get(inode, b"")
        if survival is not Survival.SOME or prng.chance(1, 2):
            return durable
        written = durable
        with suppress(OSError):
            written = durable if path is None else path.read_bytes()
        return written if written.startswith(durable) else written[: prng.below(len(written) + 1)]
