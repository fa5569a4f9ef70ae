"""Numbers the starts of a node, and refuses stores of two moments (`storage.moments`, DK16).

Flow: recover.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.runtime.files.whole import read_file
from headrace.server.folders import FolderRefusedError
from headrace.storage.config import SUPERBLOCK_NAME
from headrace.storage.moments import Moment, find_older
from headrace.storage.superblock import choose_superblock, decode_superblock
from headrace.wire.errors import CorruptError


def next_start(stores: Iterable[Path]) -> int:
    """Return a number above that of every start that a store has recorded."""
    return max(_last_start(store) for store in stores) + 1


def _last_start(store: Path) -> int:
    try:
        payload = choose_superblock(read_file(store / SUPERBLOCK_NAME)).payload
        return decode_superblock(payload).start
    except (OSError, CorruptError):
        return 0  # Opening the store reports the error.


def check_starts(moments: Mapping[Path, Moment]) -> None:
    """Compare the starts that the stores of a node have recorded.

    Raises:
        FolderRefusedError: One of them is older than another; nothing was changed.
    """
    older = find_older({str(path): moment for path, moment in moments.items()})
    if older is not None:
        raise FolderRefusedError(older[1])
