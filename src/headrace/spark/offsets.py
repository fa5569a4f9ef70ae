"""The progress of a query: for every partition its incarnation, history and next offset.

Spark stores this in its checkpoint as text and compares the text, so equal offsets must be equal
text: keys are sorted.

```
{"group": "billing",
 "topics": {"shop/orders": {"0": {"history": 0, "incarnation": 12, "next": 500}}}}
```

`incarnation` distinguishes a partition from one created again under the same name, `history` from
the time before a purge. `group` is for the listener, which sees nothing else of a source.

Flow: checkpoint.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

_FIELDS = ("history", "incarnation", "next")


class Key(NamedTuple):
    """A partition of a topic, whose name is `stream/topic`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}"


class Position(NamedTuple):
    """A position in one history of one incarnation of a partition: the next offset."""

    incarnation: int
    history: int
    next: int

    def is_same_log(self, other: "Position") -> bool:
        """Whether both are offsets of the same log."""
        return self[:2] == other[:2]


Positions: TypeAlias = Mapping[Key, Position]


class OffsetsError(ValueError):
    """The text of a checkpoint was not written by this source."""


def encode_offsets(positions: Positions, group: str | None) -> dict[str, object]:
    """Return the text for Spark's checkpoint; equal positions give equal text."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for key in sorted(positions, key=lambda each: (each.topic, str(each.partition))):
        place = positions[key]
        fields = dict(zip(_FIELDS, (place.history, place.incarnation, place.next), strict=True))
        topics.setdefault(key.topic, {})[str(key.partition)] = fields
    return {"topics": topics} if group is None else {"group": group, "topics": topics}


def decode_offsets(offsets: object) -> dict[Key, Position]:
    """Read the result of `encode_offsets`.

    Raises:
        OffsetsError: It is another text.
    """
    try:
        return _read_topics(offsets)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OffsetsError(
            f"these offsets are not of this source: {json.dumps(offsets)[:200]};"
            " start the query with a new checkpoint folder"
        ) from None


def decode_group(offsets: object) -> str | None:
    """Return the consumer group in the offsets, if there is one."""
    group = offsets.get("group") if isinstance(offsets, dict) else None
    return group if isinstance(group, str) else None


def _read_topics(offsets: object) -> dict[Key, Position]:
    if not isinstance(offsets, dict):
        raise TypeError
    positions = {}
    for topic, partitions in offsets["topics"].items():
        for partition, fields in partitions.items():
            history, incarnation, upcoming = (_read_number(fields[name]) for name in _FIELDS)
            positions[Key(topic, int(partition))] = Position(incarnation, history, upcoming)
    return positions


def _read_number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value
