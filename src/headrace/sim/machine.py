"""The machine that simulations replicate: an append-only log of keyed records, and a key table.

A request appends one record and is answered with its offset. The state is cut into pieces of about
`PIECE_BYTES`: a piece that is full never changes again, so a transfer needs several of them and a
receiver that already holds some need not fetch them.

Invariants: offsets start at 0 and rise by one; a record's hash covers all records before it and the
            offset that its key had before, so a wrong key table shows at the key's next record.
"""

import struct
from collections.abc import Iterable, Sequence

from headrace.base.checksum import xxh3_64
from headrace.ports.machine import Artifact, Piece
from headrace.ports.network import Buffer
from headrace.wire.errors import Code
from headrace.wire.numbers import Operation
from headrace.wire.replica.artifacts import ArtifactKind
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_rejection
from headrace.wire.requests import RequestHeader

PIECE_BYTES = 512
NO_OFFSET = (1 << 64) - 1

RECORDS = 16  # a kind of artifact that only this machine has; it holds records
RECORD = struct.Struct("<QHI")  # offset, bytes of the key, bytes of the value
_LINK = struct.Struct("<QQ")  # hash so far, offset that the key had
_TABLE = struct.Struct("<QQI")  # next offset, hash so far, keys
_KEY = struct.Struct("<QH")  # last offset, bytes of the key


def encode_append(key: bytes, value: bytes) -> bytes:
    """Return the body of a request that appends."""
    return len(key).to_bytes(2, "little") + key + value


class AppendMachine:
    """An append-only log of keyed records, and a key table."""

    def __init__(self, piece_bytes: int = PIECE_BYTES) -> None:
        self._piece_bytes = piece_bytes
        self._sealed: list[Artifact] = []
        self._tail = bytearray()
        self._tail_first = 0
        self._keys: dict[bytes, int] = {}
        self._hash = 0
        self.next_offset = 0

    def prepare(self, header: RequestHeader, body: Buffer, timestamp: int) -> Buffer:
        """Take it as it is."""
        return body

    def foresee(self, ops: Iterable[tuple[PrepareHeader, Buffer]]) -> None:
        """Need not know."""

    def admits(self, header: PrepareHeader, body: Buffer) -> bool:
        """Take any: what is malformed changes nothing."""
        return True

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Append; what is no append, or is malformed, changes nothing and says so."""
        body = bytes(body)
        if header.operation in (Operation.LOGOUT, Operation.DISCONNECT):
            return b""
        if header.operation != Operation.CREATE_STREAM:
            return RESULT_OK
        key_bytes = int.from_bytes(body[:2], "little")
        if len(body) < 2 + key_bytes:
            return encode_rejection(Code.INVALID_FORMAT)
        return RESULT_OK + self._append(bytes(body[2 : 2 + key_bytes]), body[2 + key_bytes :])

    def state_hash(self) -> int:
        """Return the hash of all records and of how the keys moved."""
        return self._hash

    def export(self) -> tuple[Artifact, ...]:
        """Return all pieces in order, the last one open, and then the key table."""
        pieces = list(self._sealed)
        if self._tail:
            pieces.append(
                Artifact(RECORDS, self._tail_first, bytes(self._tail)),
            )
        table = _TABLE.pack(self.next_offset, self._hash, len(self._keys)) + b"".join(
            _KEY.pack(offset, len(key)) + key for key, offset in sorted(self._keys.items())
        )
        pieces.append(Artifact(ArtifactKind.METADATA_SNAPSHOT, 0, table))
        return tuple(pieces)

    def checkpoint(self) -> tuple[Artifact, ...]:
        """Return the same as `export`."""
        return self.export()

    def install(self, artifacts: Sequence[Piece]) -> None:
        """Take over a state whose pieces follow each other without a gap."""
        self.__init__(self._piece_bytes)  # type: ignore[misc]  # every field starts again
        table = b""
        for artifact in artifacts:
            assert isinstance(artifact, Artifact), "all of it is in memory"
            if artifact.kind == ArtifactKind.METADATA_SNAPSHOT:
                table = artifact.data
                continue
            assert artifact.kind == RECORDS
            assert artifact.frontier == self.next_offset, "pieces follow each other"
            self._read_piece(artifact)
        if table:
            self._read_table(table)
        assert table or not artifacts, "the key table is part of every state"

    def _append(self, key: bytes, value: bytes) -> bytes:
        offset = self.next_offset
        record = RECORD.pack(offset, len(key), len(value)) + key + value
        before = self._keys.get(key, NO_OFFSET)
        self._hash = xxh3_64(_LINK.pack(self._hash, before) + record)
        self._keys[key] = offset
        self._tail += record
        self.next_offset = offset + 1
        self._seal()
        return offset.to_bytes(8, "little")

    def _seal(self) -> None:
        if len(self._tail) < self._piece_bytes:
            return
        self._sealed.append(Artifact(RECORDS, self._tail_first, bytes(self._tail)))
        self._tail.clear()
        self._tail_first = self.next_offset

    def _read_piece(self, artifact: Artifact) -> None:
        position = 0
        while position < len(artifact.data):
            offset, key_bytes, value_bytes = RECORD.unpack_from(artifact.data, position)
            assert offset == self.next_offset, "records follow each other"
            self.next_offset = offset + 1
            position += RECORD.size + key_bytes + value_bytes
        assert position == len(artifact.data), "a piece ends with a record"
        self._tail += artifact.data
        self._seal()

    def _read_table(self, table: bytes) -> None:
        next_offset, self._hash, count = _TABLE.unpack_from(table)
        assert next_offset == self.next_offset, "the table belongs to these pieces"
        position = _TABLE.size
        for _ in range(count):
            offset, key_bytes = _KEY.unpack_from(table, position)
            position += _KEY.size
            self._keys[table[position : position + key_bytes]] = offset
            position += key_bytes
        assert position == len(table)
