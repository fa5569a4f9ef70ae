"""What waits for the next turn of a simulated node, as the loop of a real node collects it."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Generic, TypeVar

from headrace.ports.bus import BusFrames, MemberLost
from headrace.ports.network import (
    ConnectionClosed,
    ConnectionOpened,
    FramesArrived,
    NetworkEvent,
    RequestsArrived,
)

Connected = ConnectionOpened | ConnectionClosed | tuple[int, bytes]

C = TypeVar("C")  # what answers an effect
Frame = tuple[int, bytes]  # its sender, and the whole of it
Arrived = NetworkEvent | BusFrames | MemberLost

_TURN_REQUESTS_MAX = 64


class Inbox(Generic[C]):
    """Answers of disks first, then frames of peers and of siblings, then what clients did."""

    def __init__(self) -> None:
        self._completions: list[C] = []
        self._frames: list[Frame] = []
        self._main: list[Frame] = []
        self._replies: list[Frame] = []
        self._lost: list[MemberLost] = []
        self._connected: list[Connected] = []

    def put(self, event: C) -> None:
        """Let the answer to an effect wait for the next turn."""
        self._completions.append(event)

    def put_frame(self, source: int, frame: bytes) -> None:
        """Let a peer's frame wait for the next turn."""
        self._frames.append((source, frame))

    def put_from_lane(self, sender: int, frame: bytes, *, is_reply: bool) -> None:
        """Let a sibling's frame wait for the next turn."""
        (self._replies if is_reply else self._main).append((sender, frame))

    def put_lost(self, lost: MemberLost) -> None:
        """Let it wait that a sibling is gone, behind all that it has sent."""
        self._lost.append(lost)

    def put_connected(self, event: Connected) -> None:
        """Let what a client did wait for the next turn: a frame comes with its connection."""
        self._connected.append(event)

    def take(self, wall: int, *, is_reading: bool = True) -> list[C | Arrived]:
        """Return all that waits, as one turn of a loop would at that time of its clock.

        What clients did waits further while the node reads no connections.
        """
        events: list[C | Arrived] = [*self._completions]
        if self._frames:
            events.append(FramesArrived(tuple(self._frames)))
        if self._main or self._replies:
            frames = [(who, bytearray(frame)) for who, frame in self._in_lanes()]
            events.append(BusFrames(tuple(frames), wall))
        events += self._lost
        self._completions, self._frames, self._lost = [], [], []
        self._main, self._replies = [], []
        if is_reading:
            events += _in_turns(self._connected, wall)
            self._connected = []
        return events

    def _in_lanes(self) -> Sequence[Frame]:
        """Return what siblings sent: after each frame of a main lane at most one reply (SH-20)."""
        pairs = zip_longest(self._main, self._replies)
        return [frame for pair in pairs for frame in pair if frame is not None]

    def clear(self) -> None:
        """Forget what waits."""
        self._completions, self._frames, self._connected = [], [], []
        self._main, self._replies, self._lost = [], [], []


def _in_turns(waiting: list[Connected], wall: int) -> list[NetworkEvent]:
    """Put requests that came together into one event, in their order among the others."""
    events: list[NetworkEvent] = []
    frames: list[tuple[int, bytearray]] = []
    for each in (*waiting, None):
        if isinstance(each, tuple) and len(frames) < _TURN_REQUESTS_MAX:
            frames.append((each[0], bytearray(each[1])))
            continue
        if frames:
            events.append(RequestsArrived(tuple(frames), wall))
            frames = []
        if isinstance(each, tuple):
            frames.append((each[0], bytearray(each[1])))
        elif each is not None:
            events.append(each)
    return events
