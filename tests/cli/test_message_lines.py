"""Messages as bytes for stdout."""

import json
from base64 import b64encode

import pytest

from headrace.cli.show.message_lines import Look, Writer, write_values
from headrace.client.messages import Message, encode_headers

MESSAGE = Message(1, 40, b'{"a":[1]}', 1_000_000, 2_000_000, b"\7" + bytes(15), 40, b"")
BINARY = Message(0, 0, b"\xff\x1b[31m", 0, 0, bytes(16), 0, encode_headers({"k": "v"}))


def text_of(look: Look, *messages: Message) -> str:
    writer = Writer(look)
    written = b"".join(writer.write([message]) for message in messages)
    return (written + writer.end()).decode()


def test_values_as_they_are() -> None:
    assert write_values([b"a", b"\xff"], b"\n") == b"a\n\xff\n"
    assert write_values([], b"\n") == b""
    assert Look("table").is_plain
    assert not Look("table", is_terminal=True).is_plain
    assert not Look("jsonl").is_plain


def test_columns() -> None:
    look = Look("table", columns=("partition", "offset", "time", "id"), delimiter=b";")
    assert text_of(look, MESSAGE) == (
        '1\t40\t1970-01-01 00:00:01\t00000000000000000000000000000007\t{"a":[1]};'
    )
    assert Writer(Look("table", columns=("headers",))).write([BINARY]).startswith(b'{"k":"v"}\t')


def test_headers_that_cannot_be_read_are_marked() -> None:
    """Text in them is not shown as text: it may be part of a ciphertext."""
    for opaque in (b"\xff\0", b"text"):
        sealed = Message(0, 0, b"x", 0, 0, bytes(16), 0, opaque)
        (line,) = text_of(Look("jsonl"), sealed, MESSAGE).splitlines()[:1]
        assert json.loads(line)["headers"] == {"!raw": b64encode(opaque).decode()}
        shown = text_of(Look("table", columns=("headers",)), sealed)
        assert json.loads(shown.split("\t")[0]) == {"!raw": b64encode(opaque).decode()}


def test_a_terminal_is_given_no_orders() -> None:
    plain = Message(0, 0, b"\x1b[31mred\ttab", 0, 0, bytes(16), 0, b"")
    assert text_of(Look("table", is_terminal=True), plain) == "\\x1b[31mred\ttab\n"


def test_json_is_indented_and_the_rest_is_left() -> None:
    look = Look("table", is_json=True)
    assert text_of(look, MESSAGE) == '{\n  "a": [\n    1\n  ]\n}\n'
    assert Writer(look).write([BINARY]) == BINARY.value + b"\n"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_is_one_array(count: int) -> None:
    found = json.loads(text_of(Look("json"), *[MESSAGE] * count))
    assert (
        found
        == [
            {
                "partition": 1,
                "offset": 40,
                "timestamp_at": 1_000_000,
                "origin_timestamp_at": 2_000_000,
                "id": "7",
                "value": '{"a":[1]}',
                "encoding": "utf-8",
                "headers": {},
            }
        ]
        * count
    )


def test_json_lines() -> None:
    lines = text_of(Look("jsonl"), MESSAGE, BINARY).splitlines()
    assert [json.loads(line)["encoding"] for line in lines] == ["utf-8", "base64"]
    (line,) = text_of(Look("jsonl", is_json=True), MESSAGE).splitlines()
    assert (json.loads(line)["value"], json.loads(line)["encoding"]) == ({"a": [1]}, "json")


def test_yaml_is_one_list() -> None:
    text = text_of(Look("yaml"), MESSAGE, MESSAGE)
    assert text.count("- partition: 1\n") == 2
    assert text.count("  offset: 40\n") == 2
