"""What `--filter` can say."""

import pytest

from headrace.cli.tail.filters import keep, parse_filter

VALUES = [
    b'{"who": {"id": 7}, "tags": ["a"]}',
    b"a timeout",
    b"a time-out",
    b"\xff",
    b'{"who": "x"}',
]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("time", [1, 2]),
        ("/time-?out/", [1, 2]),
        ("/^a .*out$/", [1, 2]),
        (".who.id=7", [0]),
        (".who=x", [4]),
        (".tags.0=a", [0]),
        (".tags.1=a", []),
        ('.who={"id":7}', [0]),
        (".who", []),
        ("/", []),
    ],
)
def test_a_filter(text: str, places: list[int]) -> None:
    assert keep(VALUES, [parse_filter(text)]) == places


def test_all_filters_must_match() -> None:
    assert keep(VALUES, [parse_filter("time"), parse_filter("-")]) == [2]


@pytest.mark.parametrize("text", ["", "/(/"])
def test_no_filter(text: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        parse_filter(text)
