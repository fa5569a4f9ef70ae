"""Folders whose names survive a power cut: one is durable once its parent is synced (FM-10)."""

import os
from pathlib import Path

FOLDER_MODE = 0o700  # for its owner alone


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each durable in its parent."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
