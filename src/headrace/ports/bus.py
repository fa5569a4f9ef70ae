"""What the members of a node send each other: frames out as effects, frames in as events.

```
SendToMember   -> accepted, or BusRefused at once
BusFrames      <- all frames of a turn, of all members
ReleaseReply   -> the place of a reply that nobody waits for any more
MemberLost     <- a member's end is closed; what is sent to it is refused from now on
FrameLost      <- a frame arrived that this member cannot use
```

A node of one shard has none of these. `docs/formats/bus.md` has the frames.
"""

from enum import Enum
from typing import TypeAlias

import msgspec

from headrace.base.ids import METADATA_GROUP
from headrace.ports.network import Buffer


class DropReason(Enum):
    """Why a frame was dropped: the label `reason` of `frame_drops_total` (SH-18)."""

    FULL = "full"  # its lane, or the places of replies
    DISCONNECTED = "disconnected"
    UNROUTABLE = "unroutable"  # no such member
    DELIVERY_FAILED = "delivery_failed"  # it arrived, and its connection or link refused it
    MISROUTED = "misrouted"  # it arrived at another member than it names (SH-15)
    PARK_OVERFLOW = "park_overflow"
    PARK_DROPPED = "park_dropped"


class SendToMember(msgspec.Struct, frozen=True):
    """Send a frame to another member: its parts in order, the first begins with the whole header.

    The kind decides the lane. A `FORWARDED_REQUEST` takes the place of its reply, under its ticket.
    """

    member: int
    parts: tuple[Buffer, ...]


class ReleaseReply(msgspec.Struct, frozen=True):
    """Give up the place of a reply: its request was answered without it, at the deadline."""

    member: int
    ticket: int


class BusFrames(msgspec.Struct, frozen=True):
    """Frames of other members, each the sender and the whole frame, whose buffer is now the core's.

    Frames of one lane keep their order; after each frame of a main lane comes at most one of a
    reply lane (SH-20). Sizes are within the bounds; all else is unchecked. `wall` is the wall clock
    in microseconds, as for requests that arrive here: messages of one client are stamped in the
    order in which it was answered, whatever shards have their partitions.
    """

    frames: tuple[tuple[int, Buffer], ...]
    wall: int = 0


class BusRefused(msgspec.Struct, frozen=True):
    """A frame was dropped before its first byte: the lane is full, or its member is gone.

    The ticket is that of a forwarded request or reply, and otherwise 0; the group is the metadata
    group where a kind has none.
    """

    member: int
    kind: int
    ticket: int
    reason: DropReason
    group: int = METADATA_GROUP


class FrameLost(msgspec.Struct, frozen=True):
    """A frame that arrived was dropped: it names another member (SH-15), or is of no use."""

    member: int
    kind: int
    reason: DropReason
    group: int = METADATA_GROUP


class MemberLost(msgspec.Struct, frozen=True):
    """The lanes of a member are closed; frames that were accepted for it may be lost."""

    member: int
    cause: str


BusEffect: TypeAlias = SendToMember | ReleaseReply
BusEvent: TypeAlias = BusFrames | BusRefused | FrameLost | MemberLost
