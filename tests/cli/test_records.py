"""From bytes to messages, in any pieces."""

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.produce.records import Bad, Chunk, read_csv, read_json_lines, read_lines

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut data into blocks, as a pipe may give them."""
    blocks, position = [], 0
    for size in sizes:
        blocks.append(data[position : position + size])
        position += size
    return [block for block in [*blocks, data[position:]] if block]


def values(chunks: list[Chunk]) -> list[bytes]:
    return [value for chunk in chunks for value in chunk.values]


@settings(max_examples=50)
@given(
    lines=st.lists(st.binary(max_size=6).filter(lambda line: b"\n" not in line), max_size=20),
    sizes=st.lists(st.integers(1, 9), max_size=20),
)
def test_lines_do_not_depend_on_the_pieces(lines: list[bytes], sizes: list[int]) -> None:
    chunks = list(read_lines(cut(b"\n".join(lines), sizes), b"\n"))
    assert values(chunks) == [line for line in lines if line]


def test_another_delimiter_and_empty_lines() -> None:
    (first, last) = read_lines([b"a\0\0b\nc\0d"], b"\0")
    assert first == Chunk([b"a", b"b\nc"], empty_count=1)
    assert last == Chunk([b"d"])


@settings(max_examples=30)
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=10),
    sizes=st.lists(st.integers(1, 9), max_size=30),
)
def test_rows_do_not_depend_on_the_pieces(rows: list[tuple[str, str]], sizes: list[int]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    chunks = list(read_csv(cut(out.getvalue().encode(), sizes), ",", None))
    assert [json.loads(value) for value in values(chunks)] == [
        {"a": first, "b": second} for first, second in rows
    ]
    assert not any(chunk.bad for chunk in chunks)


def test_bad_json_is_named_by_its_line() -> None:
    chunks = list(read_json_lines([b'{"a": 1}\n\nnot json\n{"a": 2}\n[3'], None))
    assert values(chunks) == [b'{"a": 1}', b'{"a": 2}']
    bad = [chunk.bad for chunk in chunks if chunk.bad]
    assert [each.line for each in bad] == [3, 5]
    assert "malformed" in bad[0].reason
    assert sum(chunk.empty_count for chunk in chunks) == 1


def test_keys_are_fields() -> None:
    data = b'{"who": {"id": 7}}\n{"who": {"id": "ada"}}\n{"who": 1}\n{"who": {"id": []}}\n'
    chunks = list(read_json_lines([data], "who.id"))
    assert [chunk.keys for chunk in chunks if chunk.values] == [["7", "ada"]]
    assert [chunk.bad for chunk in chunks if chunk.bad] == [
        Bad(3, "no field who.id"),
        Bad(4, "field who.id is no key: text or a number is one"),
    ]


def test_bad_rows_are_named_and_the_next_are_read() -> None:
    data = b'\xef\xbb\xbfid,name\n1,ada\n2\n3,\xff\n"4"x,y\n\n5,eve\n'
    chunks = list(read_csv([data], ",", "id"))
    assert values(chunks) == [b'{"id":"1","name":"ada"}', b'{"id":"5","name":"eve"}']
    assert [key for chunk in chunks for key in chunk.keys or ()] == ["1", "5"]
    assert [(chunk.bad.line, chunk.bad.reason) for chunk in chunks if chunk.bad] == [
        (3, "1 fields, the first row has 2"),
        (4, "not UTF-8"),
        (5, "',' expected after '\"'"),
    ]


def test_a_row_that_is_here_is_not_held_back() -> None:
    """A pipe that trickles: what it gave is a chunk before the next block is asked for."""
    given_blocks = iter([b"a;b\n1;2\n3;4\n", b"5;6\n"])
    chunks = read_csv(given_blocks, ";", None)
    assert len(next(chunks).values) == 2
    assert next(given_blocks) == b"5;6\n"


@pytest.mark.parametrize("head", [b"a,a\n1,2\n", b"a,\n1,2\n"])
def test_columns_have_names(head: bytes) -> None:
    with pytest.raises(ValueError, match="the first row must name every column, each once"):
        list(read_csv([head], ",", None))


def test_nothing_is_no_rows() -> None:
    assert values(list(read_csv([], ",", None))) == []
