"""Events and effects between a group and its shard.

The shard translates them to the effects of `ports`, which reach the network and the disk.
"""

from typing import TypeAlias

import msgspec

from headrace.ports.machine import StoredPiece
from headrace.ports.network import Buffer, SendFrame, SendReply
from headrace.ports.recovered import ViewState
from headrace.vsr.timeouts import Timer
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.kinds import ReplicaHeader
from headrace.wire.requests import RequestHeader


class RequestReceived(msgspec.Struct, frozen=True):
    """A request of a client; the header is checked and has user and group."""

    header: RequestHeader
    body: Buffer


class OwnOp(msgspec.Struct, frozen=True):
    """An op of the server itself, for a client or for none; dropped if it cannot be ordered now.

    The sender repeats it as long as it is needed.
    """

    operation: Operation
    body: bytes
    client: int = 0


class TailSettled(msgspec.Struct, frozen=True):
    """The log records by now what a power failure may have lost."""


class RoomMade(msgspec.Struct, frozen=True):
    """The journal may have room again."""


class PieceRead(msgspec.Struct, frozen=True):
    """A part of a stored piece was read for a transfer; the data is None if that failed."""

    token: int
    data: bytes | None


class FrameReceived(msgspec.Struct, frozen=True):
    """A frame of this group from another replica, verified by seal and rules."""

    sender: int
    kind: FrameKind
    header: ReplicaHeader
    frame: bytes


class PrepareDurable(msgspec.Struct, frozen=True):
    """The prepare is durable as its class requires; a later one may replace it."""

    op: int
    checksum: int


class ViewDurable(msgspec.Struct, frozen=True):
    """The view is durable, so its messages may be sent (MD-26)."""

    view: int
    log_view: int


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that was set and not stopped has expired."""

    timer: Timer


class PrimarySilent(msgspec.Struct, frozen=True):
    """No heartbeat of the primary's node arrived within the timeout."""


class PrimaryBeat(msgspec.Struct, frozen=True):
    """The commit point of the primary of a view, from a heartbeat."""

    sender: int
    view: int
    commit: int
    is_declined: bool


class EntryRead(msgspec.Struct, frozen=True):
    """An entry was read from the journal and verified; without a header the read failed."""

    token: int
    header: bytes
    body: bytes


class CheckpointDone(msgspec.Struct, frozen=True):
    """The requested checkpoint is durable."""


GroupEvent: TypeAlias = (
    RequestReceived
    | OwnOp
    | RoomMade
    | TailSettled
    | PieceRead
    | FrameReceived
    | PrepareDurable
    | ViewDurable
    | TimerFired
    | PrimarySilent
    | PrimaryBeat
    | EntryRead
    | CheckpointDone
)


class JournalPrepare(msgspec.Struct, frozen=True):
    """Append a prepare to the journal; without a body only its header is known yet.

    `PrepareDurable` follows for one with a body.
    """

    op: int
    checksum: int
    header: bytes
    body: Buffer | None
    is_never_held: bool = False  # this replica certainly never acknowledged the op


class JournalTruncate(msgspec.Struct, frozen=True):
    """Remove the ops from this one on from the log."""

    from_op: int


class PersistView(msgspec.Struct, frozen=True):
    """Make the view durable; `ViewDurable` follows."""

    state: ViewState


class SetTimer(msgspec.Struct, frozen=True):
    """Start a timer, or restart it."""

    timer: Timer
    ticks: int


class StopTimer(msgspec.Struct, frozen=True):
    """Stop a timer."""

    timer: Timer


class ReadEntry(msgspec.Struct, frozen=True):
    """Read a committed prepare from the journal; `EntryRead` follows."""

    token: int
    op: int


class ReadPiece(msgspec.Struct, frozen=True):
    """Read a part of a stored piece; `PieceRead` follows."""

    token: int
    piece: StoredPiece
    offset: int
    length: int


class TakeCheckpoint(msgspec.Struct, frozen=True):
    """Make the current state of the group durable; `CheckpointDone` follows."""


GroupEffect: TypeAlias = (
    JournalPrepare
    | JournalTruncate
    | PersistView
    | SetTimer
    | StopTimer
    | ReadEntry
    | ReadPiece
    | TakeCheckpoint
    | SendFrame
    | SendReply
)
