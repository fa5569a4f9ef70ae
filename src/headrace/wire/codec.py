"""The elements of bodies: numbers, names, lists, records.

A codec reads a value from a `Reader` and writes it to a bytearray; records are composed of the
codecs of their fields, so each body is declared once and works in both directions.

Flow:       decode, reply.
Invariants: a read never passes the end of the body; a count from the wire allocates nothing.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from headrace.base.limits import NAME_BYTES_MAX
from headrace.base.secret import Secret
from headrace.wire.errors import DecodeError

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)
S = TypeVar("S", bound=msgspec.Struct)

Data: TypeAlias = bytes | bytearray | memoryview


class Reader:
    """A cursor over a body that refuses to pass its end."""

    __slots__ = ("_end", "_position", "_view")

    def __init__(self, data: Data) -> None:
        self._view = memoryview(data)
        self._position = 0
        self._end = len(self._view)

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return self._end - self._position

    @property
    def position(self) -> int:
        """How many bytes were read."""
        return self._position

    def take(self, count: int) -> memoryview:
        """Read the next bytes, as a view."""
        assert count >= 0
        end = self._position + count
        if end > self._end:
            raise DecodeError(f"{count} bytes wanted at {self._position}, {self.remaining} left")
        view = self._view[self._position : end]
        self._position = end
        return view

    def take_rest(self) -> memoryview:
        """Read all that is left."""
        return self.take(self.remaining)


class Codec(Protocol[T]):
    """Reads and writes one kind of value."""

    def read(self, reader: Reader) -> T:
        """Read one value.

        Raises:
            DecodeError: The bytes do not hold one.
        """

    def write(self, out: bytearray, value: T) -> None:
        """Append one value.

        Raises:
            ValueError: The value does not fit the field.
        """


def decode(codec: Codec[T], data: Data) -> T:
    """Read a value that begins a body; bytes after it are ignored, as the protocol says."""
    return codec.read(Reader(data))


def decode_exactly(codec: Codec[T], data: Data) -> T:
    """Read a value that fills its bytes to the last."""
    reader = Reader(data)
    value = codec.read(reader)
    if reader.remaining:
        raise DecodeError(f"{reader.remaining} bytes left over at {reader.position}")
    return value


def encode(codec: Codec[T], value: T) -> bytes:
    """Write a value as bytes."""
    out = bytearray()
    codec.write(out, value)
    return bytes(out)


class Number:
    """An unsigned little-endian integer of a fixed width."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.max = (1 << 8 * width) - 1

    def read(self, reader: Reader) -> int:
        return int.from_bytes(reader.take(self.width), "little")

    def write(self, out: bytearray, value: int) -> None:
        if not 0 <= value <= self.max:
            raise ValueError(f"{value} is not within 0 to {self.max}")
        out += value.to_bytes(self.width, "little")


class _Float32:
    _LAYOUT = struct.Struct("<f")

    def read(self, reader: Reader) -> float:
        value: float = self._LAYOUT.unpack(reader.take(4))[0]
        return value

    def write(self, out: bytearray, value: float) -> None:
        try:
            out += self._LAYOUT.pack(value)
        except OverflowError:
            raise ValueError(f"{value} does not fit 32 bits") from None


class _Flag:
    """One byte; any but zero reads as true."""

    def read(self, reader: Reader) -> bool:
        return reader.take(1)[0] != 0

    def write(self, out: bytearray, value: bool) -> None:  # noqa: FBT001  # a codec's value
        out.append(1 if value else 0)


class _Nothing:
    """The body of a request or reply that carries none."""

    def read(self, reader: Reader) -> None:
        return None

    def write(self, out: bytearray, value: None) -> None:
        return None


class ShortBytes:
    """Bytes behind a length of one byte."""

    def __init__(self, *, bytes_min: int) -> None:
        self._bytes_min = bytes_min

    def read(self, reader: Reader) -> bytes:
        length = reader.take(1)[0]
        if length < self._bytes_min:
            raise DecodeError(f"field of {length} bytes at {reader.position - 1}")
        return bytes(reader.take(length))

    def write(self, out: bytearray, value: bytes) -> None:
        if not self._bytes_min <= len(value) <= NAME_BYTES_MAX:
            raise ValueError(
                f"field of {len(value)} bytes, allowed {self._bytes_min} to {NAME_BYTES_MAX}"
            )
        out.append(len(value))
        out += value


class SecretBytes(ShortBytes):
    """Bytes behind a length of one byte, hidden from every `repr`."""

    def read(self, reader: Reader) -> Secret:
        return Secret(super().read(reader))


class _Name:
    """UTF-8 text of 1 to 255 bytes behind a length of one byte."""

    def read(self, reader: Reader) -> str:
        return read_text(NAME_BYTES.read(reader))

    def write(self, out: bytearray, value: str) -> None:
        NAME_BYTES.write(out, value.encode())


class _Text:
    """UTF-8 text, maybe empty, behind a length of four bytes."""

    def read(self, reader: Reader) -> str:
        return read_text(reader.take(U32.read(reader)))

    def write(self, out: bytearray, value: str) -> None:
        data = value.encode()
        U32.write(out, len(data))
        out += data


