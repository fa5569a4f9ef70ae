"""The time that a node goes by: the wall clock, as far as ticks and stamps of the log support it.

```
clock within the tolerance of it   it is what the clock says
clock ahead or behind by more      it goes on by ticks, from where it was
stamp of the metadata, later       it is at least that; a start begins with the newest one
```

So neither a leap nor a restart under a wrong clock makes anything older (CK1). A leap that is right
becomes part of the metadata when an operator accepts it (decision 0019).

Flow: replicate.
"""

TICK_MICROS = 10_000


class BelievedTime:
    """The time that is believed; all times in microseconds."""

    __slots__ = ("_is_committed", "_tick", "_tolerance", "clock", "is_known", "now")

    def __init__(self, tolerance: int) -> None:
        self.clock = 0  # what the wall clock said last
        self.now = 0  # what is believed
        self._tolerance = tolerance
        self._tick: int | None = None
        self._is_committed = False  # whether a stamp that it knows is committed
        self.is_known = False  # whether there is a stamp: a first start has but its clock

    def learn(self, stamp: int, *, is_committed: bool = True) -> None:
        """Take a stamp of the metadata log, or a time that it accepted: that time has come.

        One that is not known to be committed serves until the first that is.
        """
        if stamp:
            is_first = not self.is_known or (is_committed and not self._is_committed)
            self.now = stamp if is_first else max(self.now, stamp)
            self.is_known = True
            self._is_committed |= is_committed

    def tick(self, tick: int, clock: int) -> None:
        """Let time pass, and look at the clock."""
        if self._tick is not None:
            self.now += (tick - self._tick) * TICK_MICROS
        self._tick = tick
        self.look(clock)

    def look(self, clock: int) -> None:
        """Take what the clock says, if that can be."""
        self.clock = clock
        if not self.is_known or -self._tolerance <= clock - self.now <= self._tolerance:
            self.now = clock

    @property
    def lead(self) -> int:
        """How far the clock is ahead of what is believed, or behind; 0 while it is believed."""
        return self.clock - self.now

    @property
    def for_removal(self) -> int:
        """The time by which messages go: not before the clock has come there too.

        A log whose stamps are ahead of the true time must not take what others stamped rightly.
        """
        return min(self.now, self.clock)
