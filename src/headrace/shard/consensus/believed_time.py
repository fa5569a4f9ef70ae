"""The time that a node goes by: the wall clock, as far as ticks and stamps of the log support it.

```
clock within the tolerance of it   it is what the clock says
clock ahead or behind by more      it goes on by ticks, from where it was
stamp of the metadata, later       it is at least that; a start begins with the newest one
```

The clock must also be within the tolerance of the steady time, which ticks alone move, and which
the clock draws by 1 % of the time that passes. So leaps within the tolerance do not add up.

So neither leaps nor a restart under a wrong clock make anything older (CK1). A leap that is right
becomes part of the metadata when an operator accepts it (decision 0019).

Flow: replicate.
"""

TICK_MICROS = 10_000
_DRAWN_SHARE = 100  # A machine that sleeps for 1 % of the time, ticks standing still, needs nobody.


class BelievedTime:
    """The time that is believed; all times in microseconds."""

    __slots__ = (
        "_is_committed",
        "_newest",
        "_tick",
        "_tolerance",
        "clock",
        "is_known",
        "now",
        "steady",
    )

    def __init__(self, tolerance: int) -> None:
        self.clock = 0  # what the wall clock said last
        self.now = 0  # what is believed
        self.steady = 0  # what ticks support, or stamps that are newer than all that was believed
        self._newest = 0  # the latest time that was believed here
        self._tolerance = tolerance
        self._tick: int | None = None
        self._is_committed = False  # whether a stamp that it knows is committed
        self.is_known = False  # whether there is a stamp: a first start has but its clock

    def learn(self, stamp: int, *, supported: int = 0, is_committed: bool = True) -> None:
        """Take a stamp of the metadata log, or a time that it accepted: that time has come.

        One that is not known to be committed serves until the first that is. `supported` is the
        steady time of an earlier start, if the monotonic clock continued it until now.
        """
        if not stamp:
            return
        if not self.is_known or (is_committed and not self._is_committed):
            self.now = self._newest = max(stamp, supported)
            is_near = supported and stamp - supported <= self._tolerance
            self.steady = supported if is_near else stamp
        else:
            if stamp > self._newest + TICK_MICROS:
                self.steady = stamp  # An operator accepted it, or another primary stamped by it.
            self.now = max(self.now, stamp)
        self.is_known = True
        self._is_committed |= is_committed
        self._newest = max(self._newest, self.now)
        assert self.now >= stamp, "the time of a stamp has come"

    def tick(self, tick: int, clock: int) -> None:
        """Let time pass, and look at the clock."""
        assert self._tick is None or tick >= self._tick, "ticks do not go back"
        passed = 0 if self._tick is None else (tick - self._tick) * TICK_MICROS
        self._tick = tick
        before = self.steady
        self.now += passed
        self.steady += passed
        self.look(clock)
        if self.now == clock:
            drawn_max = passed // _DRAWN_SHARE
            self.steady += max(-drawn_max, min(clock - self.steady, drawn_max))
        assert self.steady >= before or not self.is_known, "what ticks support never falls"

    def look(self, clock: int) -> None:
        """Take what the clock says, if that can be."""
        before = self.now
        self.clock = clock
        if not self.is_known:
            self.now = self.steady = clock
        else:
            tolerance = self._tolerance
            is_near = -tolerance <= clock - self.now <= tolerance
            if is_near and -tolerance <= clock - self.steady <= tolerance:
                self.now = clock
        if self.now > self._newest:  # noqa: PLR1730 - a call less for every turn with requests
            self._newest = self.now
        assert self.now == clock or self.now == before, "only the clock moves it between two ticks"  # noqa: PLR1714

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

    def check(self) -> None:
        """Assert that a first start goes by its clock, and that nothing is removed too early."""
        assert self.is_known or not self._is_committed, "a committed stamp is a stamp"
        assert self.is_known or self.now == self.clock, "a first start has but its clock"
        assert self.for_removal <= self.now, "nothing is older than it is believed to be"
        assert self.now <= self._newest, "the newest time that was believed is known"
        assert self.now >= self.steady - self._tolerance, "ticks support an earlier time at most"
