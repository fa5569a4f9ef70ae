"""User headers as an Arrow map: names are text, values are the bytes as sent.

A message without headers is null. If a name occurs twice the last one wins, as in the client. A
name that is not text becomes the text of its value. Numbers are little-endian, and a text casts to
`string` unchanged. Headers that cannot be decoded, such as encrypted ones, are one entry: their
bytes under the name `!raw`.

Flow: read.
"""

import numpy as np
import pyarrow as pa

from headrace.kernel import Columns
from headrace.wire.errors import DecodeError
from headrace.wire.fields import UNREADABLE_HEADERS, Field, decode_user_headers

HEADERS_TYPE = pa.map_(pa.string(), pa.binary())
# Most producers send the same few sets of headers repeatedly.
_KNOWN_MAX = 1024


def decode_headers(made: Columns) -> pa.Array:
    """Return the column of the headers; Python code runs only for messages with headers."""
    count = made.messages_count
    if not made.headers:
        return pa.nulls(count, HEADERS_TYPE)
    ends = np.frombuffer(made.header_offsets, dtype=np.int32)
    having = np.flatnonzero(np.diff(ends))
    known: dict[bytes, dict[str, bytes]] = {}
    names: list[str] = []
    values: list[bytes] = []
    sizes = np.zeros(count, dtype=np.int32)
    for index in having.tolist():
        pairs = _decode(made.headers[ends[index] : ends[index + 1]], known)
        names += pairs.keys()
        values += pairs.values()
        sizes[index] = len(pairs)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    # A null offset makes its entry null; the last one, which ends the column, is never null.
    is_none = np.append(sizes == 0, [False])
    return pa.MapArray.from_arrays(
        pa.array(offsets, mask=is_none), pa.array(names, pa.string()), pa.array(values, pa.binary())
    )


def _decode(raw: bytes, known: dict[bytes, dict[str, bytes]]) -> dict[str, bytes]:
    found = known.get(raw)
    if found is None:
        found = _read(raw)
        if len(known) < _KNOWN_MAX:
            known[raw] = found
    return found


def _read(raw: bytes) -> dict[str, bytes]:
    try:
        return {_name(key): value.data for key, value in decode_user_headers(raw)}
    except DecodeError:
        return {UNREADABLE_HEADERS: raw}


def _name(key: Field) -> str:
    """Return the name of a header; bytes that are not text are escaped."""
    try:
        value = key.value
    except DecodeError:
        value = key.data
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
