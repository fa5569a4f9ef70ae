"""The polled messages of a consumer, handed out one by one or all at once. No I/O.

Invariants: a message counts as processed when the next one is requested, never before.
"""

from headrace.client.messages import Message, Messages


class PollBuffer:
    """The messages of one poll that the user has not processed yet."""

    def __init__(self, done: dict[int, int]) -> None:
        """Start empty; `done` receives the last processed offset by partition."""
        self._done = done
        self.polled: Messages | None = None  # has messages that were not handed out yet
        self._made: list[Message] | None = None  # created when messages are taken one by one
        self._index = 0  # index of the next message to hand out
        self._handed: Message | None = None  # the message that the user is processing

    def fill(self, polled: Messages) -> None:
        """Store the messages of a poll, at least one; the buffer must be empty."""
        self.polled, self._made, self._index = polled, None, 0

    def drop(self, partition: int | None = None) -> None:
        """Discard all messages, or those of one partition."""
        if self.polled is not None and partition in (None, self.polled.partition):
            self.polled = None

    def find_next(self, partition: int) -> int | None:
        """Return the offset of the next message if it belongs to that partition, else None."""
        if self.polled is None or self.polled.partition != partition:
            return None
        return self.polled[self._index].offset

    def take(self) -> Message:
        """Return the next message; there must be one."""
        assert self.polled is not None
        if self._made is None:
            self._made = list(self.polled)  # all at once: much cheaper than one by one
        message = self._handed = self._made[self._index]
        self._index += 1
        if self._index == len(self._made):
            self.polled = None
        return message

    def take_all(self) -> Messages:
        """Return all messages at once; there must be some.

        Raises:
            ValueError: Some of them were already handed out.
        """
        polled = self.polled
        assert polled is not None
        if self._index:
            raise ValueError("take messages one by one or in batches, not both from one poll")
        self._handed = polled[len(polled) - 1]
        self.polled = None
        return polled

    def finish(self) -> None:
        """Count the message or batch that was handed out last as processed."""
        handed = self._handed
        if handed is not None:
            self._done[handed.partition] = handed.offset
            self._handed = None
