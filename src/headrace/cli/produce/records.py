"""From bytes to messages: lines as they are, JSON lines that are checked, rows of a CSV.

Messages come in chunks, as many as the input holds at the time, so that a pipe that trickles is
not waited for and one that pours costs little for each message. What is no message ends its chunk
and is named by its line.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

ROWS_MAX = 1_000


@dataclass(frozen=True)
class Bad:
    """A line that is no message."""

    line: int
    reason: str


@dataclass
class Chunk:
    """Messages in the order of their lines, and the bad line that may follow them."""

    values: list[bytes] = field(default_factory=list)
    keys: list[str] | None = None  # one for each message, if they have keys of their own
    empty_count: int = 0  # lines without anything, which no message can be
    bad: Bad | None = None


def read_lines(blocks: Iterable[bytes], delimiter: bytes) -> Iterator[Chunk]:
    """Give the pieces between delimiters, as they are."""
    for pieces in _split(blocks, delimiter):
        values = [piece for piece in pieces if piece]
        yield Chunk(values, empty_count=len(pieces) - len(values))


def read_json_lines(blocks: Iterable[bytes], key_field: str | None) -> Iterator[Chunk]:
    """Give lines that are JSON, as they are; with a field, their keys too."""
    number = 0
    for lines in _split(blocks, b"\n"):
        chunk = _new_chunk(key_field)
        for line in lines:
            number += 1
            if not line.strip():
                chunk.empty_count += 1
                continue
            try:
                _add(chunk, line, msgspec.json.decode(line), key_field)
            except (ValueError, msgspec.MsgspecError) as error:
                chunk.bad = Bad(number, f"{error}")
                yield chunk
                chunk = _new_chunk(key_field)
        yield chunk


def read_csv(blocks: Iterable[bytes], delimiter: str, key_field: str | None) -> Iterator[Chunk]:
    """Give rows as JSON objects, from the names in the first row to their texts."""
    lines = _Lines(blocks)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    names = next(rows, None)
    if names is None:
        return
    if len(dict.fromkeys(names)) != len(names) or "" in names:
        raise ValueError(f"the first row must name every column, each once: {', '.join(names)}")
    chunk = _new_chunk(key_field)
    while True:
        try:
            row = next(rows)
            _add_row(chunk, names, row, key_field)
        except StopIteration:
            break
        except (ValueError, csv.Error) as error:
            chunk.bad = Bad(rows.line_num, str(error))
        if chunk.bad or lines.must_wait or len(chunk.values) >= ROWS_MAX:
            yield chunk
            chunk = _new_chunk(key_field)
    yield chunk


def _split(blocks: Iterable[bytes], delimiter: bytes) -> Iterator[list[bytes]]:
    """Cut at each delimiter; what follows the last one is a piece too, unless it is empty."""
    rest = b""
    for block in blocks:
        *pieces, rest = (rest + block).split(delimiter)
        if pieces:
            yield pieces
    if rest:
        yield [rest]


def _new_chunk(key_field: str | None) -> Chunk:
    return Chunk(keys=None if key_field is None else [])


def _add(chunk: Chunk, line: bytes, value: object, key_field: str | None) -> None:
    if key_field is not None:
        assert chunk.keys is not None
        chunk.keys.append(_find_key(value, key_field))
    chunk.values.append(line)


def _add_row(chunk: Chunk, names: list[str], row: list[str], key_field: str | None) -> None:
    if not row:
        chunk.empty_count += 1
        return
    if len(row) != len(names):
        raise ValueError(f"{len(row)} fields, the first row has {len(names)}")
    value = dict(zip(names, row, strict=True))
    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise ValueError("not UTF-8") from None
    _add(chunk, line, value, key_field)


def _find_key(value: object, path: str) -> str:
    """Give the text of a field; a path goes from object to object by dots."""
    found = value
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            raise ValueError(f"no field {path}")
        found = found[name]
    if isinstance(found, str) and found:
        return found
    if isinstance(found, bool | int | float):
        return msgspec.json.encode(found).decode()
    raise ValueError(f"field {path} is no key: text or a number is one")


class _Lines(Iterator[str]):
    """Gives lines of text with their ends, and knows whether the next one is here already."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._pieces = _split(blocks, b"\n")
        self._here: list[bytes] = []
        self._is_first = True

    @property
    def must_wait(self) -> bool:
        """Whether the next line would have to be read."""
        return not self._here

    def __next__(self) -> str:
        if not self._here:
            self._here = next(self._pieces)[::-1]
        # What is not UTF-8 is noticed when its row is written, so that the rows after it are read.
        line = self._here.pop().decode(errors="surrogateescape") + "\n"
        if self._is_first:
            self._is_first = False
            return line.removeprefix("\ufeff")
        return line
