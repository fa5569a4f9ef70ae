"""Reads messages from bytes: plain lines, checked JSON lines, or rows of a CSV.

Messages come in chunks of what the input holds at the time: a slow pipe is not waited for, and a
fast one costs little per message. A bad line ends its chunk and is reported by its number.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

ROWS_MAX = 1_000


@dataclass(frozen=True)
class Bad:
    """A line that is not a message."""

    line: int
    reason: str


@dataclass
class Chunk:
    """Messages in the order of their lines, and the bad line that may follow them."""

    values: list[bytes] = field(default_factory=list)
    keys: list[str] | None = None  # one per message, if each has its own key
    empty_count: int = 0  # empty lines; a message cannot be empty
    bad: Bad | None = None


def read_lines(blocks: Iterable[bytes], delimiter: bytes) -> Iterator[Chunk]:
    """Yield the text between delimiters, unchanged."""
    for pieces in _split(blocks, delimiter):
        values = [piece for piece in pieces if piece]
        yield Chunk(values, empty_count=len(pieces) - len(values))


def read_json_lines(blocks: Iterable[bytes], key_field: str | None) -> Iterator[Chunk]:
    """Yield lines that are JSON, unchanged; with `key_field` also their keys."""
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
    """Yield rows as JSON objects of texts, with the names of the first row."""
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
    """Split at each delimiter; the rest after the last one is a piece too, unless it is empty."""
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
    """Return the text of a field; dots in the path separate nested objects."""
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
    """Yields lines of text with their ends, and knows whether the next line is available."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._pieces = _split(blocks, b"\n")
        self._here: list[bytes] = []
        self._is_first = True

    @property
    def must_wait(self) -> bool:
        """Whether the next line has to be read from the input."""
        return not self._here

    def __next__(self) -> str:
        if not self._here:
            self._here = next(self._pieces)[::-1]
        # Invalid UTF-8 is reported when its row is encoded, so that later rows are still read.
        line = self._here.pop().decode(errors="surrogateescape") + "\n"
        if self._is_first:
            self._is_first = False
            return line.removeprefix("\ufeff")
        return line
