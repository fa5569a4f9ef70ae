"""Where a read begins or ends, as users write it: a keyword, offsets, or times.

```
startingOffsets              earliest | latest | {"shop/orders": {"0": 23, "1": -2}}
startingTimestamp            milliseconds since 1970, for all partitions
startingOffsetsByTimestamp   {"shop/orders": {"0": 1700000000000}}
```

and the same with `ending`. As in Kafka's connector, -2 is the earliest offset and -1 the latest, a
time means the first message at or after it, and the end is exclusive. A partition that is not named
gets the edge's keyword.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Word: TypeAlias = Literal["earliest", "latest"]
ByPartition: TypeAlias = Mapping[str, Mapping[int, int]]

EARLIEST = -2
LATEST = -1
_WORDS: dict[str, Word] = {"earliest": "earliest", "latest": "latest"}
_MICROS_PER_MILLI = 1000
_MILLIS_MAX = 1 << 53
_OFFSET_MAX = 1 << 63


@dataclass(frozen=True)
class Edge:
    """Where a read begins or ends in each partition; times are microseconds since 1970."""

    word: Word
    offsets: ByPartition = field(default_factory=dict)
    time: int | None = None
    times: ByPartition = field(default_factory=dict)

    def offset_of(self, topic: str, partition: int) -> int | None:
        """Return the offset given for a partition, if there is one."""
        return self.offsets.get(topic, {}).get(partition)

    def time_of(self, topic: str, partition: int) -> int | None:
        """Return the time given for a partition, if there is one."""
        return self.times.get(topic, {}).get(partition, self.time)


def parse_offsets(text: str, default: Word, topics: tuple[str, ...]) -> Edge:
    """Read a keyword or offsets by partition.

    Raises:
        ValueError: It is neither, or names a topic that is not read.
    """
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return Edge(word)
    if not text.lstrip().startswith("{"):
        raise ValueError(
            f'{text!r} is none of earliest, latest, or {{"stream/topic": {{"0": 23}}}}'
        )
    return Edge(default, offsets=_parse_map(text, topics, low=EARLIEST, high=_OFFSET_MAX))


def parse_time(text: str, default: Word) -> Edge:
    """Read a time for all partitions.

    Raises:
        ValueError: It is not a number of milliseconds.
    """
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdecimal() and int(stripped) <= _MILLIS_MAX):
        raise ValueError(f"{text!r} is no number of milliseconds since 1970")
    return Edge(default, time=int(stripped) * _MICROS_PER_MILLI)


def parse_times(text: str, default: Word, topics: tuple[str, ...]) -> Edge:
    """Read times by partition.

    Raises:
        ValueError: It is not such a map, or names a topic that is not read.
    """
    millis = _parse_map(text, topics, low=0, high=_MILLIS_MAX)
    return Edge(
        default,
        times={
            topic: {partition: time * _MICROS_PER_MILLI for partition, time in times.items()}
            for topic, times in millis.items()
        },
    )


def _parse_map(text: str, topics: tuple[str, ...], *, low: int, high: int) -> ByPartition:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{text[:200]!r} is no JSON") from None
    if not isinstance(given, dict):
        raise ValueError(f"{text[:200]!r} is no JSON object of topics")  # noqa: TRY004 - one class for all that is wrong
    read: dict[str, dict[int, int]] = {}
    for topic, partitions in given.items():
        if topics and topic not in topics:
            raise ValueError(f"{topic!r} is not among the topics that are read")
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} holds no JSON object of partitions")  # noqa: TRY004 - as above
        read[topic] = {
            _parse_partition(topic, partition): _check(topic, partition, value, low, high)
            for partition, value in partitions.items()
        }
    return read


def _parse_partition(topic: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError(f"{topic!r}: {text!r} is no partition")
    return int(text)


def _check(topic: str, partition: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < high:
        raise ValueError(
            f"{topic!r}, partition {partition}: {value!r} is not within {low} to {high}"
        )
    return value
