"""A consumer to iterate over: it blocks until the next message arrives."""

from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from headrace.client.base_client import BlockingCaller
from headrace.client.closing import Closable
from headrace.client.consume.buffer import PollBuffer
from headrace.client.consume.reader import Reader
from headrace.client.errors import ClientClosed, Unreadable
from headrace.client.messages import Message, Messages

R = TypeVar("R")


class Consumer(Iterator[Message], Closable):
    """Iterates over the messages of a topic.

    A message counts as processed when the next one is requested, or when the `with` block ends
    without an error; the offsets of processed messages are stored as `commit` says. Use a consumer
    in one thread only.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.send("shop/orders", ["one", "two"])
    >>> with client.consumer("shop/orders", name="report", wait=0) as consumer:
    ...     for message in consumer:
    ...         print(message.offset, message.text)
    0 one
    1 two
    >>> client.get_offset("shop/orders", 0, consumer="report").stored_offset
    1
    """

    def __init__(
        self, client: BlockingCaller, reader: Reader, on_close: Callable[["Consumer"], None]
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

    def __next__(self) -> Message:
        for message in self._quick.left:
            return message
        taken = self._take()
        if taken is None:
            taken = self._wait(self._take)
        if taken is None:
            raise StopIteration
        return taken

    def batches(self) -> Iterator[Messages]:
        """Yield messages poll by poll: to process many at once, or to use their columns.

        A batch counts as processed when the next one is requested.
        """
        take = self._reader.take_batch
        while not self._is_closed:
            messages = take()
            if messages is None:
                messages = self._wait(take)
            if messages is None:
                return
            yield messages
        self._refuse()

    def commit(self, message: Message | None = None) -> None:
        """Store the offsets of all messages handed out so far, or that of the given message.

        Raises:
            NotOwned: The partition was assigned to another member of the group.
        """
        if message is None:
            self._reader.finish_handed()
        self._client.follow(self._reader.store(message))

    def skip(self, damaged: Unreadable) -> None:
        """Skip the messages that an `Unreadable` error names."""
        self._reader.skip(damaged)

    def close(self, *, is_clean: bool = True) -> None:
        """Store processed offsets, unless commits are manual, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        self._quick = PollBuffer({})
        self._take = self._refuse
        self._on_close(self)
        self._client.follow(self._reader.end(is_clean=is_clean))

    def _end(self, *, is_clean: bool) -> None:
        self.close(is_clean=is_clean)

    def _wait(self, take: Callable[[], R | None]) -> R | None:
        """Poll and return the next message or batch, or None if none came in time."""
        while self._client.follow(self._reader.work()):
            if self._is_closed:
                self._refuse()
            taken = take()
            if taken is not None:
                return taken
        return None

    def _refuse(self) -> NoReturn:
        raise ClientClosed("the consumer is closed")
