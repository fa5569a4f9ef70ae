"""At no time two members of a group are served from one partition."""

import pytest

from headrace.sim.nodes.ownership import Ownership
from headrace.sim.violation import SimViolationError

ONE, OTHER = 11, 12


@pytest.fixture
def ownership() -> Ownership:
    """Partition 0 belongs to one client from moment 10 on, to another from 20 on."""
    made = Ownership()
    made.assigned(5, 10, {"t": {0: ONE}})
    made.assigned(6, 20, {"t": {0: OTHER}})
    return made


def serve(ownership: Ownership, client: int, invoked: int, answered: int) -> None:
    ownership.served("t", 0, client, invoked=invoked, answered=answered)


def test_who_owns_is_served(ownership: Ownership) -> None:
    serve(ownership, ONE, 11, 12)
    serve(ownership, OTHER, 21, 22)
    assert ownership.check() == 2


def test_whoever_never_owned_it_is_seen(ownership: Ownership) -> None:
    serve(ownership, 99, 11, 30)
    with pytest.raises(SimViolationError, match="H11"):
        ownership.check()


def test_whoever_does_not_own_it_yet_is_seen(ownership: Ownership) -> None:
    serve(ownership, OTHER, 11, 19)
    with pytest.raises(SimViolationError, match="H11"):
        ownership.check()


def test_the_last_one_may_be_served_until_somebody_knows_better(ownership: Ownership) -> None:
    serve(ownership, ONE, 25, 26)
    ownership.check()
    ownership.confirmed(6, 24)
    with pytest.raises(SimViolationError, match="H11"):
        ownership.check()


def test_nobody_is_served_again_after_the_next_one_was(ownership: Ownership) -> None:
    serve(ownership, OTHER, 21, 22)
    serve(ownership, ONE, 21, 30)
    ownership.check()
    serve(ownership, ONE, 23, 30)
    with pytest.raises(SimViolationError, match="H11"):
        ownership.check()


def test_a_deleted_topic_belongs_to_nobody(ownership: Ownership) -> None:
    ownership.assigned(7, 30, {})
    ownership.confirmed(7, 31)
    serve(ownership, OTHER, 32, 33)
    with pytest.raises(SimViolationError, match="H11"):
        ownership.check()
