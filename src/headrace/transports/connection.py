"""One TCP connection: bytes become frames for the inbox, replies leave in one write per turn.

Reading stops while one of these reasons holds, and no received byte is lost:

| reason | holds |
|---|---|
| SENDING | while more replies wait than the high mark, because the peer does not read them |
| IN_FLIGHT | from the maximum of unanswered requests per connection, down to half of it |
| ROOM | while there is no memory for its frame; large frames have a separate share |
| FULL | while all connections together hold too much; except those with memory for their frame |
| PAUSED | while the core accepts no requests |

Flow:       receive, reply.
Invariants: the core gets opened before the first frame and closed after the last, each once;
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

# Fewer bytes of a small frame are not counted: clients that write header and body separately leave
# an unfinished frame with every request.
UNCOUNTED_BYTES = 4 * KIB
_SEGMENT_BYTES = 64 * KIB  # a peer holds back less than one segment; this is its size on loopback


class Listener(Protocol):
    """The state that the connections of one listener share."""

    limits: TcpLimits
    inbox: Inbox
    slab: Slab
    memory: ReceiveMemory
    sending: SendMemory
    unheard: "Deadlines[Connection]"  # no whole frame yet
    unfinished: "Deadlines[Connection]"  # may be in the middle of a frame
    lagging: "Deadlines[Connection]"  # replies wait for the peer to read them
    closing: "Deadlines[Connection]"  # the last replies are being sent
    unsent: "list[Connection]"  # have replies of this turn
    waiting: "dict[Connection, None]"  # wait for memory for their frame, in order
    waiting_large: "dict[Connection, None]"  # the same, for large frames

    def opened(self, connection: "Connection") -> None:
        """Register a new connection: number it, or close it with a reason."""

    def lost(self, connection: "Connection") -> None:
        """Remove a connection."""

    def tell_written(self) -> None:
        """Report to the core what was written and what waits, if it has changed much."""

    def fill_up(self, connection: "Connection") -> None:
        """Stop reading: this connection has received, or begins to receive, too much."""


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
        "_listener",
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

    def __init__(self, listener: Listener) -> None:
        self.number = 0  # assigned when it is registered
        self.host = ""
        self.address = ""
        self.reason = ""  # why this side closed it
        self._listener = listener
        self._memory = listener.memory
        self._put = listener.inbox.put
        self._in_flight_max = listener.limits.requests_in_flight_max
        self._receiver = FrameReceiver(listener.slab, listener.limits.frame_bytes_max_before_login)
        self._socket: socket.socket | None = None
        self._outbox: list[Buffer] = []
        self._requests = 0  # passed to the core
        self._answered = 0
        self._blocked = 0
        self._held = 0  # the bytes of this connection in `ReceiveMemory`
        self._seen = (0, 0)  # requests and bytes of an unfinished frame, at the last check
        self._seen_in_need = (-1, 0)  # the same, at the last check while others waited for memory
        self._waiting = 0  # the bytes of this connection in `SendMemory`
        self._unsent_bytes = 0  # of a lagging connection: at the last check, plus those added since
        self._is_watched = False
        self._is_lagging = False
        self._is_closing = False

    @property
    def in_flight(self) -> int:
        """The number of requests passed to the core and not answered."""
        return self._requests - self._answered

    @property
    def blocked(self) -> int:
        """The reasons for which this connection is not read."""
        return self._blocked

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start, unless the listener refuses the connection."""
        # uvloop's transports have the methods of this class without inheriting from it.
        self._transport = cast("asyncio.Transport", transport)
        # A peer that has already disconnected has no address.
        self.host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        if hasattr(socket, "TCP_QUICKACK"):
            self._socket = transport.get_extra_info("socket")
        # The mark is 0, so that `pause_writing` is called for every byte not read by the peer.
        self._transport.set_write_buffer_limits(high=0)
        self._listener.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the read buffer; `buffer_updated` follows before another connection is read."""
        del sizehint
        receiver = self._receiver
        return receiver.next_buffer or receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that were read."""
        if self._is_closing:
            return
        frames_max = self._in_flight_max - (self._requests - self._answered)
        if self._blocked:
            # uvloop starts reading after `connection_made`, even if that paused it.
            self._transport.pause_reading()
            frames_max = 0
        receiver = self._receiver
        self._hand_over(receiver.receive(nbytes, frames_max))
        if receiver.next_buffer is None and 0 < receiver.missing_bytes < _SEGMENT_BYTES:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge the received part of a frame now, without the system's delay.

        A client that writes header and body separately holds the body back until the header is
        acknowledged, unless it fills a segment; the released SDK does this, and waited 40 ms per
        send.
        """
        if self._socket is not None:
            with suppress(OSError):  # It is closed; the transport will report it.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def eof_received(self) -> None:
        """Let the transport close after it has sent its data."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up, whichever side closed it."""
        del exc
        self._is_closing = True
        self._hold(0)
        self._wait(0)
        self._outbox.clear()
        self._listener.lost(self)

    def pause_writing(self) -> None:
        """Record that the peer is behind."""
        self._is_lagging = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._wait(self._unsent_bytes)
        self._listener.lagging.begin(self)

    def resume_writing(self) -> None:
        """Record that the peer has read everything."""
        self._is_lagging = False
        self._wait(0)
        self._listener.lagging.end(self)
        self._listener.tell_written()
        self.unblock(SENDING)

    # Called by the listener.

    def set_logged_in(self) -> None:
        """Allow frames of full size from now on."""
        self._receiver.frame_bytes_max = self._listener.limits.frame_bytes_max

    def set_logged_out(self) -> None:
        """Allow only small frames from now on; one that has begun may still end."""
        self._receiver.frame_bytes_max = self._listener.limits.frame_bytes_max_before_login

    def send(self, parts: Sequence[Buffer]) -> None:
        """Store the reply to one request for `flush`, which must follow in this turn."""
        outbox = self._outbox
        if not outbox:
            self._listener.unsent.append(self)
        outbox += parts
        if len(parts) > 1:  # Replies of one part are small.
            self._listener.sending.written_bytes += sum(map(len, parts))
        if self._answered < self._requests:  # An eviction may come without a request.
            self._answered += 1

    def flush(self) -> None:
        """Write the replies of this turn to the transport, in one call."""
        parts, self._outbox = self._outbox, []
        if self._is_closing or self._transport.is_closing():
            return
        if self._is_lagging:
            self._unsent_bytes += sum(map(len, parts))
        self._transport.writelines(parts)
        if self._is_lagging:
            self._judge_lag()
        if self._blocked & IN_FLIGHT and self.in_flight <= self._in_flight_max // 2:
            self.unblock(IN_FLIGHT)

    def block(self, reason: int) -> None:
        """Stop reading, for this additional reason."""
        if not self._blocked and not self._transport.is_closing():
            self._transport.pause_reading()
        self._blocked |= reason

    def unblock(self, reasons: int) -> None:
        """Continue reading, unless another reason holds; stored frames come first."""
        if not self._blocked & reasons:
            return
        self._blocked &= ~reasons
        if self._blocked or self._is_closing:
            return
        if self._receiver.rest and not self._receiver.wanted:
            self._hand_over(self._receiver.cut(self._in_flight_max - self.in_flight))
        self._read_on()

    def _read_on(self) -> None:
        # Passing frames on may have blocked or closed it again.
        if not self._blocked and not self._transport.is_closing():
            self._transport.resume_reading()

    def has_reserved(self) -> bool:
        """Whether the frame being received has its memory: it may always continue."""
        return self._held > 0 and not self._blocked & ROOM

    def use_room(self) -> bool:
        """Take the memory that this connection waits for, if there is enough now."""
        assert self._blocked & ROOM
        if not self._memory.has_room(self._receiver.wanted):
            return False
        self._hold(self._receiver.wanted)
        self.unblock(ROOM | FULL)
        return True

    def close(self, reason: str) -> None:
        """Close after the sent data has left; bounded by a deadline."""
        if self._is_closing:
            return
        self.reason = reason
        self._is_closing = True
        if self._outbox and not self._transport.is_closing():
            self._transport.writelines(self._outbox)
        self._transport.close()
        self._listener.closing.begin(self)

    def abort(self, reason: str) -> None:
        """Close at once; unsent data is lost."""
        self.reason = self.reason or reason
        self._is_closing = True
        self._transport.abort()

    # Checks of the sweep.

    def look_at_frame(self) -> None:
        """Close a connection whose frame neither ended nor grew enough since the last check."""
        count = self._receiver.unfinished_bytes
        requests, bytes_before = self._seen
        self._is_watched = False
        if count == 0 or self._is_closing:
            return
        grown = count - bytes_before
        is_moving = self._requests != requests or self._blocked != 0
        if not is_moving and grown < self._listener.limits.frame_progress_bytes_min:
            self.abort(f"frame unfinished after {count} bytes, {grown} of them of late")
            return
        self._watch()

    def look_at_room(self) -> None:
        """Close a connection that receives almost nothing into memory that others wait for.

        It has one second for what otherwise has much longer: while it stalls, no connection is
        read.
        """
        if self._is_closing or self._blocked or not self.has_reserved():
            return
        requests, bytes_before = self._seen_in_need
        count = self._receiver.unfinished_bytes
        self._seen_in_need = (self._requests, count)
        grown = count - bytes_before
        if self._requests == requests and grown < self._listener.limits.frame_progress_bytes_min:
            self.abort(f"frame unfinished after {count} bytes while others wait for memory")

    def count_lag(self) -> None:
        """Count the bytes that the peer has not read yet."""
        if self._is_lagging and not self._is_closing:
            self._wait(self._transport.get_write_buffer_size())

    def look_at_lag(self) -> None:
        """Close a connection whose peer has read nothing since the last check."""
        waiting = self._transport.get_write_buffer_size()
        if waiting >= self._unsent_bytes:
            self.abort(f"{waiting} bytes of replies wait and the peer takes none")
            return
        self._unsent_bytes = waiting
        self._listener.lagging.begin(self)

    # Frames.

    def _hand_over(self, frames: Sequence[bytearray]) -> None:
        """Put frames into the inbox, then check whether reading may continue."""
        if frames:
            if self._requests == 0:
                self._listener.unheard.end(self)
            number, put = self.number, self._put
            for frame in frames:
                put(number, frame)
                self._requests += 1
            self._memory.turn_bytes += self._receiver.cut_bytes
            if self._requests - self._answered >= self._in_flight_max:
                self.block(IN_FLIGHT)
        receiver, memory = self._receiver, self._memory
        if receiver.breach:
            self.abort(receiver.breach)
            return
        is_partial = receiver.next_buffer is None
        if is_partial and not self._is_watched:
            self._watch()
        if self._held or (
            is_partial and (receiver.is_large_next or len(receiver.rest) > UNCOUNTED_BYTES)
        ):
            self._account()
        if memory.turn_bytes + memory.held_bytes > memory.bytes_max:
            self._listener.fill_up(self)

    def _watch(self) -> None:
        """Let the sweep check the unfinished frame later: most are finished by then."""
        self._is_watched = True
        self._seen = (self._requests, self._receiver.unfinished_bytes)
        self._listener.unfinished.begin(self)

    def _account(self) -> None:
        """Count what is held; reserve memory for the frame that has begun, or wait for it."""
        receiver = self._receiver
        if receiver.frame is not None:
            return  # It was counted when it began.
        rest = len(receiver.rest)
        if receiver.wanted and (receiver.is_large_next or rest > UNCOUNTED_BYTES):
            self._reserve(receiver.wanted)
        else:
            self._hold(rest if rest > UNCOUNTED_BYTES else 0)

    def _reserve(self, size: int) -> None:
        if size == self._held:
            return
        self._hold(0)
        listener = self._listener
        is_large = self._receiver.is_large_next
        waiting = listener.waiting_large if is_large else listener.waiting
        # No connection overtakes those that wait, or a large frame might wait forever.
        if not waiting and self._memory.has_room(size):
            self._hold(size)
            return
        waiting[self] = None
        self.block(ROOM)
        if not is_large:
            listener.fill_up(self)

    def _hold(self, count: int) -> None:
        self._memory.hold(count, instead_of=self._held)
        self._held = count

    def _wait(self, count: int) -> None:
        self._listener.sending.wait(count, instead_of=self._waiting)
        self._waiting = count

    def _judge_lag(self) -> None:
        """Bound the data that waits for a peer that does not read it (NW10)."""
        waiting = self._transport.get_write_buffer_size()
        self._wait(waiting)
        limits = self._listener.limits
        if waiting > limits.send_bytes_max:
            self.abort(f"{waiting} bytes of replies wait, limit {limits.send_bytes_max}")
        elif waiting > limits.send_bytes_high:
            self.block(SENDING)
