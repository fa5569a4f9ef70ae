"""The data folder of a `dev` without `--data`: created for one run, removed with it.

A node that was killed cannot remove its folder: the next one does. The lock says whether a node
still has a folder, also across containers that share the folder of temporary files.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.server.folders import LOCK_NAME

PREFIX = "headrace-dev-"


@contextmanager
def throwaway_folder() -> Iterator[Path]:
    """Return a new folder for a `with` block; those that killed nodes left are removed first."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of this user that no node holds.

    One that cannot be removed stays: it must not fail the start. A folder without a lock
    file is left alone as well: another node may be about to start in it, and it holds nothing yet.
    """
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                _remove_if_free(folder)


def _remove_if_free(folder: Path) -> None:
    fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    finally:
        os.close(fd)


def _remove(folder: Path) -> None:
    """Remove a folder, its lock file last: by it the next start recognises the remains."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK_NAME:
            path.unlink()
    shutil.rmtree(folder)
