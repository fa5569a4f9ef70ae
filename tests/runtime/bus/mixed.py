"""Bodies of mixed sizes that show a lost or moved byte."""

from headrace.base.limits import HEADER_BYTES, KIB
from headrace.ports.network import Buffer
from tests.runtime.bus.members import number_of

_PATTERN = bytes(range(251)) * 2000  # no power of two: a shifted piece shows
_SIZES = (0, 1, 40, 300, 256, 1000, 17, 4 * KIB, 2, 80)


def body_of(number: int) -> bytes:
    """Return the body of a frame: most are small, one in 100 is large, one in 1,000 larger."""
    size = _SIZES[number % len(_SIZES)]
    if number % 1000 == 0:
        size = 400 * KIB
    elif number % 100 == 0:
        size = 70 * KIB
    start = number % 251
    return _PATTERN[start : start + size]


def is_whole(frame: Buffer) -> bool:
    """Whether the body is the one of the frame's number."""
    return frame[HEADER_BYTES:] == body_of(number_of(frame))
