"""A lane at several shards fails unless a third of its requests crossed the bus."""

from tests.crossings import Crossings


def test_one_third_is_enough() -> None:
    assert Crossings(received=9, forwarded=3).are_enough
    assert Crossings(received=9, forwarded=3).describe() == "3 of 9 requests crossed the bus (33%)"


def test_less_than_one_third_is_named() -> None:
    crossed = Crossings()
    crossed.add(received=9, forwarded=2)
    assert not crossed.are_enough
    assert crossed.describe().startswith("FAILED: 2 of 9 requests")


def test_a_lane_that_noted_nothing_need_not_cross() -> None:
    assert Crossings().are_enough
