"""Each kind of value: what it reads and what it refuses."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.units import parse_bytes, parse_duration
from headrace.server.config.kinds import (
    SECOND,
    Factor,
    Flag,
    Folder,
    Kind,
    Listener,
    Name,
    SecretText,
    Shards,
    Text,
    Word,
    count,
    duration,
    show_bytes,
    show_duration,
    size,
)
from headrace.wire.topic_options import UNLIMITED

KINDS: tuple[Kind, ...] = (
    count(1, 9),
    size(1, 1 << 40, step=512),
    size(1, 1 << 40, unbounded="unlimited"),
    duration(1, 1 << 40, unbounded="never"),
    Factor(0.5, 2.0),
    Flag(),
    Word(("a", "b")),
    Name(),
    Folder(),
    Listener(),
    Shards(),
    Text(3, 5),
    SecretText(3, 5),
)
RAW = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.lists(st.integers(), max_size=2)
    | st.from_regex(r"[0-9]{1,6}(\.[0-9])? ?(B|KiB|MiB|GB|s|ms|days)?", fullmatch=True)
)


def refuses(kind: Kind, raw: object) -> bool:
    try:
        kind.read(raw)
    except ValueError:
        return True
    return False


@settings(max_examples=50)
@given(kind=st.sampled_from(KINDS), raw=RAW)
def test_any_value_is_read_or_refused(kind: Kind, raw: object) -> None:
    try:
        value = kind.read(raw)
    except ValueError:
        assert kind.allowed
        return
    if not isinstance(kind, SecretText | Folder):
        assert kind.read(kind.show(value)) == value or isinstance(value, float)


@given(st.integers(0, 1 << 60))
def test_shown_quantities_are_exact(value: int) -> None:
    assert parse_bytes(show_bytes(value)) == value
    assert parse_duration(show_duration(value)) == value


def test_bounds_are_allowed_and_their_neighbours_not() -> None:
    kind = duration(SECOND, 10 * SECOND, step=SECOND)
    assert kind.allowed == "1 s to 10 s in steps of 1 s"
    assert (kind.read("1 s"), kind.read("10000 ms")) == (SECOND, 10 * SECOND)
    for raw in ("999 ms", "1500 ms", "11 s", "never", "", 5, 5.0, True):
        assert refuses(kind, raw), raw


def test_no_bound() -> None:
    kind = size(1, 10, unbounded="unlimited")
    assert kind.read("unlimited") == UNLIMITED
    assert kind.show(UNLIMITED) == "unlimited"
    assert refuses(kind, UNLIMITED)


@pytest.mark.parametrize(
    "text", ["", "+1", "-1", "1.0", "0x10", "\N{ARABIC-INDIC DIGIT ONE}", "1" * 30]
)
def test_counts_are_plain_digits(text: str) -> None:
    assert refuses(count(0, 1 << 62), text)


def test_paths() -> None:
    assert Folder().read("~/data") == Path.home() / "data"
    for raw in ("", "a\0b", "x" * 5000, "~nobody-of-that-name/data", 1):
        assert refuses(Folder(), raw), raw
