"""The name that somebody probably meant."""

import pytest

from headrace.base.nearest import hint_nearest, refuse_unknown

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


def test_an_unknown_option_is_refused_with_what_was_meant_or_what_is_taken() -> None:
    refuse_unknown("connect()", ["trigger"], KNOWN)
    with pytest.raises(TypeError, match=r"connect\(\) got .* 'trigegr'; did you mean trigger\?"):
        refuse_unknown("connect()", ["trigger", "trigegr"], KNOWN)
    with pytest.raises(TypeError, match=r"'colour'; it takes tcp.address, tcp.enabled, server"):
        refuse_unknown("connect()", ["colour"], KNOWN)
