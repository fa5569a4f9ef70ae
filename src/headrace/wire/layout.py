"""Declares the 256 bytes of a header once, for both directions.

Every header begins with the same 128 bytes; a kind adds fields at offsets of its own. What no field
covers is reserved: written as zero, and refused otherwise where the kind says so.

No other module knows an offset: code that needs one field of a header, or a few of them in one
call, asks the layout for it when it is imported (`at`, `span`, `struct`).
"""

import struct
from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import Generic, TypeAlias, TypeVar

import msgspec

from headrace.base.limits import HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.errors import RemoteError
from headrace.wire.numbers import FrameKind

Place: TypeAlias = tuple[int, int]  # offset and width of a field, in bytes
Span: TypeAlias = "slice[int, int, None]"

_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Header(msgspec.Struct, frozen=True):
    """What all frames have in common; fields default to zero, as on the wire."""

    checksum: int = 0
    checksum_body: int = 0
    cluster: int = 0
    size: int = HEADER_BYTES
    view: int = 0
    release: int = 0
    replica: int = 0
    life: int = 0  # between replicas: rises with every start of the sender
    origin: int = 0  # between replicas: the created_revision of the partition, 0 for metadata


_COMMON: dict[str, Place] = {
    "checksum": (0, 16),
    "checksum_body": (16, 16),
    "cluster": (32, 16),
    "size": (48, 4),
    "view": (52, 4),
    "release": (56, 4),
    "replica": (61, 1),
    "life": (62, 8),
    "origin": (70, 8),
}
_KIND: Place = (60, 1)  # no field of a header: each layout has one


def _span(place: Place) -> Span:
    offset, width = place
    return slice(offset, offset + width)


CHECKSUM = _span(_COMMON["checksum"])
CHECKSUM_BODY = _span(_COMMON["checksum_body"])
SIZE = _span(_COMMON["size"])
VIEW = _span(_COMMON["view"])
LIFE = _span(_COMMON["life"])
ORIGIN = _span(_COMMON["origin"])
SIZE_OFFSET = SIZE.start
SIZE_END = SIZE.stop
KIND_OFFSET = _KIND[0]
CLUSTER_OFFSET = _COMMON["cluster"][0]

H = TypeVar("H", bound=Header)


class Layout(Generic[H]):
    """The places of the fields of one kind of header.

    A field is an unsigned number of 1, 2, 4, 8 or 16 bytes, or raw bytes of another length.
    """

    def __init__(
        self,
        kind: FrameKind,
        made: type[H],
        *,
        reserved_zero: bool = False,
        **fields: Place,
    ) -> None:
        self.kind = kind
        self.made = made
        placed = sorted((_COMMON | fields).items(), key=lambda field: field[1])
        names = [name for name, _ in placed]
        assert sorted(names) == sorted(made.__struct_fields__)
        self._places = _COMMON | fields | {"kind": _KIND}
        self._struct = self.struct(*self._places, end=HEADER_BYTES)
        self._reserved = _reserved(self._places.values())
        self._wide = tuple(
            (index, width == 16) for index, (_, (_, width)) in enumerate(placed) if width > 8
        )
        # Values travel in the order of offsets and are built in the order of the struct's fields.
        self._order = itemgetter(*(names.index(name) for name in made.__struct_fields__))
        self._get = attrgetter(*names)
        self._kind_index = sum(offset < KIND_OFFSET for _, (offset, _) in placed)
        self._reserved_zero = reserved_zero

    def at(self, name: str) -> int:
        """Return the offset of a field."""
        return self._places[name][0]

    def span(self, name: str) -> Span:
        """Return the bytes of a field."""
        return _span(self._places[name])

    def struct(
        self, *names: str, start: int = 0, end: int | None = None, are_halved: bool = False
    ) -> struct.Struct:
        """Return the struct of some fields, `kind` among them or not, in the order of offsets.

        It begins at byte `start` of the header and ends with the last of the fields, or at `end`;
        what lies between is skipped. A number of 16 bytes is raw bytes in it, or if `are_halved`
        its low and its high half.
        """
        wide = "QQ" if are_halved else "16s"
        formats = ["<"]
        position = start
        for offset, width in sorted(self._places[name] for name in names):
            assert offset >= position
            formats.append(
                f"{offset - position}x" + _FORMATS.get(width, wide if width == 16 else f"{width}s")
            )
            position = offset + width
        if end is not None:
            formats.append(f"{end - position}x")
            position = end
        placed = struct.Struct("".join(formats))
        assert placed.size == position - start
        return placed

    def encode(self, header: H) -> bytes:
        """Write the header's 256 bytes."""
        values = list(self._get(header))
        for index, is_number in self._wide:
            if is_number:
                values[index] = values[index].to_bytes(16, "little")
        values.insert(self._kind_index, self.kind)
        try:
            return self._struct.pack(*values)
        except struct.error as error:
            raise ValueError(f"{self.kind.name}: {error}") from None

    def decode(self, data: Data) -> H:
        """Read the first 256 bytes of a frame.

        Raises:
            RemoteError: They are of another kind, or break a rule of this one.
        """
        if len(data) < HEADER_BYTES or data[KIND_OFFSET] != self.kind:
            raise RemoteError(f"{len(data)} bytes are no {self.kind.name} header")
        values = list(self._struct.unpack_from(data))
        del values[self._kind_index]
        for index, is_number in self._wide:
            if is_number:
                values[index] = int.from_bytes(values[index], "little")
        if self._reserved_zero:
            bits = int.from_bytes(data[:HEADER_BYTES], "little")
            if bits & self._reserved:
                raise RemoteError(f"reserved bytes of {self.kind.name} are not zero")
        return self.made(*self._order(values))


def _reserved(places: Iterable[Place]) -> int:
    """Return the mask of the bits that no field covers."""
    reserved = (1 << 8 * HEADER_BYTES) - 1
    for offset, width in places:
        reserved -= (1 << 8 * width) - 1 << 8 * offset
    return reserved
