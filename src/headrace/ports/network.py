"""What the core sends and receives: frames between replicas, requests and replies, time."""

from typing import TypeAlias, final

import msgspec

from headrace.wire.numbers import Transport

# A buffer that is handed over: who gave it neither changes nor reuses it.
Buffer: TypeAlias = bytes | bytearray | memoryview


@final
class SendFrame(msgspec.Struct, frozen=True):
    """Send a frame to another replica; it may be lost without notice."""

    replica: int
    frame: bytes


@final
class SendReply(msgspec.Struct, frozen=True):
    """Answer a client of this node; the frame is a reply or an eviction.

    An eviction does not say which request it answers, so this does. A number may stand for several
    requests, so the ticket says who waits; 0 where only one can.
    """

    client: int
    frame: bytes
    request: int = 0
    ticket: int = 0


class SendToConnection(msgspec.Struct, frozen=True):
    """Answer on a connection: the parts of one frame, in order."""

    connection: int
    parts: tuple[Buffer, ...]


class ConnectionTrusted(msgspec.Struct, frozen=True):
    """A connection holds a session: the bounds for strangers no longer hold for it; or do again."""

    connection: int
    is_trusted: bool = True


class CloseConnection(msgspec.Struct, frozen=True):
    """Close a connection once what was sent on it has left; `ConnectionClosed` follows."""

    connection: int
    reason: str


class ConnectionLeft(msgspec.Struct, frozen=True):
    """A connection of another shard is gone: whoever counts those of the node forgets it.

    `ConnectionTrusted` of such a connection tells whether it has logged in.
    """

    connection: int


class ReadConnections(msgspec.Struct, frozen=True):
    """Stop reading requests from all connections, or go on; what has arrived is kept."""

    is_reading: bool


class FramesArrived(msgspec.Struct, frozen=True):
    """Frames from other replicas, in order of arrival; the link identifies the sender."""

    frames: tuple[tuple[int, bytes], ...]


class ConnectionOpened(msgspec.Struct, frozen=True):
    """A client has connected."""

    connection: int
    transport: Transport
    address: str


class ConnectionClosed(msgspec.Struct, frozen=True):
    """A connection is closed, by either side; its number is not used again."""

    connection: int


class CloseWanted(msgspec.Struct, frozen=True):
    """A limit of the node wants a connection closed, wherever it lives."""

    connection: int
    reason: str


class RequestsArrived(msgspec.Struct, frozen=True):
    """Whole frames of clients, of all connections that were readable in this turn.

    Each is the connection and the frame as it came, of a size within the limits and otherwise
    unchecked; the buffer now belongs to the core, which stamps batches in place. `wall` is the wall
    clock in microseconds, so that no message is stamped before it was sent; 0 if it did not move.
    """

    frames: tuple[tuple[int, Buffer], ...]
    wall: int = 0


class RepliesWritten(msgspec.Struct, frozen=True):
    """Replies were written to connections, or peers received some; sent when much has changed.

    `written_bytes` counts the bytes written since the last such event, `waiting_bytes` all written
    bytes that peers have not received.
    """

    written_bytes: int
    waiting_bytes: int


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed: `now` counts ticks of 10 ms, `wall` is the wall clock in microseconds."""

    now: int
    wall: int


NetworkEffect: TypeAlias = (
    SendFrame
    | SendReply
    | SendToConnection
    | ConnectionTrusted
    | CloseConnection
    | ConnectionLeft
    | ReadConnections
)
NetworkEvent: TypeAlias = (
    FramesArrived
    | ConnectionOpened
    | ConnectionClosed
    | CloseWanted
    | RequestsArrived
    | RepliesWritten
    | Ticked
)
