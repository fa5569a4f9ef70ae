"""What the core sends and receives: frames between replicas, requests and replies, time."""

from typing import TypeAlias

import msgspec


class SendFrame(msgspec.Struct, frozen=True):
    """Send a frame to another replica; it may be lost, and nobody says so."""

    replica: int
    frame: bytes


class SendReply(msgspec.Struct, frozen=True):
    """Answer a client of this node; the frame is a reply or an eviction."""

    client: int
    frame: bytes


class FramesArrived(msgspec.Struct, frozen=True):
    """Frames from other replicas, in the order they came; the sender is who the link belongs to."""

    frames: tuple[tuple[int, bytes], ...]


class RequestsArrived(msgspec.Struct, frozen=True):
    """Requests of clients, of all connections that were readable in this turn.

    The header of each is the client's, with `user_id` and `group` stamped by the server.
    """

    frames: tuple[bytes, ...]


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed: `now` counts ticks of 10 ms, `wall` is the wall clock in microseconds."""

    now: int
    wall: int


NetworkEffect: TypeAlias = SendFrame | SendReply
NetworkEvent: TypeAlias = FramesArrived | RequestsArrived | Ticked
