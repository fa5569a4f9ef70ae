"""SH-25: a number names its home, and is used once."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.base.connection_numbers import ConnectionNumbers, home_of, make_connection_id
from headrace.base.ids import GATEWAY

COUNTER_MAX = (1 << 112) - 1


def test_one_counter_numbers_the_connections_of_all_shards() -> None:
    """SH-25: those that are handed over and those of shard 0; the tag names the home."""
    numbers = ConnectionNumbers(range(3))
    drawn = [numbers.draw(member) for member in (0, 1, 2, 0)]
    assert drawn == [1, 1 << 112 | 2, 2 << 112 | 3, 4]
    assert [home_of(number) for number in drawn] == [0, 1, 2, 0]


def test_one_shard_counts_from_one() -> None:
    numbers = ConnectionNumbers([0])
    assert [numbers.draw(0) for _ in range(3)] == [1, 2, 3]


def test_the_gateway_has_a_tag_of_its_own() -> None:
    """O5.3."""
    numbers = ConnectionNumbers([GATEWAY])
    assert numbers.draw(GATEWAY) == GATEWAY << 112 | 1


def test_the_counter_skips_zero() -> None:
    """SH-25: it stays within its field."""
    numbers = ConnectionNumbers([1], last=COUNTER_MAX - 1)
    assert numbers.draw(1) == 1 << 112 | COUNTER_MAX
    assert numbers.draw(1) == 1 << 112 | 1


def test_numbers_stay_above_what_was_recovered() -> None:
    """SH-25: at the start and with each view; those of strangers are ignored, none goes down."""
    numbers = ConnectionNumbers(range(2))
    numbers.stay_above([5, 1 << 112 | 9, 2 << 112 | 100, GATEWAY << 112 | 100, 0])
    assert numbers.draw(0) == 10
    numbers.stay_above([3])
    numbers.stay_above([])
    assert numbers.draw(1) == 1 << 112 | 11


@given(
    st.lists(
        st.one_of(
            st.integers(0, 4),
            st.lists(st.tuples(st.integers(0, 6), st.integers(1, 50)), max_size=3),
        ),
        max_size=40,
    )
)
def test_no_number_comes_twice(steps: list[int | list[tuple[int, int]]]) -> None:
    numbers = ConnectionNumbers(range(5))
    counters = [0]
    for step in steps:
        if isinstance(step, int):
            drawn = numbers.draw(step)
            assert home_of(drawn) == step
            counters.append(drawn & COUNTER_MAX)
            assert counters[-1] > counters[-2]
        else:
            numbers.stay_above(make_connection_id(member, counter) for member, counter in step)
