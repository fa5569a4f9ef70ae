"""Where to start reading: the forms of `--from`.

```
earliest                the oldest message
latest                  only new messages
end-10                  the newest 10 of all partitions together
4711                    this offset, of each partition
2026-01-31T12:00Z       this time; without a zone in local time
-15min                  this long ago
```
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from headrace.base.units import parse_duration

OFFSET_MAX = (1 << 63) - 1
END_PREFIX = "end-"
Word: TypeAlias = Literal["earliest", "latest"]
WORDS: dict[str, Word] = {"earliest": "earliest", "latest": "latest"}


@dataclass(frozen=True)
class Newest:
    """The newest `count` messages."""

    count: int


Start: TypeAlias = Word | Newest | int | datetime


def parse_start(text: str) -> Start:
    """Return the start for a text.

    Raises:
        ValueError: It is not a start.
    """
    if text in WORDS:
        return WORDS[text]
    number = text.removeprefix(END_PREFIX)
    if number.isascii() and number.isdecimal() and int(number) <= OFFSET_MAX:
        return int(text) if number == text else Newest(int(number))
    try:
        if text.startswith("-"):
            return datetime.now(UTC) - timedelta(microseconds=parse_duration(text[1:]))
        return parse_time(text)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no place to begin: write earliest, latest, end-10, an offset,"
            " a time such as 2026-01-31T12:00Z, or how long ago, such as -15min"
        ) from None


def parse_time(text: str) -> datetime:
    """Return the time for a text; without a zone it is local time.

    Raises:
        ValueError: It is not a time.
    """
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.astimezone()
