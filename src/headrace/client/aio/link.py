"""Carries out a session's effects on an asyncio loop."""

import asyncio
from typing import cast

from headrace.base.limits import KIB
from headrace.client.session.steps import JOIN_BYTES_MAX, Effect, Open, Pause, Receive, Transmit

SPARE_BYTES = 4 * KIB


class _Wire(asyncio.BufferedProtocol):
    """One connection: the buffer for received bytes, and the task that waits for them.

    Bytes that arrive while nobody waits, such as an eviction, go to a small spare buffer; when that
    is full too, reading pauses.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._into: memoryview | None = None
        self._wanted = 0
        self._filled = 0
        self._spare = bytearray(SPARE_BYTES)
        self._spare_filled = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self._error: Exception | None = None
        self._is_writable = asyncio.Event()
        self._is_writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A loop's transport for TCP can write, though uvloop's class does not declare it.
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        if self._into is not None:
            return self._into[self._filled :]
        return memoryview(self._spare)[self._spare_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._into is None:
            self._spare_filled += nbytes
            if self._spare_filled == SPARE_BYTES:
                assert self.transport is not None
                self.transport.pause_reading()
            return
        self._filled += nbytes
        if self._filled >= self._wanted:
            self._into = None
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._error = exc
        self._wake()
        self._is_writable.set()

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    def transmit_nowait(self, head: bytes, batch: bytes) -> bool:
        """Send bytes; return whether more can be sent at once."""
        self._check()
        assert self.transport is not None
        if len(batch) <= JOIN_BYTES_MAX:
            self.transport.write(head + batch)
        else:
            self.transport.write(head)
            self.transport.write(batch)
        return self._is_writable.is_set()

    async def wait_writable(self) -> None:
        await self._is_writable.wait()
        self._check()

    async def receive(self, into: memoryview, wanted: int) -> int:
        """Wait for bytes; return the number received, 0 if the peer closed the connection."""
        if self._spare_filled:
            return self._empty_spare(into)
        self._into, self._wanted, self._filled = into, wanted, 0
        if not self._is_closed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = self._into = None
        if not self._filled and self._error is not None:
            raise ConnectionError(str(self._error)) from self._error
        return self._filled

    def _empty_spare(self, into: memoryview) -> int:
        count = min(self._spare_filled, len(into))
        into[:count] = memoryview(self._spare)[:count]
        self._spare[: self._spare_filled - count] = self._spare[count : self._spare_filled]
        self._spare_filled -= count
        if self.transport is not None and not self._is_closed:
            self.transport.resume_reading()
        return count

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check(self) -> None:
        if self._is_closed:
            raise ConnectionError("the connection is closed")


class AioLink:
    """One connection at a time."""

    def __init__(self) -> None:
        self._wire: _Wire | None = None

    async def carry_out(self, effect: Effect) -> int:
        """Carry out an effect; return the number of bytes received, if it was `Receive`.

        Raises:
            OSError: The connection cannot be used any more.
        """
        if isinstance(effect, Receive):
            async with asyncio.timeout(effect.seconds_max):
                return await self._connected().receive(effect.into, effect.bytes_min)
        if isinstance(effect, Transmit):
            await self._transmit(effect)
        elif isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
        else:
            async with asyncio.timeout(effect.seconds_max):
                await self._open(effect)
        return 0

    def close(self) -> None:
        """Close the connection, if there is one, and discard unsent bytes.

        Waiting for them would keep the connection open as long as the peer likes; every request
        that matters has been answered.
        """
        if self._wire is not None:
            if self._wire.transport is not None:
                self._wire.transport.abort()
            self._wire = None

    async def _open(self, effect: Open) -> None:
        self.close()
        loop = asyncio.get_running_loop()
        # asyncio sets TCP_NODELAY on its connections by itself.
        _, self._wire = await loop.create_connection(_Wire, *effect.endpoint)

    async def _transmit(self, effect: Transmit) -> None:
        wire = self._connected()
        if wire.transmit_nowait(effect.head, effect.batch):
            return  # The usual case needs no timer.
        async with asyncio.timeout(effect.seconds_max):
            await wire.wait_writable()

    def _connected(self) -> _Wire:
        if self._wire is None:
            raise ConnectionError("not connected")
        return self._wire
