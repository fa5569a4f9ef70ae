"""Keeps the clock of a shard, and records the time in the metadata log.

An idle log says nothing of the time, and a start would have nothing to hold the clock against. So
whoever leads the metadata notes the time now and then: an op whose stamp is all that it says.

Flow: replicate.
"""

from collections.abc import Callable, Sequence

from headrace.ports.network import Ticked
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.vsr.events import OwnOp
from headrace.wire.numbers import Operation

_NOTES_PER_TOLERANCE = 5  # A node that is down for less than the other four needs nobody.


class Timekeeper:
    """The only part that reads the wall clock; the others get the believed time."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        planes: Sequence[Plane],
        turn: Turn,
        propose: Callable[[OwnOp], None] | None,
    ) -> None:
        """Keep the clock; `propose` has the metadata group order an op, where that group is."""
        self._metadata = metadata
        self._planes = planes
        self._propose = propose
        self._shared = [plane.shared for plane in planes]
        self._learnt = -1  # the newest committed stamp that was learnt; one of 0 says nothing
        self._clock = turn.clock
        self._probes = turn.probes
        self._time = turn.clock.time
        self._supported_time = settings.supported_time
        self._tolerance = settings.clock_tolerance
        self._note_age = settings.clock_tolerance // _NOTES_PER_TOLERANCE

    def tick(self, event: Ticked) -> Ticked:
        """Let time pass; return the event as others may see it."""
        assert event.now >= self._clock.now, "ticks do not go back"
        self._learn()
        self._time.tick(event.now, event.wall)
        oldest = self._learnt - self._tolerance
        assert self._time.now >= oldest, "a clock takes nothing back but within the tolerance"
        self._clock.now = event.now
        self._tell()
        return Ticked(event.now, self._time.now)

    def look(self, wall: int) -> None:
        """Take what the clock says between two ticks."""
        time, stamp = self._time, self._metadata.machine.state.timestamp
        assert stamp >= self._learnt, "committed stamps do not fall"
        if stamp != self._learnt or time.now < stamp:
            self._learn()
        time.look(wall)
        now = time.now
        assert now >= stamp - self._tolerance, "a clock takes nothing back but within the tolerance"
        for shared in self._shared:
            shared.wall = now

    def after_turn(self) -> None:
        """Hear of the very first stamp at once: nothing may be stamped by the clock after it."""
        if not self._time.is_known:
            self._learn()
            self._tell()

    def note(self) -> None:
        """Have the log remember the time, unless it does; its first op is another's (O3.7)."""
        assert self._propose is not None, "only who has the log has it remember the time"
        age = self._time.now - self._newest_stamp
        assert age >= -self._tolerance, "the log is not ahead of what is believed"
        if self._time.is_known and self._metadata.is_serving and age > self._note_age:
            self._probes.hit("time.noted")
            self._propose(OwnOp(Operation.NOTE_TIME, b""))

    def _learn(self) -> None:
        stamp = self._newest_stamp
        if not stamp:
            # A replica that comes back knows its log before it hears how far that is committed.
            self._time.learn(self._metadata.log_stamp, is_committed=False)
            return
        assert stamp >= self._learnt, "committed stamps do not fall"
        self._learnt = stamp
        self._time.learn(stamp, supported=self._supported_time)

    @property
    def _newest_stamp(self) -> int:
        """Return the newest committed stamp: one that was only prepared may never have been."""
        return self._metadata.machine.state.timestamp

    def _tell(self) -> None:
        for shared in self._shared:
            shared.wall = self._time.now

    def check(self) -> None:
        """Assert that all parts go by the same time."""
        self._time.check()
        assert self._time is self._clock.time, "one time is believed"
        assert self._learnt <= self._newest_stamp, "only a committed stamp was learnt"
        assert self._time.is_known or not self._newest_stamp, "the first stamp is heard at once"
        shared = [plane.shared for plane in self._planes]
        assert self._shared == shared, "every plane is told the time"
        for plane in self._planes:
            plane.check_time(self._clock.now, self._time.now)
