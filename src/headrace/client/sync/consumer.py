"""A consumer that is iterated over: it blocks until the next message is there."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from headrace.client.consume.reader import Reader
from headrace.client.endings import Ends
from headrace.client.errors import ClientClosed, Unreadable
from headrace.client.faces import Blocks
from headrace.client.messages import Message, Messages

R = TypeVar("R")


class Consumer(Iterator[Message], Ends):
    """Gives the messages of a topic, one after the other, for as long as it is iterated over.

    A message counts as done when the next one is asked for, or when the `with` block ends without
    an error; what is done is stored as `commit` says. A consumer belongs to one thread.

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
        self, client: Blocks, reader: Reader, on_close: Callable[["Consumer"], None]
    ) -> None:
        self._client = client
        self._reader = reader
        self._on_close = on_close
        self._is_closed = False

    @property
    def lost_count(self) -> int:
        """How many messages were gone when they were to be read."""
        return self._reader.lost_count

    def __next__(self) -> Message:
        message = self._next(self._reader.take)
        if message is None:
            raise StopIteration
        return message

    def batches(self) -> Iterator[Messages]:
        """Give messages poll by poll: for those who work with many at once, or with columns.

        A batch counts as done when the next one is asked for.
        """
        while (messages := self._next(self._reader.take_batch)) is not None:
            yield messages

    def commit(self, message: Message | None = None) -> None:
        """Store what is done, the message handed out last included, or up to the one given.

        Raises:
            NotOwned: The partition was dealt to another member of the group.
        """
        if message is None:
            self._reader.finish_handed()
        self._client.follow(self._reader.store(message))

    def skip(self, damaged: Unreadable) -> None:
        """Go past the messages that an `Unreadable` has named; they are not read."""
        self._reader.skip(damaged)

    def close(self, *, is_clean: bool = True) -> None:
        """Store what is done, unless that is up to you, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        self._on_close(self)
        self._client.follow(self._reader.end(is_clean=is_clean))

    def _end(self, *, is_clean: bool) -> None:
        self.close(is_clean=is_clean)

    def _next(self, take: Callable[[], R | None]) -> R | None:
        """Give what is next, or None when nothing came in time."""
        while True:
            if self._is_closed:
                raise ClientClosed("the consumer is closed")
            taken = take()
            if taken is not None:
                return taken
            if not self._client.follow(self._reader.work()):
                return None
