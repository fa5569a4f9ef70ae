"""Segment files: used when they are those of the plan, and read as they were committed."""

import os
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.base.ids import Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.client.errors import DataDamaged
from headrace.spark.columns import Clip, ColumnReader, Place
from headrace.spark.segments import SegmentSource, SegmentUnusable, open_segment
from headrace.wire.batches import chain_batch
from headrace.wire.commands.segments import PlannedPiece, PlannedSegment
from headrace.wire.segment import SegmentHeader, encode_segment_header
from tests.kernel.samples import Stamp, batch_of, simple_messages
from tests.node import running_node

HEADER = SegmentHeader(
    namespace=pack_namespace(Namespace(StreamId(1), TopicId(2), PartitionId(7))),
    created_revision=33,
    history_epoch=4,
    base_offset=1000,
)
START = 1_800_000_000_000_000
BATCH_MESSAGES = 10
PIECE_BATCHES = 2
PIECES = 3
PLACE = Place("shop", "orders", 7)


def batch(index: int, payload_bytes: int = 30) -> bytes:
    stamp = Stamp(7, 1000 + BATCH_MESSAGES * index, START + index)
    return batch_of(simple_messages(BATCH_MESSAGES, payload_bytes), stamp)


def checksum(data: bytes) -> int:
    return int.from_bytes(data[40:48], "little")


def plan_piece(index: int) -> PlannedPiece:
    batches = [batch(PIECE_BATCHES * index + each) for each in range(PIECE_BATCHES)]
    chain = 0
    for each in batches:
        chain = chain_batch(chain, checksum(each))
    first = 1000 + BATCH_MESSAGES * PIECE_BATCHES * index
    return PlannedPiece(first, sum(map(len, batches)), chain)


@cache
def content() -> bytes:
    batches = [batch(index) for index in range(PIECE_BATCHES * PIECES)]
    return encode_segment_header(HEADER) + b"".join(batches)


@pytest.fixture
def source(tmp_path: Path) -> SegmentSource:
    """A segment of three pieces with two batches each, in a file."""
    path = tmp_path / "segment.log"
    path.write_bytes(content())
    return SegmentSource(str(path), HEADER, planned())


@cache
def planned() -> PlannedSegment:
    pieces = tuple(plan_piece(index) for index in range(PIECES))
    return PlannedSegment(
        base_offset=1000,
        end_offset=1000 + BATCH_MESSAGES * PIECE_BATCHES * PIECES,
        oldest_stamp=START - 1,
        newest_stamp=START + PIECE_BATCHES * PIECES - 1,
        length=len(content()),
        pieces=pieces,
    )


def read_offsets(source: SegmentSource, clip: Clip | None = None) -> list[int]:
    clip = clip or Clip()
    reader = ColumnReader(PLACE, clip, ("offset",))
    with open_segment(source) as opened:
        return [
            offset
            for piece in opened.pieces(clip)
            for batch in reader.read(piece)
            for offset in batch.column(0).to_pylist()
        ]


def read_spans(source: SegmentSource, clip: Clip) -> list[tuple[int, int]]:
    """Which bytes are read for a range."""
    with open_segment(source) as opened:
        return [(piece.position, len(piece.data)) for piece in opened.pieces(clip)]


def test_a_whole_segment_is_read(source: SegmentSource) -> None:
    assert read_offsets(source) == list(range(1000, 1060))


def test_only_pieces_of_the_range_are_read(source: SegmentSource) -> None:
    size = source.segment.pieces[0].length
    assert read_spans(source, Clip(1025, 1030)) == [(4096 + size, size)]
    assert read_spans(source, Clip(1019, 1021)) == [(4096, size), (4096 + size, size)]
    assert read_spans(source, Clip(1060, 2000)) == []
    assert read_spans(source, Clip(0, 1000)) == []
    assert read_spans(source, Clip(time_min=START + 6)) == []
    assert read_spans(source, Clip(time_max=START - 1)) == []
    assert read_offsets(source, Clip(1015, 1025)) == list(range(1015, 1025))
    assert read_offsets(source, Clip(time_min=START + 5)) == list(range(1050, 1060))


def test_a_file_that_is_longer_than_planned_is_read_as_planned(source: SegmentSource) -> None:
    with Path(source.path).open("ab") as file:
        file.write(b"what a later version of the plan may name")
    assert read_offsets(source) == list(range(1000, 1060))


def test_a_missing_file_is_unusable(source: SegmentSource) -> None:
    Path(source.path).unlink()
    with pytest.raises(SegmentUnusable, match="No such file"), open_segment(source):
        pass


