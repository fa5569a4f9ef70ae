"""The two directions of a lane: a queue of frames to send, and a reader of those that arrive.

```
put -> | frame | frame | frame |  -> one vectored write for many of them
                                     socket
read <- whole frames in their own memory <- | prefix frame | prefix frame | pre
```

Frames below `LARGE_FRAME_BYTES` are copied out of the read buffer, which stays in the cache and
keeps nothing alive; larger ones are read into their own memory.

Invariants: nothing waits: a frame is accepted whole or refused before its first byte (SH-17);
            accepted frames leave whole and in order;
            a size outside the bounds is refused before anything is allocated for it.
"""

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from headrace.base.limits import KIB, MIB
from headrace.base.memory import new_frame
from headrace.ports.network import Buffer
from headrace.wire.bus.prefix import PREFIX_BYTES, decode_prefix

READ_BYTES = 128 * KIB
LARGE_FRAME_BYTES = 64 * KIB
# One call of `read` ends after so many bytes, so that no lane holds up the others.
READ_BYTES_MAX = 4 * MIB
_WRITE_BUFFERS_MAX = 512  # the system takes 1,024
_WRITE_BYTES = MIB  # enough for one write; what follows waits for the next
_NOTHING = bytearray()

assert LARGE_FRAME_BYTES + PREFIX_BYTES <= READ_BYTES


class SendQueue:
    """The frames that wait for the socket, at most `capacity` of them."""

    __slots__ = ("_capacity", "_frames", "_socket")

    def __init__(self, sending: socket.socket, capacity: int) -> None:
        assert capacity > 0
        assert sending.gettimeout() == 0
        self._socket = sending
        self._capacity = capacity
        self._frames: deque[tuple[int, tuple[Buffer, ...]]] = deque()

    def __len__(self) -> int:
        """Return how many frames have not left whole."""
        return len(self._frames)

    @property
    def is_full(self) -> bool:
        """Whether the next frame will be refused."""
        return len(self._frames) >= self._capacity

    def put(self, size: int, parts: tuple[Buffer, ...]) -> bool:
        """Accept the parts of a frame, prefix first, of so many bytes; or refuse it."""
        if len(self._frames) >= self._capacity:
            return False
        self._frames.append((size, parts))
        return True

    def flush(self) -> bool:
        """Write until everything has left or the socket is full; return whether everything has.

        Raises:
            OSError: The other end is closed.
        """
        frames = self._frames
        while frames:
            buffers, total = self._gather()
            try:
                sent = self._socket.sendmsg(buffers, (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            self._forget(sent)
            if sent < total:
                return False
        return True

    def _gather(self) -> tuple[list[Buffer], int]:
        buffers: list[Buffer] = []
        total = 0
        for size, parts in self._frames:
            buffers += parts
            total += size
            if total >= _WRITE_BYTES or len(buffers) >= _WRITE_BUFFERS_MAX:
                break
        return buffers, total

    def _forget(self, sent: int) -> None:
        """Remove what was written; the rest of a frame that has begun stays in front."""
        frames = self._frames
        while sent:
            size, parts = frames.popleft()
            if sent < size:
                frames.appendleft((size - sent, _without(parts, sent)))
                return
            sent -= size

    def clear(self) -> None:
        """Forget all frames: nobody will read them."""
        self._frames.clear()


def _without(parts: tuple[Buffer, ...], count: int) -> tuple[Buffer, ...]:
    """Return the parts without their first `count` bytes."""
    left = list(parts)
    while count >= len(left[0]):
        count -= len(left.pop(0))
    left[0] = memoryview(left[0])[count:]
    return tuple(left)


class LaneReader:
    """Reads one lane; `take` gets the target and the frame of each frame, in order.

    All lanes of a process may share one `buffer`: nothing of it is used after `read`.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_frame",
        "_frame_bytes_max",
        "_rest",
        "_sender",
        "_socket",
        "_take",
        "_target",
        "_view",
    )

    def __init__(
        self,
        receiving: socket.socket,
        buffer: bytearray,
        take: Callable[[int, bytearray], None],
        *,
        sender: int,
        frame_bytes_max: int,
    ) -> None:
        assert receiving.gettimeout() == 0
        assert len(buffer) == READ_BYTES
        self._socket = receiving
        self._buffer = buffer
        self._take = take
        self._sender = sender
        self._frame_bytes_max = frame_bytes_max
        self._rest = _NOTHING  # the beginning of a small frame
        self._frame: bytearray | None = None  # a large one, and how much of it is there
        self._target = 0
        self._filled = 0
        self._view = memoryview(_NOTHING)

    def read(self) -> bool:
        """Read what has arrived, up to a bound; return whether the lane is still open.

        Raises:
            RemoteError: The other end broke the format: the stream is lost.
            OSError: The other end is closed.
        """
        total = 0
        while total < READ_BYTES_MAX:
            try:
                count, room = self._read_once()
            except BlockingIOError:
                return True
            if count < room:
                return count > 0
            total += count
        return True

    def drain(self) -> None:
        """Read all that a closed end has sent."""
        with suppress(OSError):
            while self._read_once()[0]:
                pass

    def _read_once(self) -> tuple[int, int]:
        """Read into the rest of a large frame or the buffer; return how much, and its room."""
        target = self._view[self._filled :] if self._frame is not None else self._lay_rest()
        count = self._socket.recv_into(target)
        if count:
            self._receive(count)
        return count, len(target)

    def _lay_rest(self) -> memoryview:
        kept = len(self._rest)
        self._buffer[:kept] = self._rest
        return memoryview(self._buffer)[kept:]

    def _receive(self, count: int) -> None:
        if self._frame is None:
            self._cut(len(self._rest) + count)
            return
        self._filled += count
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._view = memoryview(_NOTHING)
            self._take(self._target, frame)

    def _cut(self, end: int) -> None:
        """Take the whole frames of the buffer; keep the beginning of the next one."""
        buffer, take = self._buffer, self._take
        position = 0
        self._rest = _NOTHING
        while end - position >= PREFIX_BYTES:
            size, target = decode_prefix(
                buffer, position, sender=self._sender, frame_bytes_max=self._frame_bytes_max
            )
            start = position + PREFIX_BYTES
            if start + size > end:
                if size >= LARGE_FRAME_BYTES:
                    self._begin_large(size, target, buffer[start:end])
                    return
                break
            take(target, buffer[start : start + size])
            position = start + size
        if position < end:
            self._rest = buffer[position:end]

    def _begin_large(self, size: int, target: int, begun: bytearray) -> None:
        self._frame = new_frame(size)
        self._target = target
        self._view = memoryview(self._frame)
        self._filled = len(begun)
        self._view[: self._filled] = begun
