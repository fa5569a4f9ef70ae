"""Formats counts, sizes, durations and times for people."""

from datetime import UTC, datetime

_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_SPANS = (
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
)
_SECOND = 1_000_000


def write_count(count: int, what: str) -> str:
    """Return a count with its noun, whose plural ends with s.

    >>> write_count(1, "topic"), write_count(2, "topic")
    ('1 topic', '2 topics')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def write_bytes(count: int) -> str:
    """Return a size in the largest unit that fits, with one decimal.

    >>> write_bytes(1536)
    '1.5 KiB'
    """
    for unit, size in _SIZES:
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def write_duration(micros: int) -> str:
    """Return a duration in its two largest units.

    >>> write_duration(5_400_000_000)
    '1 h 30 min'
    """
    parts = []
    for unit, size in _SPANS:
        if micros >= size:
            parts.append(f"{micros // size} {unit}")
            micros %= size
    return " ".join(parts[:2]) or "0 s"


def write_time(micros: int) -> str:
    """Return a time, in microseconds since 1970, as UTC with seconds.

    >>> write_time(0)
    '1970-01-01 00:00:00'
    """
    try:
        return datetime.fromtimestamp(micros // _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{micros} us"  # out of range for datetime
