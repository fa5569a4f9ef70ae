import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.table import LowestFree, Table


class Thing(msgspec.Struct):
    id: int
    name: str


def test_things_are_found_by_number_and_by_name() -> None:
    table: Table[Thing] = Table()
    for number, name in ((4, "d"), (0, "a"), (2, "0")):
        table.add(Thing(number, name))
    assert [thing.name for thing in table] == ["a", "0", "d"]
    assert len(table) == 3
    assert table.find(2) is table.find("0")
    assert table.find(1) is None
    assert table.find("b") is None


def test_a_renamed_thing_gives_its_name_free() -> None:
    table: Table[Thing] = Table()
    first, second = Thing(0, "a"), Thing(1, "b")
    table.add(first)
    table.add(second)
    table.rename(first, "c")
    assert table.is_taken("b", but_for=first)
    assert not table.is_taken("a", but_for=second)
    assert not table.is_taken("b", but_for=second)
    table.rename(second, "a")
    table.rename(second, "a")
    table.remove(first)
    assert (table.find("a"), table.find("c"), table.find(0)) == (second, None, None)


def test_a_number_or_name_stands_once() -> None:
    table: Table[Thing] = Table()
    table.add(Thing(0, "a"))
    for thing in (Thing(0, "b"), Thing(1, "a")):
        with pytest.raises(AssertionError):
            table.add(thing)
    with pytest.raises(AssertionError):
        table.remove(Thing(0, "a"))


@given(st.lists(st.integers(0, 12)))
def test_the_next_number_follows_from_those_taken(moves: list[int]) -> None:
    """A number that is taken is given back, any other means: take the lowest."""
    keys = LowestFree()
    taken: list[int] = []
    for move in moves:
        if move in taken:
            taken.remove(move)
            keys.give_back(move)
        else:
            expected = next(number for number in range(99) if number not in taken)
            assert keys.take() == expected
            taken.append(expected)
        restored = LowestFree(sorted(taken))
        probes = [restored.take() for _ in range(3)]
        free = [number for number in range(99) if number not in taken]
        assert probes == free[:3]