class _Rest:
    """All bytes up to the end of the body, as a view."""

    def read(self, reader: Reader) -> memoryview:
        return reader.take_rest()

    def write(self, out: bytearray, value: memoryview) -> None:
        out += value


class Repeated(Generic[T]):
    """Values back to back up to the end of the body."""

    def __init__(self, item: Codec[T]) -> None:
        self._item = item

    def read(self, reader: Reader) -> tuple[T, ...]:
        items = []
        while reader.remaining:
            items.append(self._item.read(reader))
        return tuple(items)

    def write(self, out: bytearray, value: tuple[T, ...]) -> None:
        for item in value:
            self._item.write(out, item)


class Counted(Generic[T]):
    """Values behind their number.

    A count that the remaining bytes cannot hold is refused before the first value is read; every
    value takes at least one byte.
    """

    def __init__(self, count: Number, item: Codec[T]) -> None:
        self._count = count
        self._item = item

    def read(self, reader: Reader) -> tuple[T, ...]:
        count = self._count.read(reader)
        if count > reader.remaining:
            raise DecodeError(f"count of {count} with {reader.remaining} bytes left")
        return tuple([self._item.read(reader) for _ in range(count)])

    def write(self, out: bytearray, value: tuple[T, ...]) -> None:
        self._count.write(out, len(value))
        for item in value:
            self._item.write(out, item)


class Optional(Generic[T]):
    """A value behind a byte that says whether it is present."""

    def __init__(self, item: Codec[T]) -> None:
        self._item = item

    def read(self, reader: Reader) -> T | None:
        return self._item.read(reader) if FLAG.read(reader) else None

    def write(self, out: bytearray, value: T | None) -> None:
        FLAG.write(out, value is not None)
        if value is not None:
            self._item.write(out, value)


class Maybe(Generic[T]):
    """A value that is absent when no bytes are left: how a read answers "not found"."""

    def __init__(self, item: Codec[T]) -> None:
        self._item = item

    def read(self, reader: Reader) -> T | None:
        return self._item.read(reader) if reader.remaining else None

    def write(self, out: bytearray, value: T | None) -> None:
        if value is not None:
            self._item.write(out, value)


class Sized(Generic[T]):
    """A value behind its length in four bytes, which it must fill exactly."""

    def __init__(self, item: Codec[T]) -> None:
        self._item = item

    def read(self, reader: Reader) -> T:
        return decode_exactly(self._item, reader.take(U32.read(reader)))

    def write(self, out: bytearray, value: T) -> None:
        data = encode(self._item, value)
        U32.write(out, len(data))
        out += data


class Enumerated(Generic[E]):
    """A number that must be a member of an enumeration."""

    def __init__(self, number: Number, members: type[E]) -> None:
        self._number = number
        self._members = members

    def read(self, reader: Reader) -> E:
        number = self._number.read(reader)
        try:
            return self._members(number)
        except ValueError:
            raise DecodeError(f"{self._members.__name__} {number} is not known") from None

    def write(self, out: bytearray, value: E) -> None:
        self._number.write(out, value)


class Record(Generic[S]):
    """A struct whose fields follow each other on the wire in the order given."""

    def __init__(
        self,
        made: Callable[..., S],
        /,
        **fields: Codec[Any],  # Each field has its own type; `made` decides whether they fit.
    ) -> None:
        self._made = made
        self._fields = tuple(fields.items())

    def read(self, reader: Reader) -> S:
        return self._made(**{name: codec.read(reader) for name, codec in self._fields})

    def write(self, out: bytearray, value: S) -> None:
        for name, codec in self._fields:
            codec.write(out, getattr(value, name))


class Headed(Generic[S, T]):
    """A struct of two fields: a record that counts, and the values that it counts."""

    def __init__(
        self,
        made: type[S],
        head: Codec[T],
        count: Callable[[T], int],
        item: Codec[Any],  # The items have the type of the struct's second field.
    ) -> None:
        self._made = made
        self._head = head
        self._count = count
        self._item = item

    def read(self, reader: Reader) -> S:
        head = self._head.read(reader)
        count = self._count(head)
        if count > reader.remaining:
            raise DecodeError(f"count of {count} with {reader.remaining} bytes left")
        return self._made(head, tuple([self._item.read(reader) for _ in range(count)]))

    def write(self, out: bytearray, value: S) -> None:
        head, items = (getattr(value, name) for name in self._made.__struct_fields__)
        if self._count(head) != len(items):
            raise ValueError(f"{len(items)} values behind a count of {self._count(head)}")
        self._head.write(out, head)
        for item in items:
            self._item.write(out, item)


def read_text(data: Data) -> str:
    """Read UTF-8 text, as names, options and headers carry it."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"text is not UTF-8 at byte {error.start}") from None


U8 = Number(1)
U16 = Number(2)
U32 = Number(4)
U64 = Number(8)
U128 = Number(16)
F32 = _Float32()
FLAG = _Flag()
NOTHING = _Nothing()
NAME_BYTES = ShortBytes(bytes_min=1)
SECRET = SecretBytes(bytes_min=0)  # the server checks the bounds of a password
NAME = _Name()
TEXT = _Text()
REST = _Rest()
