"""Carries out a session's effects on an asyncio loop."""

import asyncio
from typing import cast

from headrace.client.steps import Effect, Open, Pause, Receive, Transmit


class _Wire(asyncio.Protocol):
    """One connection: what came in, and who waits for it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._is_closed = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._is_writable = asyncio.Event()
        self._is_writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # What a loop gives for TCP can write, though uvloop's is no subclass that says so.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._error = exc
        self._changed.set()
        self._is_writable.set()

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    async def transmit(self, header: bytes, body: bytes) -> None:
        self._check()
        assert self.transport is not None
        self.transport.writelines((header, body))
        await self._is_writable.wait()
        self._check()

    async def receive(self) -> bytes:
        """Give what came in; nothing says that the other side closed."""
        while not self._pieces and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()
        if not self._pieces and self._error is not None:
            raise ConnectionError(str(self._error)) from self._error
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    def _check(self) -> None:
        if self._is_closed:
            raise ConnectionError("the connection is closed")


class AioLink:
    """One connection at a time."""

    def __init__(self) -> None:
        self._wire: _Wire | None = None

    async def carry_out(self, effect: Effect) -> bytes:
        """Do what the session asks for; give what was received, if that was it.

        Raises:
            OSError: The connection is of no more use.
        """
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
            return b""
        async with asyncio.timeout(effect.seconds_max):
            if isinstance(effect, Open):
                await self._open(effect)
            elif isinstance(effect, Transmit):
                await self._connected().transmit(effect.header, effect.body)
            else:
                assert isinstance(effect, Receive)
                return await self._connected().receive()
        return b""

    def close(self) -> None:
        """Let the connection go, if there is one."""
        if self._wire is not None:
            if self._wire.transport is not None:
                self._wire.transport.close()
            self._wire = None

    async def _open(self, effect: Open) -> None:
        self.close()
        loop = asyncio.get_running_loop()
        # asyncio sets TCP_NODELAY on its connections by itself.
        _, self._wire = await loop.create_connection(_Wire, *effect.endpoint)

    def _connected(self) -> _Wire:
        if self._wire is None:
            raise ConnectionError("not connected")
        return self._wire
