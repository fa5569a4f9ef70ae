"""Stores of one moment and of two, as values (DK16)."""

import pytest

from headrace.storage.moments import Moment, find_older


@pytest.mark.parametrize(
    ("moments", "older"),
    [
        ({"a": Moment(3, True), "b": Moment(3, True)}, None),
        ({"a": Moment(0, True), "b": Moment(0, True)}, None),
        ({"a": Moment(3, True), "b": Moment(4, False)}, None),  # a crash while they were opened
        ({"a": Moment(4, False), "b": Moment(3, True)}, None),
        ({"a": Moment(3, True), "b": Moment(4, True)}, "a"),
        ({"a": Moment(9, True), "b": Moment(0, False)}, "b"),
    ],
)
def test_an_older_store_is_found(moments: dict[str, Moment], older: str | None) -> None:
    found = find_older(moments)
    assert (found and found[0]) == older
    assert found is None or "restore the whole data folder from one copy" in found[1]
