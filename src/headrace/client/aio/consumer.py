"""A consumer for `async for`."""

from collections.abc import AsyncIterator, Callable
from typing import NoReturn, TypeVar

from headrace.client.base_client import AsyncCaller
from headrace.client.closing import AsyncClosable
from headrace.client.consume.buffer import PollBuffer
from headrace.client.consume.reader import Reader
from headrace.client.errors import ClientClosed, Unreadable
from headrace.client.messages import Message, Messages

R = TypeVar("R")


class AsyncConsumer(AsyncIterator[Message], AsyncClosable):
    """Iterates over the messages of a topic.

    A message counts as processed when the next one is requested, or when the `async with` block
    ends without an error; the offsets of processed messages are stored as `commit` says.

    ```python
    async with client.consumer("shop/orders", group="billing") as consumer:
        async for message in consumer:
            print(message.offset, message.text)
    ```
    """

    def __init__(
        self, client: AsyncCaller, reader: Reader, on_close: Callable[["AsyncConsumer"], None]
    ) -> None:
        self._client = client
        self._reader = reader
        self._on_close = on_close
        self._is_closed = False
        self._quick = reader.quick or PollBuffer({})  # or one that stays empty
        self._take: Callable[[], Message | None] = reader.take

    @property
    def lost_count(self) -> int:
        """The number of messages that were gone before they could be read."""
        return self._reader.lost_count

    async def __anext__(self) -> Message:
        for message in self._quick.left:
            return message
        taken = self._take()
        if taken is None:
            taken = await self._wait(self._take)
        if taken is None:
            raise StopAsyncIteration
        return taken

    async def batches(self) -> AsyncIterator[Messages]:
        """Yield messages poll by poll: to process many at once, or to use their columns.

        A batch counts as processed when the next one is requested.
        """
        take = self._reader.take_batch
        while not self._is_closed:
            messages = take()
            if messages is None:
                messages = await self._wait(take)
            if messages is None:
                return
            yield messages
        self._refuse()

    async def commit(self, message: Message | None = None) -> None:
        """Store the offsets of all messages handed out so far, or that of the given message.

        Raises:
            NotOwned: The partition was assigned to another member of the group.
        """
        if message is None:
            self._reader.finish_handed()
        await self._client.follow(self._reader.store(message))

    def skip(self, damaged: Unreadable) -> None:
        """Skip the messages that an `Unreadable` error names."""
        self._reader.skip(damaged)

    async def close(self, *, is_clean: bool = True) -> None:
        """Store processed offsets, unless commits are manual, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        self._quick = PollBuffer({})
        self._take = self._refuse
        self._on_close(self)
        await self._client.follow(self._reader.end(is_clean=is_clean))

    async def _end(self, *, is_clean: bool) -> None:
        await self.close(is_clean=is_clean)

    async def _wait(self, take: Callable[[], R | None]) -> R | None:
        """Poll and return the next message or batch, or None if none came in time."""
        while await self._client.follow(self._reader.work()):
            if self._is_closed:
                self._refuse()
            taken = take()
            if taken is not None:
                return taken
        return None

    def _refuse(self) -> NoReturn:
        raise ClientClosed("the consumer is closed")
