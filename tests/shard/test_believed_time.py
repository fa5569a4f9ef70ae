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


def test_leaps_within_the_tolerance_do_not_add_up() -> None:
    """A clock that runs fast, or leaps by a little again and again, is a wrong clock."""
    time = started()
    ahead = 0
    for tick in range(1, 400):
        ahead += MINUTE
        time.tick(tick, START + tick * TICK_MICROS + ahead)
        gained = time.now - START - tick * TICK_MICROS
        assert gained <= TOLERANCE + tick * TICK_MICROS // 100
    assert time.lead > 6 * 60 * MINUTE
    time.tick(400, START + 400 * TICK_MICROS)  # It was put right.
    assert time.now == time.for_removal == START + 400 * TICK_MICROS


def test_a_clock_that_swings_gains_nothing() -> None:
    """The log remembers what was believed, and so what is learnt from it is no support."""
    time = started()
    for tick in range(1, 100):
        swing = TOLERANCE if tick % 2 else 0
        time.learn(time.now)  # It is noted.
        newest = time.now
        time.tick(tick, newest + swing)
        time.learn(newest)
        assert time.now - START <= TOLERANCE + tick * TICK_MICROS * 101 // 100


def test_a_clock_that_parts_from_the_ticks_slowly_is_followed() -> None:
    """As where a machine sleeps for a little now and then, and ticks stand still meanwhile."""
    time = started()
    ahead = 0
    for minute in range(1, 60 * 24):
        tick = minute * MINUTE // TICK_MICROS
        ahead += MINUTE // 200
        time.tick(tick, START + minute * MINUTE + ahead)
        assert time.lead == 0
    assert ahead > TOLERANCE


def test_an_accepted_time_is_followed_however_far_the_clock_had_crept() -> None:
    time = started()
    time.tick(1, START + TICK_MICROS + TOLERANCE)
    crept = START + 2 * TICK_MICROS + TOLERANCE + MINUTE
    time.tick(2, crept)
    assert time.lead == MINUTE
    time.learn(crept)
    for tick in range(3, 300):
        time.tick(tick, crept + tick * TICK_MICROS + MINUTE)
        assert time.lead == 0


def test_a_start_goes_on_with_what_the_monotonic_clock_supports() -> None:
    """Else each restart would allow a clock that creeps one more tolerance."""
    time = BelievedTime(TOLERANCE)
    time.learn(START + TOLERANCE, supported=START)
    time.tick(0, START + TOLERANCE)
    assert time.lead == 0
    time.tick(1, START + TOLERANCE + MINUTE)
    assert time.now == START + TOLERANCE + TICK_MICROS


def test_a_newer_stamp_supports_more_than_a_mark_that_is_far_behind() -> None:
    """An acceptance, say, after which the mark was not written."""
    time = BelievedTime(TOLERANCE)
    time.learn(2 * START, supported=START)
    time.tick(0, 2 * START + MINUTE)
    assert time.now == 2 * START + MINUTE


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
