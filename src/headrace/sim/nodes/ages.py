"""Judges times by the true one: what stamps may say, and when messages may go (CK1).

Clocks are off by hours, leap by years and tick unevenly. The first op says how far the time of the
log is off from the true one; from then on only ticks, the tolerance and an operator may move it.
"""

from collections.abc import Callable

from headrace.sim.agenda import SECOND
from headrace.sim.violation import SimViolationError

_DRIFT = 10  # Ticks of two nodes part by less than this share of the time, inverted.
_DELAY_MAX = 5 * SECOND  # between a stamp and its op's first application, and of lagging nodes


class Ages:
    """Told of every stamp, of every message that comes, and of all that go by their age."""

    def __init__(self, tolerance: int, now: Callable[[], int]) -> None:
        self._tolerance = tolerance
        self._now = now
        self._ahead: int | None = None  # how far the latest stamp was ahead of the true time
        # By group, epoch and offset.
        self._given: dict[int, int] = {}  # the true time of each stamp
        self._born: dict[tuple[object, int, int], tuple[int, int]] = {}

    def stamped(self, stamp: int) -> None:
        """Take note of a stamp that a primary gives, and of the true time of that."""
        self._given[stamp] = self._now()

    def committed(self, stamp: int, **facts: object) -> None:
        """Check the stamp of an op that is applied for the first time; the first op sets the time.

        A primary that was deposed may stamp by any clock what is never committed.

        Raises:
            SimViolationError: Nothing supports it.
        """
        ahead = stamp - self._given.get(stamp, self._now())
        if self._ahead is None:
            self._ahead = ahead
        elif ahead > self._ahead + self._slack:
            raise SimViolationError(
                "CK1", why="a time that nothing supports", by=ahead - self._ahead, **facts
            )
        self._ahead = max(self._ahead, ahead)

    def accepted(self, clock: int) -> None:
        """Take note that an operator confirmed a time."""
        if self._ahead is not None:
            self._ahead = max(self._ahead, clock - self._now())

    def came(self, key: object, epoch: int, offset: int) -> None:
        """Take note of a message, by its place."""
        self._born[key, epoch, offset] = (self._now(), self._ahead or 0)

    def goes(self, key: object, epoch: int, offset: int, expiry: int) -> None:
        """Check that a message is as old as it may get.

        Raises:
            SimViolationError: It goes too early.
        """
        born, ahead = self._born[key, epoch, offset]
        assert self._ahead is not None
        age = self._now() - born + max(0, self._ahead - ahead)
        if age + self._slack < expiry:
            raise SimViolationError(
                "CK1", why="a message went too early", group=key, age=age, expiry=expiry
            )

    @property
    def _slack(self) -> int:
        return self._tolerance + self._now() // _DRIFT + _DELAY_MAX
