"""The polled messages of a consumer, handed out one by one or all at once. No I/O.

Invariants: a message counts as processed when the next one is requested, never before.
"""

from operator import length_hint
from typing import TYPE_CHECKING

from headrace.client.messages import Message, Messages

if TYPE_CHECKING:
    from collections.abc import Iterator


class PollBuffer:
    """The messages of one poll that the user has not processed yet."""

    def __init__(self, done: dict[int, int]) -> None:
        """Start empty; `done` receives the last processed offset by partition."""
        self._done = done
        self._polled: Messages | None = None
        self._is_split = False  # into messages that are taken one by one
        self._left: Iterator[Message] = iter(())  # those that were not taken yet, if it is split
        self._handed: Message | None = None  # the message that the user is processing

    @property
    def is_empty(self) -> bool:
        """Whether all messages were handed out."""
        return self._polled is None or self._index == len(self._polled)

    def fill(self, polled: Messages) -> None:
        """Store the messages of a poll, at least one; the buffer must be empty."""
        self._polled, self._is_split, self._left = polled, False, iter(())

    def drop(self, partition: int | None = None) -> None:
        """Discard all messages, or those of one partition."""
        if self._polled is not None and partition in (None, self._polled.partition):
            self._polled, self._left = None, iter(())

    def find_next(self, partition: int) -> int | None:
        """Return the offset of the next message if it belongs to that partition, else None."""
        if self._polled is None or self._polled.partition != partition or self.is_empty:
            return None
        return self._polled[self._index].offset

    def take(self) -> Message | None:
        """Return the next message, None if there is none; the last one counts as processed."""
        handed = self._handed
        if handed is not None:
            self._done[handed.partition] = handed.offset
        for message in self._left:
            self._handed = message
            return message
        self._handed = None
        if self._polled is None or self._is_split:
            return None
        # All at once is much cheaper than one by one.
        self._left, self._is_split = iter(list(self._polled)), True
        return self.take()

    def take_all(self) -> Messages | None:
        """Return all messages at once, None if there are none; the last ones count as processed.

        Raises:
            ValueError: Some of them were already handed out.
        """
        self.finish()
        polled = self._polled
        if polled is None or self.is_empty:
            return None
        if self._index:
            raise ValueError("take messages one by one or in batches, not both from one poll")
        self._handed = polled[len(polled) - 1]
        self.drop()
        return polled

    def finish(self) -> None:
        """Count the message or batch that was handed out last as processed."""
        handed = self._handed
        if handed is not None:
            self._done[handed.partition] = handed.offset
            self._handed = None

    @property
    def _index(self) -> int:
        """The index of the next message to hand out."""
        assert self._polled is not None
        return len(self._polled) - length_hint(self._left) if self._is_split else 0
