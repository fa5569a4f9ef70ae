"""Declares the 256 bytes of a header once, for both directions.

Every header begins with the same 128 bytes; a kind adds fields at offsets of its own. What no field
covers is reserved: written as zero, and refused otherwise where the kind says so.
"""

import struct
from operator import attrgetter, itemgetter
from typing import Generic, TypeVar

import msgspec

from headrace.base.limits import HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.errors import RemoteError
from headrace.wire.numbers import FrameKind

SIZE_OFFSET = 48
KIND_OFFSET = 60
LIFE_OFFSET = 62
ORIGIN_OFFSET = 70

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


_COMMON = {
    "checksum": (0, 16),
    "checksum_body": (16, 16),
    "cluster": (32, 16),
    "size": (SIZE_OFFSET, 4),
    "view": (52, 4),
    "release": (56, 4),
    "replica": (61, 1),
    "life": (LIFE_OFFSET, 8),
    "origin": (ORIGIN_OFFSET, 8),
}

H = TypeVar("H", bound=Header)


class Layout(Generic[H]):
    """Where the fields of one kind of header lie.

    A field is an unsigned number of 1, 2, 4, 8 or 16 bytes, or raw bytes of another length.
    """

    def __init__(
        self,
        kind: FrameKind,
        made: type[H],
        *,
        reserved_zero: bool = False,
        **fields: tuple[int, int],
    ) -> None:
        self.kind = kind
        self.made = made
        self.widths = {name: width for name, (_, width) in (_COMMON | fields).items()}
        placed = sorted((_COMMON | fields).items(), key=lambda field: field[1])
        names = [name for name, _ in placed]
        assert sorted(names) == sorted(made.__struct_fields__)
        self._struct, self._reserved = _place(placed, kind)
        self._wide = tuple(
            (index, width == 16) for index, (_, (_, width)) in enumerate(placed) if width > 8
        )
        # Values travel in the order of offsets and are built in the order of the struct's fields.
        self._order = itemgetter(*(names.index(name) for name in made.__struct_fields__))
        self._get = attrgetter(*names)
        self._names = tuple(names)
        self._kind_index = sum(offset < KIND_OFFSET for _, (offset, _) in placed)
        self._reserved_zero = reserved_zero

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


def _place(fields: list[tuple[str, tuple[int, int]]], kind: FrameKind) -> tuple[struct.Struct, int]:
    """Give the struct of the whole header, and the mask of the bits that no field covers."""
    layout = ["<"]
    reserved = (1 << 8 * HEADER_BYTES) - 1
    position = 0
    for _, (offset, width) in sorted(
        [*fields, (kind.name, (KIND_OFFSET, 1))], key=lambda field: field[1]
    ):
        assert offset >= position
        layout.append(f"{offset - position}x" + _FORMATS.get(width, f"{width}s"))
        reserved -= (1 << 8 * width) - 1 << 8 * offset
        position = offset + width
    layout.append(f"{HEADER_BYTES - position}x")
    placed = struct.Struct("".join(layout))
    assert placed.size == HEADER_BYTES
    return placed, reserved
