"""Where each field lies: the tables of docs/formats/journal.md, superblock.md, checkpoint.md."""

import pytest

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import SHARDS_MAX
from headrace.ports.machine import Artifact
from headrace.ports.recovered import GroupCheckpoint, ViewState
from headrace.storage.checkpoint import (
    CheckpointEncoder,
    checkpoint_checksum,
    decode_checkpoint,
)
from headrace.storage.config import Identity, journal_key
from headrace.storage.copies import BLOCK_BYTES, COPIES
from headrace.storage.layout import LayoutRecord, choose_layout, decode_layout, encode_layout
from headrace.storage.marker import VersionError, decode_marker, encode_marker
from headrace.storage.superblock import (
    Opening,
    Superblock,
    choose_superblock,
    decode_superblock,
    encode_superblock_file,
)
from headrace.wire.errors import CorruptError
from tests.storage.samples import config, prepare, started

IDENTITY = Identity(cluster=0xC0, replica=2, replica_count=3, journal=9, incarnation=0x1CE)


def number(data: bytes, at: int, width: int = 8) -> int:
    return int.from_bytes(data[at : at + width], "little")


def test_a_journal_record() -> None:
    store, disk = started(config())
    header, body = prepare(1, 1)
    store.stage_prepare(header, body)
    store.stage_view(ViewState(1, 7, 5, 3, is_suspect=True))
    store.flush(sync=True)
    store.stage_truncate(1, 4)
    store.flush(sync=True)
    disk.settle(store)
    data = disk.files()["journal.0"]
    assert data[:8] == b"HRJRNAL1"
    assert number(data, 8, 4) == 1
    assert [number(data, at) for at in range(32, 80, 8)] == [1, 1, 1, 0, 0, 0]
    length, head_bytes, count = (number(data, at, 4) for at in (80, 84, 88))
    assert count == 2
    assert head_bytes == 128 + 24 + HEADER_BYTES + 24 + 8
    assert length % 64 == 0
    assert number(data, 120) == xxh3_64(data[:120] + data[128:head_bytes])
    assert data[128:132] == bytes([1, 1, 0, 0])
    assert number(data, 132, 4) == head_bytes
    assert data[152 : 152 + HEADER_BYTES] == header
    view = 152 + HEADER_BYTES
    assert data[view : view + 2] == bytes([3, 1])
    assert [number(data, view + at) for at in (8, 16, 24)] == [1, 7 | 5 << 32, 3]
    assert data[head_bytes : head_bytes + len(body)] == body
    assert number(data, length + 56) == number(data, 120), "the next one names this one"
    assert number(data, length + 40) == 2
    assert number(data, length + 72) == length
    end = length + number(data, length + 80, 4)
    assert data[end : end + 64] == bytes(64)


def test_the_journal_id_is_the_place_and_the_life() -> None:
    key = journal_key(IDENTITY)
    assert key.life == xxh3_64(IDENTITY.pack())
    assert key.place == xxh3_64(IDENTITY.pack()[:24] + bytes(16))


def test_the_marker() -> None:
    data = encode_marker(IDENTITY)
    assert len(data) == 64
    assert data[:8] == b"HRMARKR1"
    assert data[16:56] == IDENTITY.pack()
    assert decode_marker(data) == IDENTITY
    other = data[:8] + bytes([2]) + data[9:56]
    with pytest.raises(VersionError, match="version 2, this program reads 1"):
        decode_marker(other + xxh3_64(other).to_bytes(8, "little"))
    with pytest.raises(CorruptError, match="checksum"):
        decode_marker(other + data[56:])
    with pytest.raises(CorruptError, match="63 bytes"):
        decode_marker(data[:63])
    with pytest.raises(CorruptError, match="no marker"):
        decode_marker(bytes(64))


def test_the_superblock() -> None:
    made = Superblock(
        identity=IDENTITY,
        checkpoint_number=4,
        checkpoint_checksum=5,
        covered=6,
        synced=7,
        tail=3,
        tail_ordinal=2,
        suspect_at=8,
        boot_identity=9,
        file_bytes=4096,
        journal_files=4,
        is_clean=True,
        history=(Opening(1, 1), Opening(2, 5)),
    )
    data = encode_superblock_file(made, sequence=11)
    assert len(data) == COPIES * BLOCK_BYTES
    assert [number(data, at) for at in (16, 4096 + 16)] == [11, 11]
    record = data[32 : 32 + number(data, 24, 4)]
    assert [number(record, at) for at in range(40, 112, 8)] == [4, 5, 6, 7, 3, 2, 8, 9, 4096]
    assert [number(record, at, 4) for at in (128, 132, 136)] == [1, 4, 2]
    assert decode_superblock(choose_superblock(data).payload) == made
    assert made.opening == 2
    with pytest.raises(CorruptError, match="bytes"):
        decode_superblock(record[:-1])
    with pytest.raises(CorruptError, match="bytes"):
        decode_superblock(record[:20])
    with pytest.raises(CorruptError, match="with 65 openings"):
        decode_superblock(record[:136] + bytes([65]) + record[137:] + record[-16:] * 63)
    with pytest.raises(CorruptError, match="covers record 8, synced to 7"):
        decode_superblock(record[:56] + bytes([8]) + record[57:])


