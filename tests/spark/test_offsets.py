"""Offsets: equal ones are equal text, and what is not ours is told."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.offsets import (
    Key,
    OffsetsError,
    Position,
    decode_group,
    decode_offsets,
    encode_offsets,
)

KEYS = st.builds(Key, st.sampled_from(["a/b", "a/c", "z/é"]), st.integers(0, 20))
NUMBERS = st.integers(0, 2**63)
POSITIONS = st.dictionaries(KEYS, st.builds(Position, NUMBERS, NUMBERS, NUMBERS), max_size=8)


@given(POSITIONS, st.none() | st.text(min_size=1))
def test_what_was_written_is_read(positions: dict[Key, Position], group: str | None) -> None:
    text = json.dumps(encode_offsets(positions, group))
    assert decode_offsets(json.loads(text)) == positions
    assert decode_group(json.loads(text)) == group


@given(POSITIONS, st.randoms())
def test_order_makes_no_other_text(positions: dict[Key, Position], random: Random) -> None:
    shuffled = list(positions.items())
    random.shuffle(shuffled)
    text = json.dumps(encode_offsets(positions, "g"))
    assert json.dumps(encode_offsets(dict(shuffled), "g")) == text
    assert json.dumps(json.loads(text), sort_keys=True) == text


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        '{"topics": []}',
        '{"topics": {"a/b": {"x": {"history": 0, "incarnation": 0, "next": 0}}}}',
        '{"topics": {"a/b": {"0": {"history": 0, "incarnation": 0}}}}',
        '{"topics": {"a/b": {"0": {"history": 0, "incarnation": 0, "next": -1}}}}',
        '{"topics": {"a/b": {"0": {"history": 0, "incarnation": 0, "next": "5"}}}}',
        '{"topics": {"a/b": {"0": {"history": 0, "incarnation": 0, "next": true}}}}',
    ],
)
def test_offsets_of_others_are_refused(text: str) -> None:
    with pytest.raises(OffsetsError, match="new checkpoint folder"):
        decode_offsets(json.loads(text))


def test_places_in_two_logs_are_not_compared() -> None:
    assert Position(1, 0, 5).is_same_log(Position(1, 0, 9))
    assert not Position(1, 0, 5).is_same_log(Position(2, 0, 5))
    assert not Position(1, 0, 5).is_same_log(Position(1, 1, 5))
