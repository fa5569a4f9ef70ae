"""A producer for asyncio: a task sends the batches in order."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.client.base_client import AsyncCaller
from headrace.client.calls.messages import Sent
from headrace.client.calls.names import TopicName, join_topic
from headrace.client.closing import AsyncClosable
from headrace.client.errors import BufferFull, ClientClosed, HeadraceError
from headrace.client.messages import encode_headers, encode_value
from headrace.client.produce import unclosed
from headrace.client.produce.batching import (
    Batch,
    Batcher,
    Delivery,
    Place,
    size_of,
)
from headrace.client.produce.options import ProducerSettings
from headrace.client.produce.pieces import cut_values
from headrace.client.produce.routing import Router
from headrace.wire.fields import FieldValue

if TYPE_CHECKING:
    from headrace.client.session.call import Call


class AsyncDelivery(Delivery):
    """The outcome of one message; `await` it."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, Place]:
        return self._wait().__await__()

    async def _wait(self) -> Place:
        return self.place_in(await asyncio.wrap_future(self.future))


class AsyncProducer(AsyncClosable, unclosed.FlushedAtExit):
    """Sends messages to one topic in batches, in the order of the calls.

    A batch that is sent again after a lost connection is applied once. Use it in an `async with`
    block: the end of the block waits until everything is confirmed, and raises the first failure.

    ```python
    async with client.producer("shop/orders", linger="5 ms") as producer:
        delivery = await producer.send("one order")
    partition, offset = await delivery
    ```
    """

    def __init__(
        self,
        client: AsyncCaller,
        topic: TopicName,
        settings: ProducerSettings,
        on_close: Callable[["AsyncProducer"], None],
    ) -> None:
        self._batcher: Batcher[AsyncDelivery]
        super().__init__(topic, Batcher(settings, Router(topic), AsyncDelivery))
        self._client = client
        self._on_close = on_close
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sending: Batch | None = None
        self._call: Call[Sent] | None = None  # of the batch being sent
        self._is_closed = False

    @property
    def confirmed_count(self) -> int:
        """How many messages the server has confirmed."""
        return self._batcher.confirmed_count

    async def send(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, FieldValue] | None = None,
    ) -> AsyncDelivery:
        """Buffer a message to be sent; waits only while the buffer is full.

        Messages with the same key go to one partition, in order; the key itself is not sent.

        Raises:
            BufferFull: There was no room in time; the message was not accepted.
            ValueError: The message is empty or too large.
        """
        if key is None and not headers and not self._batcher.ready:
            delivery = self._batcher.add_plain(value)
            if delivery is not None:
                return delivery
        payload, encoded = encode_value(value), encode_headers(headers)
        self._check_open()
        if self._batcher.must_ask(key):
            await self._client.follow(self._batcher.router.refresh())
        size = size_of(payload, encoded)
        if not self._batcher.has_room(size):
            await self._wait_room(size)
        self._check_open()
        delivery = self._batcher.add(payload, encoded, key)
        self._start()
        if delivery.index == 0 or self._batcher.ready:
            self._has_work.set()
            await asyncio.sleep(0)  # A loop of sends must not keep the task from its work.
        return delivery

    async def send_many(
        self,
        values: Iterable[bytes | str],
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """Buffer many messages that share key and headers: much cheaper than one by one.

        Accepts any iterable, and holds no more at a time than the buffer and 1000 messages or 1
        MiB. Failures are raised by `flush` or `close`.

        Raises:
            BufferFull: There was no room in time; the first messages may have been accepted.
            ValueError: A message is empty or too large. Of a sequence nothing was accepted then, of
                another iterable the messages before it were.
        """
        encoded = encode_headers(headers)
        for piece in cut_values(values):
            taken = 0
            while taken < len(piece):
                taken += await self._take_some(piece, taken, encoded, key)
                await asyncio.sleep(0)  # A loop of sends must not keep the task from its work.

    async def _take_some(
        self, piece: list[bytes], first: int, headers: bytes, key: bytes | str | None
    ) -> int:
        self._check_open()
        if self._batcher.must_ask(key):
            await self._client.follow(self._batcher.router.refresh())
        size = size_of(piece[first], headers)
        if not self._batcher.has_room(size):
            await self._wait_room(size)
        self._check_open()
        taken = self._batcher.add_many(piece, first, headers, key)
        self._start()
        self._has_work.set()
        return taken

    def check(self) -> None:
        """Raise the first failure since the last flush or check, without waiting.

        Raises:
            HeadraceError: Something that was sent could not be confirmed.
        """
        self._batcher.raise_failure()

    async def flush(self) -> None:
        """Send buffered messages, and wait until all earlier messages are confirmed.

        Raises:
            HeadraceError: The first failure since the last flush.
        """
        self._batcher.seal_all()
        self._has_work.set()
        for future in self._batcher.unsettled():
            settled = asyncio.wrap_future(future)
            await asyncio.wait([settled])
            settled.exception()
        self._batcher.raise_failure()

    async def close(self) -> None:
        """Flush, and accept no more messages; raises the first failure."""
        if self._is_closed:
            return
        self._stop_taking()
        if self._task is not None:
            await self._task
        self._on_close(self)
        self._batcher.raise_failure()

    async def _end(self, *, is_clean: bool) -> None:
        await self.close()

    def _stop_taking(self) -> None:
        self._is_closed = True
        self._batcher.seal_all()
        self._has_work.set()
        self._has_room.set()

    def _begin_leaving(self) -> None:
        if self._task is not None and self._task.get_loop().is_running():  # in another thread
            self._task.get_loop().call_soon_threadsafe(self._stop_taking)

    def _finish_leaving(self, seconds: float) -> None:
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            return
        loop = self._task.get_loop()
        if not loop.is_running():
            self._stop_taking()
            loop.run_until_complete(asyncio.wait([self._task], timeout=seconds))
            return
        waiting = asyncio.run_coroutine_threadsafe(asyncio.wait([self._task]), loop)
        with suppress(TimeoutError):
            waiting.result(seconds)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(f"the producer of {join_topic(self._topic)!r} is closed")

    async def _wait_room(self, size: int) -> None:
        seconds = self._batcher.settings.block_seconds
        try:
            async with asyncio.timeout(seconds):
                while not self._is_closed and not self._batcher.has_room(size):
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            raise BufferFull(
                f"{self._batcher.buffered_bytes} bytes wait for {join_topic(self._topic)!r},"
                f" and none was confirmed within {seconds:g} s"
            ) from None

    # The task.

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            await self._work()
        except asyncio.CancelledError:
            # The loop is ending: it cancels its tasks and waits for them.
            await self._work_to_the_end()
            raise
        finally:
            # Only a bug or a loop that ended leaves batches here: no waiter must hang.
            self._is_closed = True
            self._batcher.fail_all(ClientClosed("the producer's task has ended"))
            self._has_room.set()

    async def _work(self) -> None:
        while not (self._is_closed and self._batcher.is_empty and self._sending is None):
            if self._sending is None:
                self._sending = self._batcher.take()
            if self._sending is None:
                await self._wait_work()
                continue
            outcome = await self._deliver(self._sending)
            self._batcher.settle(self._sending, outcome, is_closing=self._is_closed)
            self._sending = self._call = None
            self._has_room.set()

    async def _work_to_the_end(self) -> None:
        self._stop_taking()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(unclosed.SECONDS_MAX):
                    await self._work()
        finally:
            self._report()

    async def _wait_work(self) -> None:
        self._has_work.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._batcher.seconds_until_due()):
                await self._has_work.wait()

    async def _deliver(self, batch: Batch) -> Sent | HeadraceError:
        try:
            if self._call is None:
                if self._batcher.router.is_known and self._batcher.router.is_stale:
                    await self._client.follow(self._batcher.router.refresh())
                self._call = self._client.number(batch.make_call(self._topic))
            return await self._client.ask(self._call)
        except HeadraceError as error:
            return error
