"""The positions of a consumer, its processed offsets, and lost messages. No I/O.

It polls by offset, so it notices when the server skips messages (D12).

Invariants: a position moves only past messages to be handed out, or past a range that was
            reported as lost.
"""

from collections.abc import Callable

from headrace.client.calls.names import TopicName, join_topic
from headrace.client.consume.options import OnLoss
from headrace.client.errors import DataLost, OffsetsReset
from headrace.client.messages import Messages
from headrace.wire.identifiers import Strategy

RESET_SECONDS = 5.0  # a lagging replica also ends early, but not for that long


class Positions:
    """By partition: the next offset (`upcoming`), and processed but unstored offsets (`done`)."""

    def __init__(self, topic: TopicName, on_loss: OnLoss, now: Callable[[], float]) -> None:
        self.upcoming: dict[int, int | Strategy] = {}
        self.done: dict[int, int] = {}
        self.lost_count = 0
        self._topic = topic
        self._on_loss = on_loss
        self._now = now
        self._short_since: dict[int, float] = {}  # since when a partition ends too early

    def forget(self, partition: int) -> None:
        """Remove the position in a partition; processed offsets are kept."""
        self.upcoming.pop(partition, None)
        self._short_since.pop(partition, None)

    def resume(self, partition: int, stored: int | None) -> int | None:
        """Return the position after processed and stored offsets, None if there are neither."""
        done, last = self.done.get(partition, -1), -1 if stored is None else stored
        if done <= last:
            self.done.pop(partition, None)  # Never store less than others have.
        return max(done, last) + 1 if max(done, last) >= 0 else None

    def pass_over(self, partition: int, position: int | Strategy, polled: Messages) -> Messages:
        """Return the polled messages up to the first gap, and move the position past them.

        Raises:
            DataLost: There is a gap before them; the position is then after the gap.
        """
        self._short_since.pop(partition, None)
        first = polled.first_offset
        if isinstance(position, int) and first > position:
            self.upcoming[partition] = first
            self._lose(partition, first=position, end=first)
        messages = polled.first(polled.run_length())
        self.upcoming[partition] = messages.last_offset + 1
        return messages

    def meet_end(self, partition: int, position: int | Strategy, last: int) -> None:
        """Restart at the beginning if the partition has ended before the position for a while.

        Raises:
            OffsetsReset: It has; the position is then the beginning.
        """
        if not isinstance(position, int) or position <= last + 1:
            self._short_since.pop(partition, None)
            return
        since = self._short_since.setdefault(partition, self._now())
        if self._now() - since < RESET_SECONDS:
            return
        del self._short_since[partition]
        self.upcoming[partition] = 0
        self.done.pop(partition, None)
        if self._on_loss == "raise":
            topic = join_topic(self._topic)
            raise OffsetsReset(topic, partition, position=position, last=last)

    def _lose(self, partition: int, *, first: int, end: int) -> None:
        self.lost_count += end - first
        if self._on_loss == "raise":
            topic = join_topic(self._topic)
            raise DataLost(topic, partition, first=first, end=end, resume=end)
