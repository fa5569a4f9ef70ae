"""Which partition a batch goes to: chosen here, once, so that every retry goes there too.

The server could choose as well, but it would choose anew for a batch that it sees a second time,
and only the partition that has a batch knows that it has it (O4.2).
"""

import time
from collections.abc import Callable

from headrace.base.checksum import xxh32
from headrace.base.limits import MESSAGES_KEY_BYTES_MAX
from headrace.client.calls.find_topic import find_topic
from headrace.client.calls.names import TopicName, join_topic
from headrace.client.errors import refused
from headrace.client.session.call import Flow
from headrace.wire.errors import Code

COUNT_SECONDS_MAX = 30.0  # a new partition gets messages after that long


class Router:
    """Chooses among the partitions of one topic."""

    def __init__(self, topic: TopicName, now: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._now = now
        self._count = 0
        self._asked = 0.0
        self._turn = -1

    @property
    def is_known(self) -> bool:
        """Whether the number of partitions was asked for at all."""
        return self._count > 0

    @property
    def is_stale(self) -> bool:
        """Whether the number of partitions is unknown, or was asked for long ago."""
        return not self._count or self._now() - self._asked >= COUNT_SECONDS_MAX

    def refresh(self) -> Flow[None]:
        """Ask how many partitions there are.

        Raises:
            NotFound: The topic is gone, or has no partition.
        """
        found = yield from find_topic(self._topic)
        self._asked = self._now()
        self._count = len(found.partitions)
        if not found.partitions:
            raise refused(Code.NO_PARTITIONS, f"send to {join_topic(self._topic)!r}")

    def by_key(self, key: bytes | str) -> int:
        """Give the partition of a key; equal keys go to one, as with every client.

        Raises:
            ValueError: The key is empty or too long.
        """
        data = key.encode() if isinstance(key, str) else key
        if not 1 <= len(data) <= MESSAGES_KEY_BYTES_MAX:
            raise ValueError(f"key of {len(data)} bytes, allowed 1 to {MESSAGES_KEY_BYTES_MAX}")
        assert self._count
        return xxh32(data) % self._count

    def in_turn(self) -> int:
        """Give the partition whose turn it is; it stays the same until `advance`."""
        assert self._count
        return self._turn % self._count

    def advance(self) -> None:
        """Have the next partition take its turn."""
        self._turn += 1
