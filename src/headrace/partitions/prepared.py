"""What a primary has given out and not applied yet: the next offset depends on it (O3.1).

Flow: replicate.
"""

from headrace.partitions.log import PartitionLog


class Prepared:
    """The end of the log as it will be when every prepared op is applied."""

    __slots__ = ("generation", "newest_stamp", "next_offset", "ops_count", "stored_min")

    def __init__(self) -> None:
        self.ops_count = 0
        self.next_offset = 0
        self.newest_stamp = 0
        self.generation = 0
        self.stored_min: int | None = None  # of the offsets that consumers have asked to store

    def begin(self, log: PartitionLog, generation: int) -> None:
        """Start from what is applied."""
        self.ops_count = 0
        self.next_offset = log.next_offset
        self.newest_stamp = log.newest_stamp
        self.generation = generation
        self.stored_min = None

    def append(self, next_offset: int, timestamp: int) -> None:
        """Note a batch."""
        assert timestamp >= self.newest_stamp, "stamps never fall"
        assert next_offset > self.next_offset, "a batch has a message, and its offsets are new"
        self.next_offset = next_offset
        self.newest_stamp = timestamp

    def store(self, offset: int) -> None:
        """Note an offset of a consumer; whether it will be stored the log decides."""
        self.stored_min = offset if self.stored_min is None else min(offset, self.stored_min)

    def purge(self, generation: int) -> None:
        """Note a purge; one that is not newer changes nothing."""
        if generation > self.generation:
            self.generation = generation
            self.next_offset = 0

    def lose(self, end: int) -> None:
        """Note a lost range."""
        self.next_offset = max(self.next_offset, end)
