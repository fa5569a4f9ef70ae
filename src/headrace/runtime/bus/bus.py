"""The lanes of one member to all others, for its pump.

```
effect  SendToMember, ReleaseReply -> send, release     answered at once if it is refused
turn    ends -> flush                                   one write per lane
socket  readable -> frames collect -> announce -> take_events in the next turn
```

Flow:       route.
Invariants: sending never waits; a lane that is full or closed refuses (SH-17);
            at most `reply_inbox_capacity` forwarded requests to a member wait for their reply, so
            its reply lane always has a place for one (O4.3);
            the events of a member end with `MemberLost`, once.
"""

import logging
import socket
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from headrace.ports.bus import (
    BusEvent,
    BusFrames,
    BusRefused,
    DropReason,
    FrameLost,
    MemberLost,
    ReleaseReply,
    SendToMember,
)
from headrace.ports.network import Buffer
from headrace.runtime.bus.ends import BusEnds, LaneEnd, take_up
from headrace.runtime.bus.lane import READ_BYTES, LaneReader, SendQueue
from headrace.wire.bus.decode import DESCRIPTOR_KINDS, group_of, ticket_of
from headrace.wire.bus.prefix import encode_prefix
from headrace.wire.errors import RemoteError
from headrace.wire.layout import KIND_OFFSET, SIZE
from headrace.wire.numbers import FrameKind

_REQUEST = int(FrameKind.FORWARDED_REQUEST)
_REPLY = int(FrameKind.FORWARDED_REPLY)
_DESCRIPTORS = tuple(int(kind) for kind in DESCRIPTOR_KINDS)
_SIZE_START, _SIZE_STOP = SIZE.start, SIZE.stop

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """The part of an event loop that the bus needs."""

    def add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> None: ...  # noqa: ANN401
    def remove_reader(self, fd: int) -> bool: ...
    def add_writer(self, fd: int, callback: Callable[..., Any], *args: Any) -> None: ...  # noqa: ANN401
    def remove_writer(self, fd: int) -> bool: ...


class _Lane:
    """A socket with its two directions: to a member, and from it."""

    __slots__ = ("is_waiting", "peer", "queue", "reader", "socket")

    def __init__(self, peer: "_Peer", end: socket.socket, queue: SendQueue) -> None:
        self.peer = peer
        self.socket = end
        self.queue = queue
        self.reader: LaneReader  # set by the bus, which takes its frames
        self.is_waiting = False  # for the socket to be writable


class _Peer:
    """Another member: its lanes, and the requests whose replies have a place."""

    __slots__ = ("lanes", "main", "member", "places", "reply")

    def __init__(self, member: int) -> None:
        self.member = member
        self.main: _Lane
        self.reply: _Lane
        self.lanes: tuple[_Lane, ...] = ()  # none once they are closed
        self.places: dict[int, None] = {}


