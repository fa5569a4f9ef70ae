"""What a node said to others it must not take back."""

import pytest

from headrace.sim.nodes.history import Incarnation
from headrace.sim.nodes.promises import Promises
from headrace.sim.violation import SimViolationError
from headrace.vsr.replica import Replica
from headrace.wire.replica.prepares import PREPARE_OK, PrepareOkHeader
from headrace.wire.replica.views import (
    DO_VIEW_CHANGE,
    START_VIEW_CHANGE,
    DoViewChangeHeader,
    StartViewChangeHeader,
)

KEY = Incarnation(0, 1)


class Face(Replica):
    """As much of a replica as is looked at."""

    def __init__(self, *, view: int = 0, op: int = 0, commit: int = 0, wiped: bool = False) -> None:
        self._told = (view, op, commit, wiped)

    @property
    def view(self) -> int:
        return self._told[0]

    @property
    def log_view(self) -> int:
        return self._told[0]

    @property
    def op(self) -> int:
        return self._told[1]

    @property
    def commit_min(self) -> int:
        return self._told[2]

    @property
    def is_wiped(self) -> bool:
        return self._told[3]


def prepare_ok(view: int, op: int) -> bytes:
    return PREPARE_OK.encode(PrepareOkHeader(view=view, op=op, group=0, origin=1))


def vote(view: int, log_view: int, op: int) -> bytes:
    header = DoViewChangeHeader(view=view, log_view=log_view, op=op, group=0, origin=1)
    return DO_VIEW_CHANGE.encode(header)


def acknowledged(view: int, op: int) -> Promises:
    promises = Promises()
    promises.observe(0, KEY, Face())
    promises.sent(0, prepare_ok(view, op), {KEY: Face(view=view, op=op)})
    return promises


def test_view_and_commit_never_go_back_in_a_life() -> None:
    promises = Promises()
    promises.observe(0, KEY, Face(view=2, commit=5))
    for back in (Face(view=1, commit=5), Face(view=2, commit=4)):
        with pytest.raises(SimViolationError, match="went back"):
            promises.observe(0, KEY, back)
    promises.booted(0)
    promises.observe(0, KEY, Face(view=2, commit=1))


def test_a_view_and_what_was_acknowledged_survive_a_restart() -> None:
    promises = acknowledged(2, 7)
    promises.booted(0)
    with pytest.raises(SimViolationError, match="forgot a view"):
        promises.observe(0, KEY, Face(view=1, op=9))
    with pytest.raises(SimViolationError, match="lost what it acknowledged"):
        promises.observe(0, KEY, Face(view=2, op=6))
    promises.observe(0, KEY, Face(view=2, op=7))


def test_no_acknowledgement_below_a_view_nor_of_a_log_that_is_not_there() -> None:
    promises = acknowledged(2, 7)
    with pytest.raises(SimViolationError, match="R5"):
        promises.sent(0, prepare_ok(1, 7), {KEY: Face(view=1)})
    with pytest.raises(SimViolationError, match="R5"):
        promises.sent(0, prepare_ok(3, 7), {KEY: Face(view=2)})


def test_a_vote_is_of_the_newest_log_and_has_what_was_acknowledged() -> None:
    promises = acknowledged(2, 7)
    started = START_VIEW_CHANGE.encode(StartViewChangeHeader(view=3, group=0, origin=1))
    promises.sent(0, started, {})
    with pytest.raises(SimViolationError, match="R4"):
        promises.sent(0, vote(2, 2, 7), {})
    with pytest.raises(SimViolationError, match="older log"):
        promises.sent(0, vote(3, 1, 7), {})
    with pytest.raises(SimViolationError, match="lost what it acknowledged"):
        promises.sent(0, vote(3, 2, 6), {})
    promises.sent(0, vote(3, 2, 7), {})


def test_what_may_lawfully_be_forgotten() -> None:
    lost = acknowledged(2, 7)
    lost.lost_tail(0, KEY)
    wiped = acknowledged(2, 7)
    wiped.wiped(0)
    removed = acknowledged(2, 7)
    removed.removed(0, {})
    damaged = acknowledged(2, 7)
    damaged.damaged(0)
    for promises, face in (
        (lost, Face(view=2, op=1)),
        (wiped, Face()),
        (removed, Face()),
        (damaged, Face(wiped=True)),
    ):
        promises.booted(0)
        promises.observe(0, KEY, face)


def test_another_incarnation_promised_nothing() -> None:
    promises = acknowledged(2, 7)
    promises.booted(0)
    promises.observe(0, Incarnation(0, 9), Face())
