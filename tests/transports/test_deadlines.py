"""Deadlines of many with the same patience."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.transports.deadlines import Deadlines


def test_a_key_has_at_least_its_time() -> None:
    deadlines: Deadlines[str] = Deadlines(2)
    deadlines.begin("a")
    assert deadlines.sweep() == []
    assert deadlines.sweep() == []
    assert deadlines.sweep() == ["a"]
    assert deadlines.sweep() == []
    assert len(deadlines) == 0


def test_the_oldest_is_the_first_that_began() -> None:
    deadlines: Deadlines[str] = Deadlines(2)
    deadlines.begin("a")
    deadlines.begin("b")
    assert deadlines.oldest() == "a"
    deadlines.begin("a")
    assert deadlines.oldest() == "b"
    deadlines.end("b")
    deadlines.end("b")
    assert "b" not in deadlines
    assert deadlines.oldest() == "a"


@settings(max_examples=25)
@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("bes"), st.integers(0, 3))))
def test_as_a_plain_count(patience: int, steps: list[tuple[str, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines(patience)
    left: dict[int, int] = {}
    for step, key in steps:
        if step == "b":
            deadlines.begin(key)
            left[key] = patience + 1
        elif step == "e":
            deadlines.end(key)
            left.pop(key, None)
        else:
            left = {each: count - 1 for each, count in left.items()}
            expired = sorted(each for each, count in left.items() if count == 0)
            assert sorted(deadlines.sweep()) == expired
            left = {each: count for each, count in left.items() if count}
        assert len(deadlines) == len(left)
