"""Reads single option values from the user's text.

Each function raises a ValueError that says what is wrong with the text and what is allowed.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from headrace.base.nearest import hint_nearest
from headrace.spark.schema import MESSAGE_COLUMNS
from headrace.spark.slices import UNBOUNDED

T = TypeVar("T")

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND = timedelta(microseconds=1)


def choose(choices: Mapping[str, T]) -> Callable[[str], T]:
    """Return a reader for one of some words, case-insensitive."""

    def parse(text: str) -> T:
        chosen = choices.get(text.strip().lower())
        if chosen is None:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return chosen

    return parse


def read_text(text: str) -> str:
    """Read a text that is not empty."""
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def read_group(text: str) -> str:
    """Read the name of a consumer group."""
    group = read_text(text)
    if len(group.encode()) > 255:
        raise ValueError(f"{text[:40]!r}... has more than 255 bytes")
    return group


def read_count(text: str) -> int:
    """Read a number of 1 or more."""
    number = read_offset(text)
    if number == 0:
        raise ValueError("0 is too small: write a number of 1 or more")
    return number


def read_offset(text: str) -> int:
    """Read an offset."""
    stripped = text.strip()
    is_number = stripped.isascii() and stripped.isdecimal() and len(stripped) <= 19
    if not is_number or int(stripped) >= UNBOUNDED:
        raise ValueError(f"{text!r} is no number from 0 to {UNBOUNDED - 1}")
    return int(stripped)


def read_time(text: str) -> int:
    """Read a time with its zone as microseconds since 1970; earlier times become 1970."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} needs its time zone, such as {text.strip()}Z")
    return max((time - _EPOCH) // _MICROSECOND, 0)


def read_columns(text: str) -> tuple[str, ...]:
    """Read names of columns of messages."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MESSAGE_COLUMNS:
            hint = hint_nearest(name, MESSAGE_COLUMNS)
            raise ValueError(f"{name!r} is none of {', '.join(MESSAGE_COLUMNS)}{hint}")
    if len(dict.fromkeys(names)) < len(names):
        raise ValueError(f"{text!r} names a column twice")
    return tuple(names)
