"""Names and numbers, as arguments give them."""

import click
import pytest

from headrace.cli.names import parse_identifier, read_pairs, read_topic, show_topic

PARAM = click.Argument(["x"])
CONTEXT = click.Context(click.Command("x"))


@pytest.mark.parametrize(
    ("text", "meant"),
    [("shop", "shop"), ("7", 7), ("0", 0), ("name:7", "7"), ("-1", "-1"), ("٣", "٣"), ("7a", "7a")],
)
def test_identifiers(text: str, meant: int | str) -> None:
    assert parse_identifier(text) == meant


@pytest.mark.parametrize("text", ["", "name:", "4294967296", "x" * 256, "ä" * 128])
def test_what_names_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"allowed 1 to 255|above 4294967295"):
        parse_identifier(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("shop/orders", ("shop", "orders")), ("1/2", (1, 2)), ("1/name:2", (1, "2"))],
)
def test_topics(text: str, meant: tuple[int | str, int | str]) -> None:
    assert read_topic(CONTEXT, PARAM, text) == meant
    assert show_topic(meant) == text.replace("name:", "")


@pytest.mark.parametrize("text", ["shop", "shop/", "/orders", "a/b/c", "", "shop/4294967296"])
def test_what_is_no_topic(text: str) -> None:
    with pytest.raises(click.BadParameter):
        read_topic(CONTEXT, PARAM, text)


def test_pairs() -> None:
    assert read_pairs(CONTEXT, PARAM, ("a=b", "c=d=e", "f=")) == {"a": "b", "c": "d=e", "f": ""}
    for wrong in (("a",), ("=b",), ("a=b", "a=c")):
        with pytest.raises(click.BadParameter):
            read_pairs(CONTEXT, PARAM, wrong)