def test_what_is_no_file_is_unusable(source: SegmentSource, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in ((tmp_path, "Is a directory"), (tmp_path / "pipe", "Illegal seek")):
        other = SegmentSource(str(path), HEADER, source.segment)
        with pytest.raises(SegmentUnusable, match=why), open_segment(other):
            pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_a_file_of_another_user_is_unusable(source: SegmentSource) -> None:
    Path(source.path).chmod(0)
    with pytest.raises(SegmentUnusable, match="Permission denied"), open_segment(source):
        pass


@pytest.mark.parametrize("field", ["namespace", "created_revision", "history_epoch", "base_offset"])
def test_a_file_of_something_else_is_unusable(source: SegmentSource, field: str) -> None:
    """Another partition, incarnation or history with the same file name."""
    other = msgspec.structs.replace(HEADER, **{field: getattr(HEADER, field) + 1})
    Path(source.path).write_bytes(encode_segment_header(other) + content()[4096:])
    with pytest.raises(SegmentUnusable, match="is wanted"), open_segment(source):
        pass


def test_a_short_file_is_unusable(source: SegmentSource) -> None:
    for size, why in ((0, "segment header of 0 bytes"), (5000, "5000 bytes, and .* are planned")):
        os.truncate(source.path, size)
        with pytest.raises(SegmentUnusable, match=why), open_segment(source):
            pass
        Path(source.path).write_bytes(content())


def test_a_file_that_is_cut_while_it_is_read_is_damage(source: SegmentSource) -> None:
    with open_segment(source) as opened:
        pieces = opened.pieces(Clip())
        next(pieces)
        os.truncate(source.path, 4096 + source.segment.pieces[0].length + 10)
        with pytest.raises(DataDamaged, match=r"ends at byte .* the offsets 1020 to 1039"):
            next(pieces)


def test_a_good_batch_at_the_wrong_place_is_damage(source: SegmentSource) -> None:
    """It has right checksums: only the plan tells that it does not belong there."""
    data = bytearray(content())
    first, second = batch(2), batch(3)
    at = 4096 + source.segment.pieces[0].length
    data[at : at + len(first) + len(second)] = second + first
    Path(source.path).write_bytes(data)
    with pytest.raises(DataDamaged, match=r"batch of offset 1030 at byte .*, 1020 expected"):
        read_offsets(source)


def test_a_good_batch_that_was_never_committed_is_damage(source: SegmentSource) -> None:
    data = bytearray(content())
    other = batch_of(
        [each._replace(payload=b"y" * 30) for each in simple_messages(BATCH_MESSAGES)],
        Stamp(7, 1020, START + 2),
    )
    at = 4096 + source.segment.pieces[0].length
    data[at : at + len(other)] = other
    Path(source.path).write_bytes(data)
    with pytest.raises(
        DataDamaged, match="the offsets 1020 to 1039, are not the batches that were committed"
    ):
        read_offsets(source)


@pytest.mark.slow
@settings(max_examples=200)
@given(bit=st.integers(0, 8 * len(content()) - 1))
def test_any_flipped_bit_of_a_file_is_noticed(
    bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(content())
    data[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.mktemp("flipped") / "segment.log"
    path.write_bytes(data)
    with pytest.raises((DataDamaged, SegmentUnusable)):
        read_offsets(SegmentSource(str(path), HEADER, planned()))


@pytest.mark.slow
def test_files_of_a_real_node_hold_what_polls_give() -> None:
    """About 2 s: a node, and 4 MiB of messages."""
    with running_node() as node, headrace.connect(str(node.tcp)) as client:
        client.create_stream("shop")
        client.create_topic("shop/orders", options={"segment_size": "1 MiB"})
        for batch_number in range(40):
            values = [b"%d" % (batch_number * 100 + each) * 200 for each in range(100)]
            client.send("shop/orders", values, headers={"batch": batch_number})
        client.flush_partition("shop/orders", 0, sync=True)
        plan = client.plan_segments("shop/orders")
        assert len(plan.segments) == 2
        reader = ColumnReader(Place("shop", "orders", 0), Clip(), ("offset", "payload", "headers"))
        rows = []
        for segment in plan.segments:
            with open_segment(SegmentSource.of(plan, segment)) as opened:
                for piece in opened.pieces(Clip()):
                    for found in reader.read(piece):
                        rows += found.to_pylist()
        polled = client.poll("shop/orders", count=plan.sealed_end)
        assert [(row["offset"], row["payload"], len(row["headers"])) for row in rows] == [
            (message.offset, message.value, 1) for message in polled
        ]
