"""What was polled and is handed out, one by one or all at once, and what of it is done. No I/O.

Invariants: a message counts as done when the next one is asked for, never before.
"""

from headrace.client.messages import Message, Messages


class Handing:
    """The messages of one poll on their way to their user."""

    def __init__(self, done: dict[int, int]) -> None:
        """Begin with none; `done` is told the last offset done with, by partition."""
        self._done = done
        self.polled: Messages | None = None  # of which some was not handed out yet
        self._made: list[Message] | None = None  # once somebody wants them singly
        self._index = 0  # of the next message to hand out
        self._handed: Message | None = None  # the one that its user works on

    def fill(self, polled: Messages) -> None:
        """Take the messages of a poll, at least one, when there are no others."""
        self.polled, self._made, self._index = polled, None, 0

    def drop(self, partition: int | None = None) -> None:
        """Hand no more out, or no more of one partition."""
        if self.polled is not None and partition in (None, self.polled.partition):
            self.polled = None

    def find_next(self, partition: int) -> int | None:
        """Give the offset of the next message to hand out if it is of that partition."""
        if self.polled is None or self.polled.partition != partition:
            return None
        return self.polled[self._index].offset

    def take(self) -> Message:
        """Give the next message; there must be one."""
        assert self.polled is not None
        if self._made is None:
            self._made = list(self.polled)  # all at once: much cheaper than one by one
        message = self._handed = self._made[self._index]
        self._index += 1
        if self._index == len(self._made):
            self.polled = None
        return message

    def take_all(self) -> Messages:
        """Give all that is here at once; there must be something.

        Raises:
            ValueError: Some of it was handed out before.
        """
        polled = self.polled
        assert polled is not None
        if self._index:
            raise ValueError("take messages one by one or in batches, not both from one poll")
        self._handed = polled[len(polled) - 1]
        self.polled = None
        return polled

    def finish(self) -> None:
        """Count what was handed out last as done."""
        handed = self._handed
        if handed is not None:
            self._done[handed.partition] = handed.offset
            self._handed = None
