"""The state that a replica fetches when its peers no longer hold its part of the log.

A manifest names artifacts, each with its kind, how far it reaches, its length and its checksum; the
client table is one of them.

Invariants: both end with a checksum of all bytes before it; nothing of a damaged one is used.
"""

from enum import IntEnum

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import CLIENT_TABLE_REPLIES_MAX, MANIFEST_ENTRIES_MAX
from headrace.wire.batches import chain_batch, decode_batch_header, split_batches
from headrace.wire.codec import FLAG, U8, U32, U64, U128, Data, Reader, Record
from headrace.wire.errors import CorruptError, DecodeError

_MANIFEST_MAGIC = b"HSM1"
_MANIFEST_ENTRY_BYTES = 25
_CLIENT_TABLE_MAGIC = b"HCT1"
_CHECKSUM_BYTES = 8


class ArtifactKind(IntEnum):
    """The content of an artifact."""

    METADATA_SNAPSHOT = 0
    CLIENT_TABLE = 1
    SEGMENT_LOG = 2
    CONSUMER_OFFSETS = 3


class Artifact(msgspec.Struct, frozen=True):
    """One thing to fetch; the kind stays a number, so that a newer peer can offer more."""

    kind: int
    frontier: int
    length: int
    checksum: int


class ClientEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of one client in the client table; replies are whole frames, oldest first."""

    client: int
    epoch: int
    user_id: int
    watermark: int
    watermark_checksum: int
    is_connected: bool = True
    replies: tuple[bytes, ...] = ()


_ARTIFACT = Record(Artifact, kind=U8, frontier=U64, length=U64, checksum=U64)


def encode_manifest(artifacts: tuple[Artifact, ...]) -> bytes:
    """Write a manifest."""
    if len(artifacts) > MANIFEST_ENTRIES_MAX:
        raise ValueError(f"manifest of {len(artifacts)} artifacts, limit {MANIFEST_ENTRIES_MAX}")
    out = bytearray(_MANIFEST_MAGIC)
    U32.write(out, len(artifacts))
    U8.write(out, _MANIFEST_ENTRY_BYTES)
    for artifact in artifacts:
        _ARTIFACT.write(out, artifact)
    return _with_checksum(out)


def decode_manifest(data: Data) -> tuple[Artifact, ...]:
    """Read a manifest; entries may be longer than ours, their unknown rest is skipped.

    Raises:
        CorruptError: It is damaged, or not a manifest.
    """
    reader = _checked(data, _MANIFEST_MAGIC)
    try:
        count = U32.read(reader)
        entry_bytes = U8.read(reader)
        if (
            count > MANIFEST_ENTRIES_MAX
            or entry_bytes < _MANIFEST_ENTRY_BYTES
            or count * entry_bytes != reader.remaining
        ):
            raise CorruptError(f"manifest of {count} entries of {entry_bytes} bytes")
        return tuple([_ARTIFACT.read(Reader(reader.take(entry_bytes))) for _ in range(count)])
    except DecodeError as error:
        raise CorruptError(f"manifest: {error}") from None


def artifact_checksum(kind: int, data: Data) -> int:
    """Return the checksum that identifies an artifact.

    For a run of batches it is the chain of their checksums, which a machine extends batch by batch.

    Raises:
        CorruptError: A run of batches is cut.
    """
    if kind != ArtifactKind.SEGMENT_LOG:
        return xxh3_64(data)
    chain = 0
    try:
        for batch in split_batches(data):
            chain = chain_batch(chain, decode_batch_header(batch).checksum)
    except DecodeError as error:
        raise CorruptError(f"run of batches: {error}") from None
    return chain


def encode_client_table(entries: tuple[ClientEntry, ...]) -> bytes:
    """Write a client table, in the order given."""
    out = bytearray(_CLIENT_TABLE_MAGIC)
    U32.write(out, len(entries))
    for entry in entries:
        if len(entry.replies) > CLIENT_TABLE_REPLIES_MAX:
            raise ValueError(f"{len(entry.replies)} replies, limit {CLIENT_TABLE_REPLIES_MAX}")
        U128.write(out, entry.client)
        U64.write(out, entry.epoch)
        U32.write(out, entry.user_id)
        U64.write(out, entry.watermark)
        U128.write(out, entry.watermark_checksum)
        FLAG.write(out, entry.is_connected)
        U8.write(out, len(entry.replies))
        for reply in entry.replies:
            U32.write(out, len(reply))
            out += reply
    return _with_checksum(out)


def decode_client_table(data: Data) -> tuple[ClientEntry, ...]:
    """Read a client table.

    Raises:
        CorruptError: It is damaged, or not a client table.
    """
    reader = _checked(data, _CLIENT_TABLE_MAGIC)
    try:
        count = U32.read(reader)
        if count > reader.remaining:
            raise CorruptError(f"client table of {count} entries in {reader.remaining} bytes")
        entries = tuple([_read_client(reader) for _ in range(count)])
    except DecodeError as error:
        raise CorruptError(f"client table: {error}") from None
    if reader.remaining:
        raise CorruptError(f"client table with {reader.remaining} bytes left over")
    return entries


def _read_client(reader: Reader) -> ClientEntry:
    entry = {
        "client": U128.read(reader),
        "epoch": U64.read(reader),
        "user_id": U32.read(reader),
        "watermark": U64.read(reader),
        "watermark_checksum": U128.read(reader),
    }
    is_connected = FLAG.read(reader)
    replies_count = U8.read(reader)
    if replies_count > CLIENT_TABLE_REPLIES_MAX:
        raise CorruptError(f"client with {replies_count} replies, limit {CLIENT_TABLE_REPLIES_MAX}")
    replies = tuple([bytes(reader.take(U32.read(reader))) for _ in range(replies_count)])
    return ClientEntry(is_connected=is_connected, replies=replies, **entry)


def _with_checksum(out: bytearray) -> bytes:
    return bytes(out) + xxh3_64(out).to_bytes(_CHECKSUM_BYTES, "little")


def _checked(data: Data, magic: bytes) -> Reader:
    """Return a reader of the bytes between magic and checksum."""
    view = memoryview(data)
    covered = view[:-_CHECKSUM_BYTES]
    if len(view) < len(magic) + _CHECKSUM_BYTES or covered[: len(magic)] != magic:
        raise CorruptError(f"{len(view)} bytes do not begin with {magic!r}")
    if xxh3_64(covered) != int.from_bytes(view[-_CHECKSUM_BYTES:], "little"):
        raise CorruptError(f"{magic!r} of {len(view)} bytes has a wrong checksum")
    return Reader(covered[len(magic) :])
