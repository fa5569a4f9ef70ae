"""What a group is told and what it wants done, as only consensus and the shard see it.

What leaves the node, or touches the disk, is an effect of `ports`; these are translated to those.
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
    """A client asks for something; the header is checked, user and group are stamped."""

    header: RequestHeader
    body: Buffer


class OwnOp(msgspec.Struct, frozen=True):
    """The server itself wants an op ordered, for a client or for none; dropped if it cannot be now.

    Who wants it asks again as long as it is wanted.
    """

    operation: Operation
    body: bytes
    client: int = 0


class TailSettled(msgspec.Struct, frozen=True):
    """The log says by now what may have gone with the power."""


class RoomMade(msgspec.Struct, frozen=True):
    """The journal may have room again for what waits for it."""


class PieceRead(msgspec.Struct, frozen=True):
    """A part of a stored piece was read for a transfer; none when it could not be."""

    token: int
    data: bytes | None


class FrameReceived(msgspec.Struct, frozen=True):
    """Another replica sent a frame of this group, sealed and within the rules of its kind."""

    sender: int
    kind: FrameKind
    header: ReplicaHeader
    frame: bytes


class PrepareDurable(msgspec.Struct, frozen=True):
    """The journal holds this prepare as its class asks; a later one of that op may replace it."""

    op: int
    checksum: int


class ViewDurable(msgspec.Struct, frozen=True):
    """The journal will not forget these, so messages of the view may leave (MD-26)."""

    view: int
    log_view: int


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that was set and not stopped has run out."""

    timer: Timer


class PrimarySilent(msgspec.Struct, frozen=True):
    """The node of the primary has not been heard of for the heartbeat timeout."""


class PrimaryBeat(msgspec.Struct, frozen=True):
    """The primary of a view says how far it has committed."""

    sender: int
    view: int
    commit: int
    is_declined: bool


class EntryRead(msgspec.Struct, frozen=True):
    """The journal gave an entry back, verified; without a header it could not."""

    token: int
    header: bytes
    body: bytes


class CheckpointDone(msgspec.Struct, frozen=True):
    """The checkpoint that was asked for is durable."""


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
    """Append a prepare; without a body only its header is known yet.

    `PrepareDurable` follows for one with a body.
    """

    op: int
    checksum: int
    header: bytes
    body: Buffer | None
    is_never_held: bool = False  # certain that this replica has never acknowledged the op


class JournalTruncate(msgspec.Struct, frozen=True):
    """Ops from this one on are no longer part of the log."""

    from_op: int


class PersistView(msgspec.Struct, frozen=True):
    """Remember the view; `ViewDurable` follows."""

    state: ViewState


class SetTimer(msgspec.Struct, frozen=True):
    """Start a timer anew."""

    timer: Timer
    ticks: int


class StopTimer(msgspec.Struct, frozen=True):
    """Forget a timer."""

    timer: Timer


class ReadEntry(msgspec.Struct, frozen=True):
    """Read a committed prepare back from the journal; `EntryRead` follows."""

    token: int
    op: int


class ReadPiece(msgspec.Struct, frozen=True):
    """Read a part of a stored piece; `PieceRead` follows."""

    token: int
    piece: StoredPiece
    offset: int
    length: int


class TakeCheckpoint(msgspec.Struct, frozen=True):
    """Make the group's state durable as it is now; `CheckpointDone` follows."""


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
