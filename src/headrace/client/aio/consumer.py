"""A consumer for `async for`."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from headrace.client.consume.reader import Reader
from headrace.client.endings import EndsAsync
from headrace.client.errors import ClientClosed, Unreadable
from headrace.client.faces import Awaits
from headrace.client.messages import Message, Messages

R = TypeVar("R")


class AsyncConsumer(AsyncIterator[Message], EndsAsync):
    """Gives the messages of a topic, one after the other, for as long as it is iterated over.

    A message counts as done when the next one is asked for, or when the `async with` block ends
    without an error; what is done is stored as `commit` says.

    ```python
    async with client.consumer("shop/orders", group="billing") as consumer:
        async for message in consumer:
            print(message.offset, message.text)
    ```
    """

    def __init__(
        self, client: Awaits, reader: Reader, on_close: Callable[["AsyncConsumer"], None]
    ) -> None:
        self._client = client
        self._reader = reader
        self._on_close = on_close
        self._is_closed = False

    @property
    def lost_count(self) -> int:
        """How many messages were gone when they were to be read."""
        return self._reader.lost_count

    async def __anext__(self) -> Message:
        message = await self._next(self._reader.take)
        if message is None:
            raise StopAsyncIteration
        return message

    async def batches(self) -> AsyncIterator[Messages]:
        """Give messages poll by poll: for those who work with many at once, or with columns.

        A batch counts as done when the next one is asked for.
        """
        while (messages := await self._next(self._reader.take_batch)) is not None:
            yield messages

    async def commit(self, message: Message | None = None) -> None:
        """Store what is done, the message handed out last included, or up to the one given.

        Raises:
            NotOwned: The partition was dealt to another member of the group.
        """
        if message is None:
            self._reader.finish_handed()
        await self._client.follow(self._reader.store(message))

    def skip(self, damaged: Unreadable) -> None:
        """Go past the messages that an `Unreadable` has named; they are not read."""
        self._reader.skip(damaged)

    async def close(self, *, is_clean: bool = True) -> None:
        """Store what is done, unless that is up to you, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        self._on_close(self)
        await self._client.follow(self._reader.end(is_clean=is_clean))

    async def _end(self, *, is_clean: bool) -> None:
        await self.close(is_clean=is_clean)

    async def _next(self, take: Callable[[], R | None]) -> R | None:
        """Give what is next, or None when nothing came in time."""
        while True:
            if self._is_closed:
                raise ClientClosed("the consumer is closed")
            taken = take()
            if taken is not None:
                return taken
            if not await self._client.follow(self._reader.work()):
                return None
