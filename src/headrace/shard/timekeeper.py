"""Tells a shard the time, and has the log remember it.

An idle log says nothing of the time, and a start would have nothing to hold the clock against. So
whoever leads the metadata notes the time now and then: an op whose stamp is all that it says.

Flow: replicate.
"""

from headrace.ports.network import Ticked
from headrace.shard.desk import Desk
from headrace.vsr.events import OwnOp
from headrace.wire.numbers import Operation

_NOTES_PER_TOLERANCE = 5  # A node that is down for less than the other four needs nobody.


class Timekeeper:
    """The only one who hears the wall clock; what others are told is believed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._time = desk.clock.time
        self._note_age = desk.settings.clock_tolerance // _NOTES_PER_TOLERANCE

    def tick(self, event: Ticked) -> Ticked:
        """Let time pass; give the event as others may see it."""
        self._learn()
        self._time.tick(event.now, event.wall)
        self._desk.clock.now = event.now
        self._tell()
        return Ticked(event.now, self._time.now)

    def look(self, wall: int) -> None:
        """Take what the clock says between two ticks."""
        self._learn()
        self._time.look(wall)
        self._tell()

    def after_turn(self) -> None:
        """Hear of the very first stamp at once: nothing may be stamped by the clock after it."""
        if not self._time.is_known:
            self._learn()
            self._tell()

    def note(self) -> None:
        """Have the log remember the time, unless it does; its first op is another's (O3.7)."""
        desk, age = self._desk, self._time.now - self._newest_stamp
        if self._time.is_known and desk.metadata.is_serving and age > self._note_age:
            desk.probes.hit("time.noted")
            desk.metadata.propose(OwnOp(Operation.NOTE_TIME, b""))

    def _learn(self) -> None:
        stamp = self._newest_stamp
        if not stamp:
            # A replica that comes back knows its log before it hears how far that is committed.
            self._time.learn(self._desk.metadata.replica.timestamp, is_committed=False)
            return
        if not self._time.is_known:
            stamp = max(stamp, self._desk.settings.supported_time)
        self._time.learn(stamp)

    @property
    def _newest_stamp(self) -> int:
        """Return the newest committed stamp: one that was only prepared may never have been."""
        return self._desk.metadata.state.timestamp

    def _tell(self) -> None:
        for plane in (self._desk.metadata.plane, self._desk.data_plane):
            plane.set_wall(self._time.now)
