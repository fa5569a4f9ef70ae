"""Chooses the partition of a batch, once, so that every retry goes to the same one.

The server could choose too, but it would choose again for a batch that it receives a second time,
and only the partition that stored a batch can recognise it (O4.2).
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

COUNT_SECONDS_MAX = 30.0  # a new partition gets messages after at most this time


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
        """Whether the number of partitions was ever requested."""
        return self._count > 0

    @property
    def is_stale(self) -> bool:
        """Whether the number of partitions is unknown or too old."""
        return not self._count or self._now() - self._asked >= COUNT_SECONDS_MAX

    def refresh(self) -> Flow[None]:
        """Request the number of partitions.

        Raises:
            NotFound: The topic does not exist, or has no partition.
        """
        found = yield from find_topic(self._topic)
        self._asked = self._now()
        self._count = len(found.partitions)
        if not found.partitions:
            raise refused(Code.NO_PARTITIONS, f"send to {join_topic(self._topic)!r}")

    def by_key(self, key: bytes | str) -> int:
        """Return the partition of a key; equal keys get the same partition in every client.

        Raises:
            ValueError: The key is empty or too long.
        """
        data = key.encode() if isinstance(key, str) else key
        if not 1 <= len(data) <= MESSAGES_KEY_BYTES_MAX:
            raise ValueError(f"key of {len(data)} bytes, allowed 1 to {MESSAGES_KEY_BYTES_MAX}")
        assert self._count
        return xxh32(data) % self._count

    def in_turn(self) -> int:
        """Return the current partition of the round robin; it changes with `advance`."""
        assert self._count
        return self._turn % self._count

    def advance(self) -> None:
        """Move the round robin to the next partition."""
        self._turn += 1
