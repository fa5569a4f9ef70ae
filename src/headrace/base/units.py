"""Sizes and durations as users write them: `1 GiB`, `30 s`, `7 days`."""

import re
from typing import Final

from headrace.base.ids import Micros

_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SECOND = 1_000_000
_MICROS: Final = {
    "us": 1,
    "ms": 1000,
    "s": _SECOND,
    "sec": _SECOND,
    "second": _SECOND,
    "m": 60 * _SECOND,
    "min": 60 * _SECOND,
    "minute": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "hour": 3600 * _SECOND,
    "d": 86_400 * _SECOND,
    "day": 86_400 * _SECOND,
    "week": 7 * 86_400 * _SECOND,
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def parse_bytes(text: str) -> int:
    """Read a size such as `512`, `64 KiB` or `1.5 GB`.

    Raises:
        ValueError: The text is not a size, or not a whole number of bytes.
    """
    found = _QUANTITY.fullmatch(text.strip())
    unit = _BYTES.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ValueError(f"{text!r} is no size: write a number and B, KiB, MiB, GiB, KB, MB or GB")
    return _times(text, found[1], unit)


def parse_duration(text: str) -> Micros:
    """Read a duration such as `250 ms`, `30 s`, `1 h 30 min` or `7 days`.

    Raises:
        ValueError: The text is not a duration, or not a whole number of microseconds.
    """
    total = 0
    position = 0
    stripped = text.strip()
    while found := _QUANTITY.match(stripped, position):
        unit = _MICROS.get(found[2].lower()) or _MICROS.get(found[2].lower().removesuffix("s"))
        if unit is None:
            break
        total += _times(text, found[1], unit)
        position = found.end()
        position += len(stripped[position:]) - len(stripped[position:].lstrip())
    if position != len(stripped) or not stripped:
        raise ValueError(f"{text!r} is no duration: write a number and us, ms, s, min, h or days")
    return Micros(total)


def _times(text: str, number: str, unit: int) -> int:
    """Multiply exactly, without the rounding of floating point."""
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    product = int(whole + fraction) * unit
    if product % scale:
        raise ValueError(f"{text!r} is not a whole number of units")
    return product // scale
