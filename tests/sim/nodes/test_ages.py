"""The checker of times sees what nothing supports, and what goes too early."""

import pytest

from headrace.sim.agenda import SECOND
from headrace.sim.nodes.ages import Ages
from headrace.sim.violation import SimViolationError

TOLERANCE = 2 * SECOND
HOUR = 3600 * SECOND
START = 1_700_000_000 * SECOND
KEY = "group"


class Stage:
    """True time that is moved, and a log whose stamps are half an hour ahead of it."""

    def __init__(self) -> None:
        self.now = SECOND
        self.ages = Ages(TOLERANCE, lambda: self.now)
        self.stamp(0)

    def stamp(self, off: int, *, delay: int = 0, is_committed: bool = True) -> None:
        """Have a stamp given, and its op committed later."""
        stamp = START + HOUR // 2 + self.now + off
        self.ages.stamped(stamp)
        self.now += delay
        if is_committed:
            self.ages.committed(stamp)


def test_ticks_drift_and_the_tolerance_support_a_stamp() -> None:
    stage = Stage()
    for off in (0, TOLERANCE, -HOUR, TOLERANCE + 4 * SECOND):
        stage.stamp(off)
        stage.now += SECOND


@pytest.mark.parametrize("leap", [200 * SECOND, HOUR, 87_600 * HOUR])
def test_a_leap_supports_none(leap: int) -> None:
    stage = Stage()
    with pytest.raises(SimViolationError, match="nothing supports"):
        stage.stamp(leap)


def test_what_is_never_committed_may_have_any_stamp() -> None:
    stage = Stage()
    stage.stamp(HOUR, is_committed=False)
    stage.stamp(0)
    with pytest.raises(SimViolationError, match="nothing supports"):
        stage.stamp(HOUR)


def test_an_op_that_is_committed_late_is_judged_by_when_it_was_stamped() -> None:
    stage = Stage()
    stage.stamp(0, delay=HOUR)
    stage.stamp(0)


def test_an_operator_supports_a_leap() -> None:
    stage = Stage()
    stage.ages.came(KEY, 1, 1)
    stage.ages.accepted(START + stage.now + 2 * HOUR)
    stage.stamp(HOUR)
    stage.ages.goes(KEY, 1, 1, HOUR)


def test_a_message_may_go_when_it_is_as_old_as_its_topic_says() -> None:
    stage = Stage()
    stage.ages.came(KEY, 1, 1)
    stage.now += HOUR
    stage.ages.came(KEY, 1, 2)
    stage.ages.goes(KEY, 1, 1, HOUR)
    with pytest.raises(SimViolationError, match="too early"):
        stage.ages.goes(KEY, 1, 2, HOUR)