class Bus:
    """One member's side of the bus; all calls come from one thread."""

    def __init__(self, ends: BusEnds) -> None:
        """Take up the inherited ends.

        Raises:
            ValueError: A descriptor is not what the ends say.
        """
        self.member = ends.member
        self._ends = ends
        self._peers: dict[int, _Peer] = {}
        self._unsent: list[_Lane] = []
        self._main: list[tuple[int, Buffer]] = []
        self._replies: list[tuple[int, Buffer]] = []
        self._events: list[BusEvent] = []
        self.lost: dict[int, str] = {}  # members whose lanes are closed, and why
        self._watcher: Watcher | None = None
        self._announce: Callable[[], None] = _nobody
        self._buffer = bytearray(READ_BYTES)
        self._handovers: dict[int, socket.socket] = {}
        sockets = take_up(ends)
        for end in ends.lanes:
            if end is not None:
                self._peers[end.peer] = self._open(end, sockets)
                if end.handover in sockets:
                    self._handovers[end.peer] = sockets[end.handover]

    def _open(self, end: LaneEnd, sockets: dict[int, socket.socket]) -> _Peer:
        ends, peer = self._ends, _Peer(end.peer)
        taken: list[_Lane] = []
        for descriptor, capacity in (
            (end.main, ends.inbox_capacity),
            (end.reply, ends.reply_inbox_capacity),
        ):
            own = sockets[descriptor]
            lane = _Lane(peer, own, SendQueue(own, capacity))
            lane.reader = LaneReader(
                own,
                self._buffer,
                self._taker(end.peer, is_reply=descriptor == end.reply),
                sender=end.peer,
                frame_bytes_max=ends.frame_bytes_max,
            )
            taken.append(lane)
        peer.main, peer.reply = taken
        peer.lanes = tuple(taken)
        return peer

    def take_handover(self, member: int) -> socket.socket:
        """Return the socket on which descriptors travel to or from a member; once."""
        return self._handovers.pop(member)

    # The loop.

    def attach(self, watcher: Watcher, announce: Callable[[], None]) -> None:
        """Read from now on; `announce` is called when `take_events` has something."""
        assert self._watcher is None, "a bus is attached once"
        self._watcher = watcher
        self._announce = announce
        for peer in self._peers.values():
            for lane in peer.lanes:
                watcher.add_reader(lane.socket.fileno(), self._on_readable, lane)

    def close(self) -> None:
        """Close all lanes; what was not flushed is lost, and no event follows."""
        for peer in self._peers.values():
            self._close(peer)
        for handover in self._handovers.values():
            handover.close()
        self._handovers.clear()

    # Sending.

    def send(self, effect: SendToMember) -> BusRefused | None:
        """Accept a frame for a member, which `flush` writes; or refuse it."""
        parts = effect.parts
        header = parts[0]
        kind = header[KIND_OFFSET]
        peer = self._peers.get(effect.member)
        if peer is None:
            return self._refuse(effect, DropReason.UNROUTABLE)
        if not peer.lanes:
            return self._refuse(effect, DropReason.DISCONNECTED)
        size = sum(map(len, parts))
        assert int.from_bytes(header[_SIZE_START:_SIZE_STOP], "little") == size
        assert kind not in _DESCRIPTORS, "it travels with its descriptor"
        lane = peer.reply if kind == _REPLY else peer.main
        prefix = encode_prefix(size, target=effect.member, sender=self.member)
        if kind == _REQUEST:
            if len(peer.places) >= self._ends.reply_inbox_capacity or lane.queue.is_full:
                return self._refuse(effect, DropReason.FULL)
            ticket = ticket_of(header)
            assert ticket not in peer.places
            peer.places[ticket] = None
        if not lane.queue.put(size + len(prefix), (prefix, *parts)):
            return self._refuse(effect, DropReason.FULL)
        if len(lane.queue) == 1:
            self._unsent.append(lane)
        return None

    def _refuse(self, effect: SendToMember, reason: DropReason) -> BusRefused:
        header = effect.parts[0]
        return BusRefused(
            effect.member, header[KIND_OFFSET], ticket_of(header), reason, group_of(header)
        )

    def release(self, effect: ReleaseReply) -> None:
        """Give up the place of a reply; no place is given up twice."""
        peer = self._peers.get(effect.member)
        if peer is not None:
            peer.places.pop(effect.ticket, None)

    def flush(self) -> None:
        """Write what this turn has sent, in one call per lane; the rest follows by itself."""
        if self._unsent:
            lanes, self._unsent = self._unsent, []
            for lane in lanes:
                if not lane.is_waiting and lane.peer.lanes:
                    self._write(lane)

    def _write(self, lane: _Lane) -> bool:
        """Write a lane until it is empty or full; return whether it is empty."""
        try:
            is_empty = lane.queue.flush()
        except OSError as error:
            self._lose(lane.peer, error.strerror or "closed")
            return False
        if is_empty:
            return True
        if self._watcher is None:
            self._unsent.append(lane)
        elif not lane.is_waiting:
            lane.is_waiting = True
            self._watcher.add_writer(lane.socket.fileno(), self._on_writable, lane)
        return False

    def _on_writable(self, lane: _Lane) -> None:
        if self._write(lane):
            assert self._watcher is not None
            lane.is_waiting = False
            self._watcher.remove_writer(lane.socket.fileno())

    # Receiving.

    def take_events(self) -> Sequence[BusEvent]:
        """Return what has arrived since the last call: frames first, in one event."""
        events, self._events = self._events, []
        if self._main or self._replies:
            frames = interleave(self._main, self._replies)
            self._main, self._replies = [], []
            events.insert(0, BusFrames(frames, time.time_ns() // 1000))
        return events

    def _taker(self, sender: int, *, is_reply: bool) -> Callable[[int, bytearray], None]:
        def take(target: int, frame: bytearray) -> None:
            kind = frame[KIND_OFFSET]
            if (kind == _REPLY) is not is_reply or kind in _DESCRIPTORS:
                raise RemoteError(f"frame of kind {kind} on the wrong lane of member {sender}")
            if target != self.member:
                self._drop_misrouted(sender, target, frame)
            elif is_reply:
                self._peers[sender].places.pop(ticket_of(frame), None)
                self._replies.append((sender, frame))
            else:
                self._main.append((sender, frame))

        return take

    def _drop_misrouted(self, sender: int, target: int, frame: bytearray) -> None:
        kind = frame[KIND_OFFSET]
        _log.error(
            "frame of kind %d from member %d for member %d arrived at member %d",
            *(kind, sender, target, self.member),
        )
        self._events.append(FrameLost(sender, kind, DropReason.MISROUTED, group_of(frame)))

    def _on_readable(self, lane: _Lane) -> None:
        if not lane.peer.lanes:
            return  # The other lane was read first, and was closed.
        try:
            if not lane.reader.read():
                self._lose(lane.peer, "closed")
        except RemoteError as error:
            _log.error("the lanes of member %d are closed: %s", lane.peer.member, error)
            self._lose(lane.peer, str(error), is_lost=True)
        except OSError as error:
            self._lose(lane.peer, error.strerror or "closed")
        if self._main or self._replies or self._events:
            self._announce()

    def _lose(self, peer: _Peer, cause: str, *, is_lost: bool = False) -> None:
        """Close the lanes of a member that has gone.

        What it had sent before still counts, unless a stream is lost.
        """
        if not peer.lanes:
            return
        if not is_lost:
            self._drain(peer)
        self._close(peer)
        self.lost[peer.member] = cause
        self._events.append(MemberLost(peer.member, cause))
        self._announce()

    def _drain(self, peer: _Peer) -> None:
        try:
            for lane in peer.lanes:
                lane.reader.drain()
        except RemoteError as error:
            _log.error("the last bytes of member %d: %s", peer.member, error)

    def _close(self, peer: _Peer) -> None:
        for lane in peer.lanes:
            if self._watcher is not None:
                self._watcher.remove_reader(lane.socket.fileno())
                self._watcher.remove_writer(lane.socket.fileno())
            lane.queue.clear()
            lane.socket.close()
        peer.lanes = ()
        peer.places.clear()

    # What people see.

    def waiting(self, member: int) -> tuple[int, int]:
        """Return how many frames wait for a member: on its main lane and on its reply lane."""
        peer = self._peers[member]
        return len(peer.main.queue), len(peer.reply.queue)

    def places_taken(self, member: int) -> int:
        """Return how many forwarded requests to a member have no reply yet."""
        return len(self._peers[member].places)


def interleave(
    main: Sequence[tuple[int, Buffer]], replies: Sequence[tuple[int, Buffer]]
) -> tuple[tuple[int, Buffer], ...]:
    """Return all frames: after each one of a main lane at most one reply (SH-20)."""
    if not main or not replies:
        return tuple(main or replies)
    return tuple(
        frame for pair in zip_longest(main, replies) for frame in pair if frame is not None
    )


def _nobody() -> None:
    """Announce to nobody: the bus is not attached."""
