"""Typed values, as options and user headers carry them: a kind, a length, the bytes.

Invariants: an unknown kind is passed on unchanged; kind 0 and empty values are refused.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import TypeAlias

import msgspec

from headrace.base.limits import OPTION_FIELD_BYTES_MAX
from headrace.wire.codec import U32, Reader, read_text
from headrace.wire.errors import Code, DecodeError

FIELD_BYTES_MAX = OPTION_FIELD_BYTES_MAX
# The one header under which readers show the bytes of headers that cannot be read: nodes take any
# bytes, because clients that encrypt messages encrypt their headers too.
UNREADABLE_HEADERS = "!raw"

FieldValue: TypeAlias = bytes | str | bool | int | float


class FieldKind(IntEnum):
    """What the bytes of a value mean; numbers are little-endian."""

    RAW = 1
    STRING = 2
    BOOL = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    INT128 = 8
    UINT8 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    UINT128 = 13
    FLOAT32 = 14
    FLOAT64 = 15


_SIGNED_BYTES = {
    FieldKind.INT8: 1,
    FieldKind.INT16: 2,
    FieldKind.INT32: 4,
    FieldKind.INT64: 8,
    FieldKind.INT128: 16,
}
_UNSIGNED_BYTES = {
    FieldKind.UINT8: 1,
    FieldKind.UINT16: 2,
    FieldKind.UINT32: 4,
    FieldKind.UINT64: 8,
    FieldKind.UINT128: 16,
}
_FLOATS = {FieldKind.FLOAT32: struct.Struct("<f"), FieldKind.FLOAT64: struct.Struct("<d")}


class Field(msgspec.Struct, frozen=True, order=True):
    """One value with its kind; the kind stays a number, because unknown ones must pass."""

    kind: int
    data: bytes

    @property
    def value(self) -> FieldValue:
        """The value as a Python object; bytes for raw and for unknown kinds.

        Raises:
            DecodeError: The bytes do not fit the kind.
        """
        if self.kind == FieldKind.STRING:
            return read_text(self.data)
        if self.kind == FieldKind.BOOL:
            self._check_length(1)
            return self.data != b"\0"
        for table, signed in ((_SIGNED_BYTES, True), (_UNSIGNED_BYTES, False)):
            width = table.get(FieldKind(self.kind)) if self.kind in _KNOWN else None
            if width is not None:
                self._check_length(width)
                return int.from_bytes(self.data, "little", signed=signed)
        layout = _FLOATS.get(FieldKind(self.kind)) if self.kind in _KNOWN else None
        if layout is not None:
            self._check_length(layout.size)
            number: float = layout.unpack(self.data)[0]
            return number
        return self.data

    def _check_length(self, wanted: int) -> None:
        if len(self.data) != wanted:
            raise DecodeError(
                f"value of kind {self.kind} has {len(self.data)} bytes, {wanted} wanted",
                Code.INVALID_HEADER_VALUE,
            )


_KNOWN = {int(kind): kind for kind in FieldKind}


def make_field(value: FieldValue, kind: FieldKind | None = None) -> Field:
    """Return the field of a Python value.

    Without a kind, numbers take the smallest that holds them, as the released SDK does: unsigned
    if not negative, 32 bits for a float that fits them exactly.

    Raises:
        ValueError: The value does not fit the kind, or is empty.
        TypeError: The value and the kind do not belong together.
    """
    kind = _smallest_kind(value) if kind is None else kind
    data = _encode_value(value, kind)
    if not 1 <= len(data) <= FIELD_BYTES_MAX:
        raise ValueError(f"value of {len(data)} bytes, allowed 1 to {FIELD_BYTES_MAX}")
    return Field(int(kind), data)


def _smallest_kind(value: FieldValue) -> FieldKind:
    if isinstance(value, bytes):
        return FieldKind.RAW
    if isinstance(value, str):
        return FieldKind.STRING
    if isinstance(value, bool):
        return FieldKind.BOOL
    if isinstance(value, float):
        exact = _FLOATS[FieldKind.FLOAT32]
        try:
            fits = exact.unpack(exact.pack(value))[0] == value
        except OverflowError:
            fits = False
        return FieldKind.FLOAT32 if fits else FieldKind.FLOAT64
    table = _UNSIGNED_BYTES if value >= 0 else _SIGNED_BYTES
    bits = value.bit_length() if value >= 0 else (~value).bit_length() + 1
    for kind, width in table.items():
        if bits <= 8 * width:
            return kind
    raise ValueError(f"{value} does not fit 128 bits")


def _encode_value(value: FieldValue, kind: FieldKind) -> bytes:
    signed = kind in _SIGNED_BYTES
    if isinstance(value, bytes) and kind == FieldKind.RAW:
        return value
    if isinstance(value, str) and kind == FieldKind.STRING:
        return value.encode()
    if isinstance(value, bool) and kind == FieldKind.BOOL:
        return b"\1" if value else b"\0"
    if isinstance(value, int) and not isinstance(value, bool):
        width = _SIGNED_BYTES.get(kind) or _UNSIGNED_BYTES.get(kind)
        if width is not None:
            try:
                return value.to_bytes(width, "little", signed=signed)
            except OverflowError:
                raise ValueError(f"{value} does not fit {kind.name.lower()}") from None
    if isinstance(value, float) and kind in _FLOATS:
        try:
            return _FLOATS[kind].pack(value)
        except OverflowError:
            raise ValueError(f"{value} does not fit {kind.name.lower()}") from None
    raise TypeError(f"{type(value).__name__} is not a {kind.name.lower()}")


class _FieldCodec:
    """Kind in one byte, length in four, 1 to 255 bytes."""

    def read(self, reader: Reader) -> Field:
        kind = reader.take(1)[0]
        length = U32.read(reader)
        if kind == 0:
            raise DecodeError(f"value of kind 0 at {reader.position - 5}", Code.INVALID_HEADER_KIND)
        if not 1 <= length <= FIELD_BYTES_MAX:
            raise DecodeError(
                f"value of {length} bytes at {reader.position - 5}", Code.INVALID_KEY_VALUE_LENGTH
            )
        return Field(kind, bytes(reader.take(length)))

    def write(self, out: bytearray, value: Field) -> None:
        if not 1 <= value.kind <= 255:
            raise ValueError(f"kind {value.kind} is not within 1 to 255")
        if not 1 <= len(value.data) <= FIELD_BYTES_MAX:
            raise ValueError(f"value of {len(value.data)} bytes, allowed 1 to {FIELD_BYTES_MAX}")
        out.append(value.kind)
        U32.write(out, len(value.data))
        out += value.data


FIELD = _FieldCodec()

# A message's user headers, in the order they travel.
UserHeaders: TypeAlias = tuple[tuple[Field, Field], ...]


def decode_user_headers(data: bytes | bytearray | memoryview) -> UserHeaders:
    """Return the headers of one message; keys and values alternate to the last byte.

    Raises:
        DecodeError: These bytes are no headers; readers show them as `UNREADABLE_HEADERS`.
    """
    reader = Reader(data)
    headers = []
    while reader.remaining:
        headers.append((FIELD.read(reader), FIELD.read(reader)))
    return tuple(headers)


def encode_user_headers(headers: Iterable[tuple[Field, Field]]) -> bytes:
    """Write the headers of one message, in their order."""
    out = bytearray()
    for key, value in headers:
        FIELD.write(out, key)
        FIELD.write(out, value)
    return bytes(out)
