"""The name that somebody probably meant."""

import pytest

from headrace.base.nearest import hint_nearest

KNOWN = ("tcp.address", "tcp.enabled", "server.shards", "trigger")


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("tcp.adress", "; did you mean tcp.address?"),
        ("shards", "; did you mean server.shards?"),
        ("trigegr", "; did you mean trigger?"),
        ("colour", ""),
        ("x" * 10_000, ""),
    ],
)
def test_the_nearest_name_is_hinted_at(asked: str, hint: str) -> None:
    assert hint_nearest(asked, KNOWN) == hint


def test_names_may_come_from_an_iterator() -> None:
    assert hint_nearest("shards", iter(KNOWN)) == "; did you mean server.shards?"
