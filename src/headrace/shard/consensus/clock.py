"""What time it is in a shard: the tick of now, and the time that is believed."""

from headrace.shard.consensus.believed_time import BelievedTime


class Clock:
    """One per shard; only the timekeeper changes it."""

    __slots__ = ("now", "time")

    def __init__(self, tolerance: int) -> None:
        self.now = 0  # in ticks
        self.time = BelievedTime(tolerance)
