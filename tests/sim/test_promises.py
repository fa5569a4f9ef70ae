"""What a node said to others it must not take back."""

from typing import NamedTuple

import pytest

from headrace.sim.promises import Promises
from headrace.sim.violation import SimViolationError
from headrace.wire.replica.prepares import PREPARE_OK, PrepareOkHeader
from headrace.wire.replica.views import (
    DO_VIEW_CHANGE,
    START_VIEW_CHANGE,
    DoViewChangeHeader,
    StartViewChangeHeader,
)


class Key(NamedTuple):
    group: int
    origin: int


KEY = Key(0, 1)
ALL_PRESENT = 0xFFFF


class Face(NamedTuple):
    """A replica, as far as it is looked at."""

    view: int = 0
    log_view: int = 0
    whole_op: int = 0
    commit_min: int = 0
    is_wiped: bool = False


def broken(code: str, why: str = "") -> pytest.RaisesExc[SimViolationError]:
    return pytest.raises(SimViolationError, match=f"^{code}: .*{why}")


def prepare_ok(view: int, op: int) -> bytes:
    return PREPARE_OK.encode(PrepareOkHeader(view=view, op=op, group=0, origin=1))


def start(view: int) -> bytes:
    return START_VIEW_CHANGE.encode(StartViewChangeHeader(view=view, group=0, origin=1))


def vote(view: int, log_view: int, op: int, *, present: int = ALL_PRESENT) -> bytes:
    return DO_VIEW_CHANGE.encode(
        DoViewChangeHeader(
            view=view, log_view=log_view, op=op, group=0, origin=1, present_bitset=present
        )
    )


def acknowledged(view: int, op: int) -> Promises[Key]:
    promises = Promises(Key)
    promises.observe(0, KEY, Face())
    promises.sent(0, prepare_ok(view, op), {KEY: Face(view, view, op)})
    return promises


def test_view_and_commit_never_go_back_in_a_life() -> None:
    promises = Promises(Key)
    promises.observe(0, KEY, Face(2, commit_min=5))
    promises.observe(0, KEY, Face(2, commit_min=6))
    for back in (Face(1, commit_min=6), Face(2, commit_min=5)):
        with broken("R4", "went back"):
            promises.observe(0, KEY, back)
    promises.booted(0)
    promises.observe(0, KEY, Face(2, commit_min=1))


def test_a_view_and_what_was_acknowledged_survive_a_restart() -> None:
    promises = acknowledged(2, 7)
    promises.booted(0)
    for forgetful in (Face(1, 1, 9), Face(2, 1, 9)):
        with broken("R4", "forgot a view"):
            promises.observe(0, KEY, forgetful)
    with broken("R4", "lost what it acknowledged"):
        promises.observe(0, KEY, Face(2, 2, 6))
    promises.observe(0, KEY, Face(2, 2, 7))


def test_no_acknowledgement_below_a_view_nor_of_a_log_that_is_not_there() -> None:
    promises = acknowledged(2, 7)
    promises.sent(0, start(3), {})
    with broken("R5"):
        promises.sent(0, prepare_ok(2, 8), {KEY: Face(2, 2, 8)})
    with broken("R5", "whose log it does not have"):
        promises.sent(0, prepare_ok(4, 8), {KEY: Face(4, 2, 8)})


def test_no_acknowledgement_without_the_body() -> None:
    with broken("R4", "whose body it does not have"):
        Promises(Key).sent(0, prepare_ok(1, 3), {KEY: Face(1, 1, whole_op=2)})


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (start(2), "view"),
        (vote(2, 2, 7), "view"),
        (vote(3, 1, 7), "older log"),
        (vote(3, 2, 6), "lost what it acknowledged"),
        (vote(3, 2, 8, present=ALL_PRESENT ^ 0b10), "lost what it acknowledged"),
    ],
)
def test_a_vote_is_of_the_newest_log_and_has_what_was_acknowledged(frame: bytes, why: str) -> None:
    promises = acknowledged(2, 7)
    promises.sent(0, start(3), {})
    with broken("R4", why):
        promises.sent(0, frame, {})
    promises.sent(0, vote(3, 2, 7), {})


def test_a_newer_view_may_have_dropped_what_was_acknowledged() -> None:
    promises = acknowledged(2, 9)
    promises.sent(0, vote(3, 2, 9), {})
    promises.sent(0, prepare_ok(3, 4), {KEY: Face(3, 3, 4)})
    promises.sent(0, vote(4, 3, 4), {})


def test_what_may_lawfully_be_forgotten() -> None:
    lost = acknowledged(2, 7)
    lost.lost_tail(0, KEY)
    wiped = acknowledged(2, 7)
    wiped.wiped(0)
    removed = acknowledged(2, 7)
    removed.removed(0, {})
    damaged = acknowledged(2, 7)
    damaged.damaged(0)
    shortened = acknowledged(2, 7)
    shortened.damaged(0)
    for promises, face in (
        (lost, Face(2, 2, 1)),
        (wiped, Face()),
        (removed, Face()),
        (damaged, Face(is_wiped=True)),
        (shortened, Face(2, 2, 3)),
    ):
        promises.booted(0)
        promises.observe(0, KEY, face)


def test_a_wiped_node_whose_disk_is_sound_is_not_excused() -> None:
    promises = acknowledged(2, 7)
    promises.booted(0)
    with broken("R4", "forgot a view"):
        promises.observe(0, KEY, Face(is_wiped=True))


def test_another_incarnation_promised_nothing() -> None:
    promises = acknowledged(2, 7)
    promises.booted(0)
    promises.observe(0, Key(0, 9), Face())
