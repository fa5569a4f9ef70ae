import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.checksum import xxh3_64
from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.wire.errors import CorruptError
from headrace.wire.segment import (
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    segment_name,
)

HEADER = SegmentHeader(namespace=2**32 + 3, created_revision=8, history_epoch=2, base_offset=500)


def test_where_each_field_lies() -> None:
    """The table of docs/formats/segment.md."""
    block = encode_segment_header(HEADER)
    assert len(block) == SEGMENT_HEADER_BYTES
    assert block[:8] == b"HRSEGMT1"
    numbers = [int.from_bytes(block[at : at + 8], "little") for at in range(16, 48, 8)]
    assert block[8:16] == bytes.fromhex("01000000 00100000")
    assert numbers == [2**32 + 3, 8, 2, 500]
    assert block[48:4088] == bytes(4040)


@given(
    st.integers(0, 999_999),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)
def test_what_is_written_is_read(namespace: int, revision: int, epoch: int, base: int) -> None:
    header = SegmentHeader(
        namespace=namespace, created_revision=revision, history_epoch=epoch, base_offset=base
    )
    assert decode_segment_header(encode_segment_header(header) + b"batches") == header


@given(st.integers(0, SEGMENT_HEADER_BYTES - 1), st.integers(1, 255))
def test_one_flipped_byte_is_always_noticed(position: int, mask: int) -> None:
    """DK10 for the header of a segment."""
    block = bytearray(encode_segment_header(HEADER))
    block[position] ^= mask
    with pytest.raises(CorruptError):
        decode_segment_header(block)


def test_a_cut_block_is_refused() -> None:
    with pytest.raises(CorruptError, match="4095 bytes"):
        decode_segment_header(encode_segment_header(HEADER)[:-1])


def test_another_version_says_so() -> None:
    """DK20."""
    block = bytearray(encode_segment_header(HEADER))
    block[8] = 2
    with pytest.raises(CorruptError, match="version 2, this program reads 1"):
        decode_segment_header(block)


def test_names_sort_as_their_offsets() -> None:
    assert segment_name(500) == "00000000000000000500.log"
    assert segment_name(2**64 - 1) > segment_name(500)


def test_a_segment_of_no_partition_is_refused() -> None:
    """Its checksum is right: somebody else has written it."""
    block = bytearray(encode_segment_header(HEADER))
    block[16:24] = METADATA_GROUP.to_bytes(8, "little")
    block[-8:] = xxh3_64(block[:-8]).to_bytes(8, "little")
    with pytest.raises(CorruptError, match="names the namespace"):
        decode_segment_header(block)