def test_the_newest_two_equal_copies_count() -> None:
    old = encode_superblock_file(Superblock(identity=IDENTITY), sequence=1)
    new = encode_superblock_file(Superblock(identity=IDENTITY, boot_identity=5), sequence=2)
    for written in range(COPIES + 1):
        split = written * BLOCK_BYTES
        choice = choose_superblock(new[:split] + old[split:])
        assert choice.sequence == (2 if written >= 2 else 1)
        assert choice.sequence_max == (2 if written else 1)
    torn = b"?" + new[1:BLOCK_BYTES] + old[BLOCK_BYTES:]
    assert choose_superblock(torn).order == (0, 1, 2, 3)
    rotten = old[: 3 * BLOCK_BYTES] + b"?" + old[3 * BLOCK_BYTES + 1 :]
    assert choose_superblock(rotten).order == (3, 0, 1, 2)
    swapped = old[BLOCK_BYTES:] + old[:BLOCK_BYTES]
    assert choose_superblock(swapped).payload == b"", "a copy is valid at its own place only"


def test_the_layout_record() -> None:
    made = LayoutRecord(cluster=1, replica=0, replica_count=3, shard_count=4, generation=9)
    blocks = encode_layout(made, sequence=3)
    assert len(blocks) == COPIES
    choice = choose_layout(b"".join(blocks))
    assert choice.sequence == 3
    assert decode_layout(choice.payload) == made
    assert number(choice.payload, 20, 4) == 4
    with pytest.raises(CorruptError, match="layout record"):
        decode_layout(choice.payload[:-1])
    with pytest.raises(CorruptError, match="0 shards"):
        decode_layout(bytes(len(choice.payload)))
    many = choice.payload[:20] + (SHARDS_MAX + 1).to_bytes(4, "little") + choice.payload[24:]
    with pytest.raises(CorruptError, match=f"{SHARDS_MAX + 1} shards"):
        decode_layout(many)
    assert choose_superblock(b"".join(blocks)).payload == b""


def test_the_checkpoint() -> None:
    header, _ = prepare(1, 5)
    group = GroupCheckpoint(
        ViewState(1, 7, 6, 5, is_suspect=True), header, b"table", (Artifact(2, 3, b"piece"),)
    )
    encoder = CheckpointEncoder(IDENTITY)
    blocks = {1: encoder.encode_group(group)}
    data = encoder.encode(number=4, covered=9, blocks=blocks, ceilings={8: 1000})
    assert data[:8] == b"HRCHKPT1"
    assert data[16:56] == IDENTITY.pack()
    assert [number(data, at) for at in (56, 64, 72)] == [4, 9, len(data)]
    assert [number(data, at) for at in (88, 96)] == [8, 1000]
    at = 88 + 16
    assert number(data, at, 4) == 1
    assert [number(data, at + each) for each in (8, 24)] == [1, 5]
    assert data[at + 48 : at + 48 + HEADER_BYTES] == header
    assert number(data, len(data) - 8) == checkpoint_checksum(data)
    read = decode_checkpoint(data)
    assert (read.groups, read.ceilings, read.covered) == ((group,), {8: 1000}, 9)
    for cut in (0, 50, len(data) - 1):
        with pytest.raises(CorruptError):
            decode_checkpoint(data[:cut])
    newer = data[: at + 20] + bytes([8]) + data[at + 21 : -8]
    with pytest.raises(CorruptError, match="view 7 with a log of view 8"):
        decode_checkpoint(newer + xxh3_64(newer).to_bytes(8, "little"))


def sealed(covered: bytes) -> bytes:
    """Return the bytes of a checkpoint with the length and the checksum that are right for them."""
    covered = covered[:72] + (len(covered) + 8).to_bytes(8, "little") + covered[80:]
    return covered + xxh3_64(covered).to_bytes(8, "little")


def test_a_checkpoint_that_nobody_writes_is_refused() -> None:
    """Its checksum is right, so somebody else has written it."""
    header, _ = prepare(1, 5)
    group = GroupCheckpoint(ViewState(1, 7, 6, 5, is_suspect=False), header, b"table", ())
    encoder = CheckpointEncoder(IDENTITY)
    blocks = {1: encoder.encode_group(group)}
    covered = encoder.encode(number=4, covered=9, blocks=blocks, ceilings={})[:-8]
    assert decode_checkpoint(sealed(covered)).groups == (group,)
    with pytest.raises(CorruptError, match="begins with b'HRCHKPT2'"):
        decode_checkpoint(sealed(b"HRCHKPT2" + covered[8:]))
    with pytest.raises(CorruptError, match="3 bytes left over"):
        decode_checkpoint(sealed(covered + bytes(3)))
    at = covered.index(header)
    unsealed = covered[:at] + bytes([covered[at] ^ 1]) + covered[at + 1 :]
    with pytest.raises(CorruptError, match="unsealed header at its commit point"):
        decode_checkpoint(sealed(unsealed))


def test_another_version_of_the_checkpoint_says_so() -> None:
    """DK20."""
    data = bytearray(
        CheckpointEncoder(IDENTITY).encode(number=1, covered=0, blocks={}, ceilings={})
    )
    data[8] = 2
    data[-8:] = xxh3_64(data[:-8]).to_bytes(8, "little")
    with pytest.raises(VersionError, match="version 2, this program reads 1"):
        decode_checkpoint(bytes(data))
