"""The layout of a segment file: one header block, then wire batches and nothing else.

It is in `wire` so that a Spark executor reads segments without the server. The page
docs/formats/segment.md explains each field.

Invariants: the block names what the file holds, so that a right-looking file in the wrong place is
            refused; it names no replica, so that equal segments are equal files everywhere.
"""

import struct

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.ids import METADATA_GROUP, GroupId, is_partition_group, unpack_namespace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError

_MAGIC = b"HRSEGMT1"
_VERSION = 1
_FIELDS = struct.Struct("<8sIIQQQQ")
_CHECKSUM_START = SEGMENT_HEADER_BYTES - 8
_RESERVED = bytes(_CHECKSUM_START - _FIELDS.size)

assert METADATA_GROUP >= 1 << 52  # never the namespace of a segment


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The partition, incarnation and history of the batches, and their first offset."""

    namespace: int
    created_revision: int
    history_epoch: int
    base_offset: int


def segment_name(base_offset: int) -> str:
    """Return the file name of the segment that begins at an offset."""
    assert 0 <= base_offset < 1 << 64
    return f"{base_offset:020}.log"


def partition_names(namespace: int, created_revision: int) -> tuple[str, ...]:
    """Return the folder of one incarnation of a partition, name by name."""
    stream, topic, partition = unpack_namespace(GroupId(namespace))
    return (str(stream), str(topic), f"{partition}-{created_revision}")


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Return the block that begins a segment file."""
    assert is_partition_group(header.namespace)
    fields = _FIELDS.pack(
        _MAGIC,
        _VERSION,
        SEGMENT_HEADER_BYTES,
        header.namespace,
        header.created_revision,
        header.history_epoch,
        header.base_offset,
    )
    covered = fields + _RESERVED
    return covered + xxh3_64(covered).to_bytes(8, "little")


def decode_segment_header(block: Data) -> SegmentHeader:
    """Read the block that begins a segment file.

    Raises:
        CorruptError: It is cut, damaged, of another version, or no segment's.
    """
    if len(block) < SEGMENT_HEADER_BYTES:
        raise CorruptError(f"segment header of {len(block)} bytes, {SEGMENT_HEADER_BYTES} wanted")
    magic, version, header_bytes, namespace, revision, epoch, base_offset = _FIELDS.unpack_from(
        block
    )
    if magic != _MAGIC:
        raise CorruptError(f"no segment: begins with {magic!r}")
    if version != _VERSION:
        raise CorruptError(f"segment of version {version}, this program reads {_VERSION}")
    covered = memoryview(block)[:_CHECKSUM_START]
    stored = int.from_bytes(block[_CHECKSUM_START:SEGMENT_HEADER_BYTES], "little")
    if stored != xxh3_64(covered):
        raise CorruptError(f"segment header checksum {stored:016x}, {xxh3_64(covered):016x} wanted")
    if header_bytes != SEGMENT_HEADER_BYTES or covered[_FIELDS.size :] != _RESERVED:
        raise CorruptError("segment header with reserved bytes in use")
    if not is_partition_group(namespace):
        raise CorruptError(f"segment header names the namespace {namespace}")
    return SegmentHeader(
        namespace=namespace,
        created_revision=revision,
        history_epoch=epoch,
        base_offset=base_offset,
    )
