"""Every body of every command, as properties: round trip, any cut, any damage."""

from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.bus.feed import Subject
from headrace.wire.bus.gathered import ANSWERS, QUESTIONS
from headrace.wire.codec import Codec, Record, decode, encode
from headrace.wire.commands import internal
from headrace.wire.commands.table import COMMANDS
from headrace.wire.errors import DecodeError
from headrace.wire.permissions import PERMISSIONS
from tests.wire.values import Values, values_of

INTERNAL = {
    name.lower(): codec for name, codec in vars(internal).items() if isinstance(codec, Record)
}
BODIES: dict[str, Codec[Any]] = {
    **{f"{code} {command.name} request": command.request for code, command in COMMANDS.items()},
    **{f"{code} {command.name} reply": command.reply for code, command in COMMANDS.items()},
    **{f"internal {name}": codec for name, codec in INTERNAL.items() if not name.startswith("_")},
    **{f"question {Subject(subject).name}": codec for subject, codec in QUESTIONS.items()},
    **{f"answer {Subject(subject).name}": codec for subject, codec in ANSWERS.items()},
    "permissions": PERMISSIONS,
}
every_body = pytest.mark.parametrize("name", BODIES)


@cache
def values(name: str) -> Values:
    return values_of(BODIES[name])


@every_body
@settings(max_examples=15)
@given(data=st.data())
def test_what_is_written_is_read(name: str, data: st.DataObject) -> None:
    codec = BODIES[name]
    value = data.draw(values(name))
    assert decode(codec, encode(codec, value)) == value


@every_body
@settings(max_examples=15)
@given(data=st.data())
def test_a_cut_body_is_refused_or_read_but_never_worse(name: str, data: st.DataObject) -> None:
    codec = BODIES[name]
    whole = encode(codec, data.draw(values(name)))
    cut = data.draw(st.integers(0, len(whole)))
    decode_or_refuse(codec, whole[:cut])


@every_body
@settings(max_examples=15)
@given(data=st.data())
def test_a_damaged_body_is_refused_or_read_but_never_worse(name: str, data: st.DataObject) -> None:
    codec = BODIES[name]
    damaged = bytearray(encode(codec, data.draw(values(name))))
    for _ in range(data.draw(st.integers(1, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(codec, damaged)


def decode_or_refuse(codec: Codec[Any], data: bytes | bytearray) -> None:
    with suppress(DecodeError):
        decode(codec, data)


@pytest.mark.parametrize("count", [4, 2**31, 2**32 - 1])
def test_a_count_beyond_the_body_is_refused_at_once(count: int) -> None:
    """CL1: nested counts that exceed the frame."""
    body = bytes(8) + count.to_bytes(4, "little") + bytes(3)
    with pytest.raises(DecodeError, match=f"count of {count}"):
        COMMANDS[606].decode_reply(body)


def test_bytes_after_a_body_are_ignored() -> None:
    command = COMMANDS[202]
    reply = command.encode_reply(command.decode_reply(bytes(32) + b"\x02s1" + bytes(4)))
    assert command.decode_reply(reply + b"more") == command.decode_reply(reply)


def test_get_one_without_a_body_is_not_found() -> None:
    for code in (21, 31, 120, 200, 300, 600, 606):
        assert COMMANDS[code].decode_reply(b"") is None
        assert COMMANDS[code].encode_reply(None) == b""


def test_topics_without_a_body_are_none() -> None:
    assert COMMANDS[301].decode_reply(b"") == ()
