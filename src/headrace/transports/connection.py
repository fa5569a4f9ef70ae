"""One TCP connection: bytes become frames for the inbox, replies leave in one write a turn.

Reading stops while a reason for it holds, and nothing that has arrived is lost:

| reason | holds |
|---|---|
| SENDING | while more replies wait than the high mark, because the peer does not take them |
| IN_FLIGHT | from the most unanswered requests that a connection may have, down to half of that |
| ROOM | while there is no memory for its frame; large frames have a share of their own |
| FULL | while all connections together hold too much; not one that has memory for its frame |
| PAUSED | while the core wants no requests |

Flow:       receive, reply.
Invariants: opened is told before the first frame, closed after the last, each once;
            frames are put in the order of the stream, replies leave in the order of `send`.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast

from headrace.base.limits import KIB
from headrace.ports.network import Buffer
from headrace.transports.frames import FrameReceiver
from headrace.transports.inbox import Inbox
from headrace.transports.limits import TcpLimits
from headrace.transports.memory import ReceiveMemory, SendMemory
from headrace.transports.slabs import Slab

if TYPE_CHECKING:
    from headrace.transports.deadlines import Deadlines

SENDING = 1
IN_FLIGHT = 2
ROOM = 4
FULL = 8
PAUSED = 16

# So much of a small frame is not worth the counting: clients that write header and body apart leave
# a rest with every request.
UNCOUNTED_BYTES = 4 * KIB
_SEGMENT_BYTES = 64 * KIB  # a peer waits with less than a segment; on loopback one is so large


class Keeper(Protocol):
    """What the connections of one listener share."""

    limits: TcpLimits
    inbox: Inbox
    slab: Slab
    memory: ReceiveMemory
    sending: SendMemory
    unheard: "Deadlines[Connection]"  # no whole frame yet
    unfinished: "Deadlines[Connection]"  # may be in the middle of a frame
    lagging: "Deadlines[Connection]"  # replies wait for the peer to take them
    closing: "Deadlines[Connection]"  # the last replies are leaving
    unsent: "list[Connection]"  # with replies of this turn
    waiting: "dict[Connection, None]"  # for memory for its frame, in order
    waiting_large: "dict[Connection, None]"  # the same, of large frames

    def opened(self, connection: "Connection") -> None:
        """Take up a new connection: number it, or close it with a reason."""

    def lost(self, connection: "Connection") -> None:
        """Forget a connection."""

    def tell_written(self) -> None:
        """Tell the core what was written and what waits, if that has changed much."""

    def fill_up(self, connection: "Connection") -> None:
        """Stop reading: what this connection has received, or begins to receive, is too much."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection, on any event loop."""

    __slots__ = (
        "_answered",
        "_blocked",
        "_held",
        "_in_flight_max",
        "_is_closing",
        "_is_lagging",
        "_is_watched",
        "_keeper",
        "_memory",
        "_outbox",
        "_put",
        "_receiver",
        "_requests",
        "_seen",
        "_seen_in_need",
        "_socket",
        "_transport",
        "_unsent_bytes",
        "_waiting",
        "address",
        "host",
        "number",
        "reason",
    )

    _transport: asyncio.Transport

    def __init__(self, keeper: Keeper) -> None:
        self.number = 0  # given when it is taken up
        self.host = ""
        self.address = ""
        self.reason = ""  # why this side closed it
        self._keeper = keeper
        self._memory = keeper.memory
        self._put = keeper.inbox.put
        self._in_flight_max = keeper.limits.requests_in_flight_max
        self._receiver = FrameReceiver(keeper.slab, keeper.limits.frame_bytes_max_before_login)
        self._socket: socket.socket | None = None
        self._outbox: list[Buffer] = []
        self._requests = 0  # handed over
        self._answered = 0
        self._blocked = 0
        self._held = 0  # our share of what the memory counts as held
        self._seen = (0, 0)  # requests and bytes of an unfinished frame, when last looked at
        self._seen_in_need = (-1, 0)  # the same, when others last waited for memory
        self._waiting = 0  # our share of what the memory counts as waiting for its peers
        self._unsent_bytes = 0  # of a lagging connection, when last looked at and added since
        self._is_watched = False
        self._is_lagging = False
        self._is_closing = False

    @property
    def in_flight(self) -> int:
        """How many requests were handed over and not answered."""
        return self._requests - self._answered

    @property
    def blocked(self) -> int:
        """The reasons for which this connection is not read."""
        return self._blocked

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless the listener refuses."""
        # uvloop's transports have the methods of this class without being of it.
        self._transport = cast("asyncio.Transport", transport)
        # A peer that is gone already has no name.
        self.host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        if hasattr(socket, "TCP_QUICKACK"):
            self._socket = transport.get_extra_info("socket")
        # The mark is 0, so that `pause_writing` tells of every byte that the peer did not take.
        self._transport.set_write_buffer_limits(high=0)
        self._keeper.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to read to; `buffer_updated` follows before another connection is read."""
        del sizehint
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self._is_closing:
            return
        frames_max = self._in_flight_max - (self._requests - self._answered)
        if self._blocked:
            # uvloop begins to read after `connection_made`, whatever that asked for.
            self._transport.pause_reading()
            frames_max = 0
        self._hand_over(self._receiver.receive(nbytes, frames_max))
        if 0 < self._receiver.missing_bytes < _SEGMENT_BYTES:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge what has come of a frame now, not when the system's timer runs out.

        A client that writes header and body apart holds the body back until the header is
        acknowledged, unless it fills a segment; the released SDK does, and waited 40 ms a send.
        """
        if self._socket is not None:
            with suppress(OSError):  # It is gone; the transport will tell.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def eof_received(self) -> None:
        """Let the transport close, once it has sent what it has."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End, whoever closed it."""
        del exc
        self._is_closing = True
        self._hold(0)
        self._wait(0)
        self._outbox.clear()
        self._keeper.lost(self)

    def pause_writing(self) -> None:
        """Note that the peer is behind."""
        self._is_lagging = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._wait(self._unsent_bytes)
        self._keeper.lagging.begin(self)

    def resume_writing(self) -> None:
        """Note that the peer has taken everything."""
        self._is_lagging = False
        self._wait(0)
        self._keeper.lagging.end(self)
        self._keeper.tell_written()
        self.unblock(SENDING)

    # What the listener calls.

    def set_logged_in(self) -> None:
        """Allow frames of full size from now on."""
        self._receiver.frame_bytes_max = self._keeper.limits.frame_bytes_max

    def set_logged_out(self) -> None:
        """Allow small frames only from now on; one that has begun may still end."""
        self._receiver.frame_bytes_max = self._keeper.limits.frame_bytes_max_before_login

    def send(self, parts: Sequence[Buffer]) -> None:
        """Keep the reply to one request for `flush`, which must follow in this turn."""
        outbox = self._outbox
        if not outbox:
            self._keeper.unsent.append(self)
        outbox += parts
        if len(parts) > 1:  # Replies of one part are small.
            self._keeper.sending.written_bytes += sum(map(len, parts))
        if self._answered < self._requests:  # An eviction may come without a request.
            self._answered += 1

    def flush(self) -> None:
        """Give the transport what was sent in this turn, in one call."""
        parts, self._outbox = self._outbox, []
        if self._is_closing or self._transport.is_closing():
            return
        if self._is_lagging:
            self._unsent_bytes += sum(map(len, parts))
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        if self._is_lagging:
            self._judge_lag()
        if self._blocked & IN_FLIGHT and self.in_flight <= self._in_flight_max // 2:
            self.unblock(IN_FLIGHT)

    def block(self, reason: int) -> None:
        """Stop reading, for this reason too."""
        if not self._blocked and not self._transport.is_closing():
            self._transport.pause_reading()
        self._blocked |= reason

    def unblock(self, reasons: int) -> None:
        """Read on, unless there is another reason not to; frames that were kept come first."""
        if not self._blocked & reasons:
            return
        self._blocked &= ~reasons
        if self._blocked or self._is_closing:
            return
        if self._receiver.rest and not self._receiver.wanted:
            self._hand_over(self._receiver.cut(self._in_flight_max - self.in_flight))
        self._read_on()

    def _read_on(self) -> None:
        # Handing over may have blocked or closed it again.
        if not self._blocked and not self._transport.is_closing():
            self._transport.resume_reading()

    def has_reserved(self) -> bool:
        """Whether the frame that is being received has its memory: it may always go on."""
        return self._held > 0 and not self._blocked & ROOM

    def use_room(self) -> bool:
        """Take the memory that this connection waits for, if there is enough by now."""
        assert self._blocked & ROOM
        if not self._memory.has_room(self._receiver.wanted):
            return False
        self._hold(self._receiver.wanted)
        self.unblock(ROOM | FULL)
        return True

    def close(self, reason: str) -> None:
        """Close once what was sent has left; bounded by a deadline."""
        if self._is_closing:
            return
        self.reason = reason
        self._is_closing = True
        if self._outbox and not self._transport.is_closing():
            self._transport.writelines(self._outbox)
        self._transport.close()
        self._keeper.closing.begin(self)

    def abort(self, reason: str) -> None:
        """Close at once; what has not left is lost."""
        self.reason = self.reason or reason
        self._is_closing = True
        self._transport.abort()

    # Looks of the sweep.

    def look_at_frame(self) -> None:
        """Close a connection whose frame neither ended nor grew enough since the last look."""
        count = self._receiver.unfinished_bytes
        requests, bytes_before = self._seen
        self._is_watched = False
        if count == 0 or self._is_closing:
            return
        grown = count - bytes_before
        is_moving = self._requests != requests or self._blocked != 0
        if not is_moving and grown < self._keeper.limits.frame_progress_bytes_min:
            self.abort(f"frame unfinished after {count} bytes, {grown} of them of late")
            return
        self._watch()

    def look_at_room(self) -> None:
        """Close a connection that receives next to nothing into memory that others wait for.

        It has a second for what it otherwise has much longer for: as long as it does not move,
        nobody is read.
        """
        if self._is_closing or self._blocked or not self.has_reserved():
            return
        requests, bytes_before = self._seen_in_need
        count = self._receiver.unfinished_bytes
        self._seen_in_need = (self._requests, count)
        grown = count - bytes_before
        if self._requests == requests and grown < self._keeper.limits.frame_progress_bytes_min:
            self.abort(f"frame unfinished after {count} bytes while others wait for memory")

    def count_lag(self) -> None:
        """Count what the peer has not taken by now."""
        if self._is_lagging and not self._is_closing:
            self._wait(self._transport.get_write_buffer_size())

    def look_at_lag(self) -> None:
        """Close a connection whose peer has taken nothing since the last look."""
        waiting = self._transport.get_write_buffer_size()
        if waiting >= self._unsent_bytes:
            self.abort(f"{waiting} bytes of replies wait and the peer takes none")
            return
        self._unsent_bytes = waiting
        self._keeper.lagging.begin(self)

    # Frames.

    def _hand_over(self, frames: Sequence[bytearray]) -> None:
        """Put frames into the inbox, then see whether reading may go on."""
        if frames:
            if self._requests == 0:
                self._keeper.unheard.end(self)
            self._requests += len(frames)
            number, put, total = self.number, self._put, 0
            for frame in frames:
                put(number, frame)
                total += len(frame)
            self._memory.turn_bytes += total
            if self._requests - self._answered >= self._in_flight_max:
                self.block(IN_FLIGHT)
        receiver, memory = self._receiver, self._memory
        if receiver.breach:
            self.abort(receiver.breach)
            return
        if not self._is_watched and (receiver.rest or receiver.frame is not None):
            self._watch()
        if self._held or receiver.is_large_next or len(receiver.rest) > UNCOUNTED_BYTES:
            self._account()
        if memory.turn_bytes + memory.held_bytes > memory.bytes_max:
            self._keeper.fill_up(self)

    def _watch(self) -> None:
        """Have the sweep look at the unfinished frame, later: most are finished by then."""
        self._is_watched = True
        self._seen = (self._requests, self._receiver.unfinished_bytes)
        self._keeper.unfinished.begin(self)

    def _account(self) -> None:
        """Count what is held; take memory for the frame that has begun, or wait for it."""
        receiver = self._receiver
        if receiver.frame is not None:
            return  # It is counted from its beginning.
        rest = len(receiver.rest)
        if receiver.wanted and (receiver.is_large_next or rest > UNCOUNTED_BYTES):
            self._reserve(receiver.wanted)
        else:
            self._hold(rest if rest > UNCOUNTED_BYTES else 0)

    def _reserve(self, size: int) -> None:
        if size == self._held:
            return
        self._hold(0)
        keeper = self._keeper
        is_large = self._receiver.is_large_next
        waiting = keeper.waiting_large if is_large else keeper.waiting
        # Nobody overtakes those who wait, or a large frame might never get its turn.
        if not waiting and self._memory.has_room(size):
            self._hold(size)
            return
        waiting[self] = None
        self.block(ROOM)
        if not is_large:
            keeper.fill_up(self)

    def _hold(self, count: int) -> None:
        self._memory.hold(count, instead_of=self._held)
        self._held = count

    def _wait(self, count: int) -> None:
        self._keeper.sending.wait(count, instead_of=self._waiting)
        self._waiting = count

    def _judge_lag(self) -> None:
        """Bound what waits for a peer that does not take it (NW10)."""
        waiting = self._transport.get_write_buffer_size()
        self._wait(waiting)
        limits = self._keeper.limits
        if waiting > limits.send_bytes_max:
            self.abort(f"{waiting} bytes of replies wait, limit {limits.send_bytes_max}")
        elif waiting > limits.send_bytes_high:
            self.block(SENDING)
