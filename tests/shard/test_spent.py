"""What a connection remembers of spent numbers is what a list would say, near the highest."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.shard.front.spent import WINDOW, Spent


@given(st.lists(st.integers(-150, 300), max_size=60))
def test_spent_numbers_are_known_within_the_window(jumps: list[int]) -> None:
    spent = Spent(client=1)
    noted: list[int] = []
    at = 1000
    for jump in jumps:
        number = max(1, at + jump)
        if number >= max([0, *noted]) - WINDOW:
            noted.append(number)
        spent.note(number)
        at = max(noted)
        for each in range(at - WINDOW, at + 3):
            assert (each in spent) == (each in noted)
        assert at - WINDOW - 1 not in spent


def test_nothing_is_spent_at_first() -> None:
    assert not any(number in Spent(client=1) for number in (0, 1, 128, 1 << 63))
