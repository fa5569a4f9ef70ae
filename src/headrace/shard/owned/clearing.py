"""Has the files of dropped segments removed soon, whether or not other work goes on.

```
segments dropped -- 1 s --> a checkpoint is taken that does not name them -> their files go
                    disk full: the files go at once, if the journal says that they were dropped
```

Flow:       store, checkpoint.
Invariants: at most one checkpoint in 3 s is taken for this, however many segments are dropped.
"""

from headrace.partitions.machine import PartitionMachine
from headrace.partitions.shared import PartitionsShared
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.turn import Turn

_GATHER_TICKS = 100  # Drops of one pass share a checkpoint.
_INTERVAL_TICKS = 300
assert _GATHER_TICKS < _INTERVAL_TICKS, "what is dropped meanwhile is gathered for the next one"


class Clearing:
    """The files of dropped segments of all partitions of a shard."""

    def __init__(
        self, metadata: Metadata, plane: Plane, shared: PartitionsShared, turn: Turn
    ) -> None:
        self._metadata = metadata
        self._plane = plane
        self._shared = shared
        self._clock = turn.clock
        self._probes = turn.probes
        self._due: int | None = None
        self._earliest = 0

    def tick(self) -> None:
        """Ask for a checkpoint when files have waited long enough for one."""
        now = self._clock.now
        if not self._shared.dropping:
            self._due = None
        elif self._due is None:
            self._due = max(now + _GATHER_TICKS, self._earliest)
            assert now < self._due <= now + _INTERVAL_TICKS, "files wait for an interval at most"
        elif now >= self._due:
            self._due = None
            assert now >= self._earliest, "one checkpoint in an interval is taken for this"
            self._earliest = now + _INTERVAL_TICKS
            self._plane.want_checkpoint()
            self._probes.hit("clearing.checkpoint")

    def after_turn(self) -> None:
        """On a full disk, remove files now: the checkpoint may wait for their space."""
        if not self._is_without_space:
            return
        for owner in list(self._shared.dropping):
            assert isinstance(owner, PartitionMachine)
            owner.remove_dropped()

    def check(self) -> None:
        """Assert that a checkpoint is asked for in time, and not too often."""
        now = self._clock.now
        assert self._earliest <= now + _INTERVAL_TICKS, "the next one is within an interval"
        if self._due is not None:
            latest = max(now + _GATHER_TICKS, self._earliest)
            assert now <= self._due <= latest, "files wait a second, or until one is allowed"

    @property
    def _is_without_space(self) -> bool:
        return (
            bool(self._shared.without_space)
            or self._metadata.is_without_space
            or self._plane.store.is_without_space
        )
