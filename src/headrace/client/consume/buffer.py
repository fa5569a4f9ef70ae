"""The polled messages of a consumer, handed out one by one or all at once. No I/O.

```
 made   0 1 2 3 4 5 6 7
            │ │ └ left: those that were not taken yet
            │ └ handed out last: the user is processing it
            └ counted in `done`, with `count` at the latest
```

Taking a message is one step of an iterator, so that it costs no more. What is processed follows
from how far that iterator is, and is written down when somebody needs it.

Invariants: a message counts as processed when the next one is requested, never before.
"""

from collections.abc import Iterator
from operator import length_hint

from headrace.client.messages import Message, Messages

_NOTHING: Iterator[Message] = iter(())


class PollBuffer:
    """The messages of one poll that the user has not processed yet."""

    def __init__(self, done: dict[int, int]) -> None:
        """Start empty; `done` receives the last processed offset by partition."""
        self._done = done
        self._polled: Messages | None = None  # not split into messages yet
        self._made: list[Message] = []
        self.left: Iterator[Message] = _NOTHING
        self._counted = 0  # how many of `made` were counted as processed

    @property
    def is_empty(self) -> bool:
        """Whether all messages were handed out."""
        is_taken = self.left is _NOTHING or not length_hint(self.left)
        return self._polled is None and is_taken

    def fill(self, polled: Messages) -> None:
        """Store the messages of a poll, at least one; the buffer must be empty."""
        self._polled = polled

    def drop(self, partition: int | None = None) -> None:
        """Discard all messages, or those of one partition, but not what was handed out."""
        if self._polled is not None and partition in (None, self._polled.partition):
            self._polled = None
        if self._made and partition in (None, self._made[0].partition):
            self._made, self.left = self._made[: self._taken], _NOTHING

    def find_next(self, partition: int) -> int | None:
        """Return the offset of the next message if it belongs to that partition, else None."""
        waiting = self._polled or self._made[self._taken :]
        if not len(waiting) or waiting[0].partition != partition:
            return None
        return waiting[0].offset

    def take(self) -> Message | None:
        """Return the next message, None if there is none; the last one counts as processed."""
        for message in self.left:
            return message
        self._count(len(self._made))
        if self._polled is None:
            return None
        made = list(self._polled)  # All at once is much cheaper than one by one.
        self._polled, self._counted = None, 0
        self._made, self.left = made, iter(made)
        return next(self.left)

    def take_all(self) -> Messages | None:
        """Return all messages at once, None if there are none; `finish` comes before.

        Raises:
            ValueError: Some of them were already handed out.
        """
        if self.left is not _NOTHING and length_hint(self.left):
            raise ValueError("take messages one by one or in batches, not both from one poll")
        polled = self._polled
        if polled is not None:
            self._polled, self._counted = None, 0
            self._made, self.left = [polled[-1]], _NOTHING
        return polled

    def count(self) -> None:
        """Count all but the message or batch that was handed out last as processed."""
        self._count(self._taken - 1)

    def finish(self) -> None:
        """Count the message or batch that was handed out last as processed, too."""
        if self._counted < len(self._made):
            self._count(self._taken)

    @property
    def _taken(self) -> int:
        return len(self._made) - length_hint(self.left)

    def _count(self, processed: int) -> None:
        if processed > self._counted:
            last = self._made[processed - 1]
            self._done[last.partition] = last.offset
            self._counted = processed
