"""What is believed of a wall clock."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.shard.consensus.believed_time import TICK_MICROS, BelievedTime

START = 1_700_000_000_000_000
MINUTE = 60_000_000
TOLERANCE = 5 * MINUTE


def started(stamp: int = START) -> BelievedTime:
    time = BelievedTime(TOLERANCE)
    time.learn(stamp)
    time.tick(0, START)
    return time


def test_a_first_start_has_but_its_clock() -> None:
    time = BelievedTime(TOLERANCE)
    time.learn(0)
    for tick, clock in enumerate((START, 0, 2 * START)):
        time.tick(tick, clock)
        assert (time.now, time.lead) == (clock, 0)


def test_a_first_stamp_of_others_counts_more_than_the_own_clock() -> None:
    time = BelievedTime(TOLERANCE)
    time.tick(0, START + 2 * TOLERANCE)
    time.learn(START)
    time.tick(1, START + 2 * TOLERANCE)
    assert time.now == START + TICK_MICROS


def test_a_clock_is_followed_within_the_tolerance_both_ways() -> None:
    time = started()
    for tick, off in enumerate((TOLERANCE, 0, -TOLERANCE, -1, 200_000_000)):
        clock = START + tick * TICK_MICROS + off
        time.tick(tick, clock)
        assert (time.now, time.lead) == (clock, 0)


def test_a_leap_is_not_followed_and_time_goes_on_by_ticks() -> None:
    for leap in (TOLERANCE + 1, -TOLERANCE - 1, 10 * START, -START):
        time = started()
        time.tick(100, START + 100 * TICK_MICROS + leap)
        assert time.now == START + 100 * TICK_MICROS
        assert time.lead == leap
        time.look(START + 100 * TICK_MICROS + leap)
        time.tick(300, START + 300 * TICK_MICROS + leap)
        assert (time.now, time.lead) == (START + 300 * TICK_MICROS, leap)
        time.tick(301, START + 301 * TICK_MICROS)
        assert (time.now, time.lead) == (START + 301 * TICK_MICROS, 0)


def test_a_leap_at_a_start_is_held_against_the_newest_stamp() -> None:
    time = started(START - TOLERANCE - 1)
    assert time.now == START - TOLERANCE - 1
    assert started(START - TOLERANCE).now == START


def test_a_stamp_that_is_later_makes_a_leap_right() -> None:
    time = started()
    time.tick(1, 2 * START)
    assert time.now < 2 * START
    time.learn(2 * START)
    time.tick(2, 2 * START + TICK_MICROS)
    assert (time.now, time.lead) == (2 * START + TICK_MICROS, 0)


def test_what_goes_waits_for_the_clock_too() -> None:
    time = started(2 * START)
    assert (time.now, time.for_removal) == (2 * START, START)
    ahead = started()
    ahead.tick(1, 2 * START)
    assert ahead.for_removal == ahead.now == START + TICK_MICROS


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(-(1 << 50), 1 << 50)), max_size=50))
def test_no_clock_makes_anything_older_than_the_tolerance(
    moves: list[tuple[int, int]],
) -> None:
    """Whatever it says: less than a tolerance a look is gained over the ticks."""
    time = started()
    before, tick = time.now, 0
    for ticks, off in moves:
        tick += ticks
        time.tick(tick, max(0, START + tick * TICK_MICROS + off))
        passed = time.now - before
        assert abs(passed - ticks * TICK_MICROS) <= TOLERANCE
        assert time.for_removal <= time.now
        before = time.now
