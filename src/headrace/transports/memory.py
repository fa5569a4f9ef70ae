"""How much memory received bytes take, of all connections together."""


class ReceiveMemory:
    """Counts what is held of unfinished frames, and what this turn handed to the core.

    What the core keeps beyond a turn is the core's to bound: it asks to stop reading.
    """

    __slots__ = ("bytes_max", "held_bytes", "turn_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self.turn_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether reading should stop."""
        return self.held_bytes + self.turn_bytes > self.bytes_max

    def has_room(self, count: int) -> bool:
        """Whether so many more bytes may be held."""
        return self.held_bytes + count <= self.bytes_max
