"""The search tells histories that fit one order from those that fit none."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sim.nodes.linearizable import (
    UNKNOWN,
    Call,
    Effect,
    SearchLimitError,
    Value,
    is_linearizable,
    step,
)

STEPS = 10_000


def fits(*calls: Call) -> bool:
    return is_linearizable(calls, steps_max=STEPS)


def call(invoked: int, answered: int | None, effect: Effect, value: Value = None) -> Call:
    return Call(invoked, answered, effect, value)


def test_nothing_fits() -> None:
    assert fits()


def test_a_read_gives_what_was_stored_last() -> None:
    stores = (call(1, 2, Effect.SET, 5), call(3, 4, Effect.SET, 7))
    assert fits(*stores, call(5, 6, Effect.GET, 7))
    assert not fits(*stores, call(5, 6, Effect.GET, 5))
    assert not fits(*stores, call(5, 6, Effect.GET))


def test_calls_at_the_same_time_may_come_in_either_order() -> None:
    stores = (call(1, 4, Effect.SET, 5), call(2, 3, Effect.SET, 7))
    for value in (5, 7):
        assert fits(*stores, call(5, 6, Effect.GET, value))
    assert not fits(*stores, call(5, 6, Effect.GET, 5), call(7, 8, Effect.GET, 7))


def test_an_old_value_must_not_come_back() -> None:
    store = call(3, 10, Effect.SET, 5)
    begun = (call(1, 2, Effect.SET, 1), store)
    assert fits(*begun, call(4, 5, Effect.GET, 1), call(6, 7, Effect.GET, 5))
    assert not fits(*begun, call(4, 5, Effect.GET, 5), call(6, 7, Effect.GET, 1))


def test_what_was_never_answered_may_have_happened_late_or_never() -> None:
    stored = (call(1, 2, Effect.SET, 1), call(3, None, Effect.SET, 5))
    assert fits(*stored, call(4, 5, Effect.GET, 1))
    assert fits(*stored, call(4, 5, Effect.GET, 1), call(6, 7, Effect.GET, 5))
    assert not fits(*stored, call(4, 5, Effect.GET, 5), call(6, 7, Effect.GET, 1))
    assert not fits(call(1, 2, Effect.GET, 5), call(3, None, Effect.SET, 5))


def test_a_name_is_made_once_and_dropped_once() -> None:
    assert fits(call(1, 2, Effect.MAKE, 10), call(3, 4, Effect.DROP), call(5, 6, Effect.MAKE, 11))
    assert not fits(call(1, 2, Effect.MAKE, 10), call(3, 4, Effect.MAKE, 11))
    assert not fits(call(1, 2, Effect.MAKE, 10), call(3, 4, Effect.DROP), call(5, 6, Effect.DROP))
    assert fits(call(1, 2, Effect.MAKE, 10), call(3, 4, Effect.PRESENT))
    assert not fits(call(1, 2, Effect.PRESENT))


def test_a_namesake_is_not_the_one_that_was_dropped() -> None:
    lives = (call(1, 2, Effect.MAKE, 10), call(3, 4, Effect.DROP), call(5, 6, Effect.MAKE, 11))
    assert fits(*lives, call(7, 8, Effect.GET, 11))
    assert not fits(*lives, call(7, 8, Effect.GET, 10))


def test_a_value_that_nobody_was_told_of_is_fixed_by_the_first_who_is() -> None:
    made = call(1, None, Effect.MAKE, UNKNOWN)
    assert fits(made, call(2, 3, Effect.GET))
    assert fits(made, call(2, 3, Effect.GET, 4), call(4, 5, Effect.GET, 4))
    assert not fits(made, call(2, 3, Effect.GET, 4), call(4, 5, Effect.GET, 6))
    assert not fits(made, call(2, 3, Effect.PRESENT), call(4, 5, Effect.GET))


def test_what_is_raised_never_falls() -> None:
    raised = (call(1, 2, Effect.SET, 5), call(3, 4, Effect.RAISE, 3))
    assert fits(*raised, call(5, 6, Effect.GET, 5))
    assert not fits(*raised, call(5, 6, Effect.GET, 3))
    assert fits(call(1, 2, Effect.RAISE, 3), call(3, 4, Effect.GET, 3))


def test_a_poll_begins_behind_what_is_stored_and_skips_nothing() -> None:
    stored = call(1, 2, Effect.SET, 5)
    assert fits(stored, call(3, 4, Effect.NEXT, 6))
    assert not fits(stored, call(3, 4, Effect.NEXT, 7))
    assert not fits(call(3, 4, Effect.NEXT, 1))
    assert fits(stored, call(3, 4, Effect.BELOW, 9))
    assert not fits(stored, call(3, 4, Effect.BELOW, 5))
    assert fits(call(3, 4, Effect.BELOW, 0))


def test_a_cleared_register_is_empty() -> None:
    cleared = (call(1, 2, Effect.SET, 5), call(3, 4, Effect.CLEAR))
    assert fits(*cleared, call(5, 6, Effect.GET))
    assert not fits(*cleared, call(5, 6, Effect.GET, 5))


def test_a_search_without_end_is_an_error_and_no_pass() -> None:
    stores = [call(number, 1_000, Effect.SET, number) for number in range(1, 30)]
    wanted = call(1_001, 1_002, Effect.GET, 99)
    with pytest.raises(SearchLimitError, match="30 calls"):
        is_linearizable([*stores, wanted], steps_max=1_000)


EFFECTS = st.sampled_from((Effect.SET, Effect.DROP, Effect.GET, Effect.RAISE, Effect.CLEAR))


@st.composite
def histories(draw: st.DrawFn) -> list[Call]:
    """Give few calls of few values, so that about half of the histories fit."""
    calls = []
    for _ in range(draw(st.integers(1, 5))):
        begin, length = draw(st.integers(0, 8)), draw(st.integers(1, 5))
        effect = draw(EFFECTS)
        value = draw(st.integers(1, 2)) if effect not in (Effect.DROP, Effect.CLEAR) else None
        answered = draw(st.sampled_from((begin + length, begin + length, None)))
        calls.append(call(begin, answered, effect, value))
    return calls


def fits_by_brute_force(calls: list[Call]) -> bool:
    """Try every order of every choice of the calls that need not have happened."""
    open_calls = [each for each in calls if each.answered is None]
    for choice in range(1 << len(open_calls)):
        left_out = [each for at, each in enumerate(open_calls) if choice >> at & 1]
        chosen = [each for each in calls if not any(each is other for other in left_out)]
        if any(map(is_lawful_order, permutations(chosen))):
            return True
    return False


def is_lawful_order(order: tuple[Call, ...]) -> bool:
    value: Value = None
    for at, one in enumerate(order):
        later = order[at + 1 :]
        if any(each.answered is not None and each.answered < one.invoked for each in later):
            return False
        after = step(value, one)
        if not after:
            return False
        (value,) = after
    return True


@given(histories())
def test_the_search_agrees_with_trying_every_order(calls: list[Call]) -> None:
    assert is_linearizable(calls, steps_max=STEPS) == fits_by_brute_force(calls)
