"""One segment read batch by batch: how a walk goes on behind a batch that hides the next one."""

from pathlib import Path

import pytest

from headrace.base.ids import Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.partitions.log import PartitionLog
from headrace.partitions.options import PartitionOptions
from headrace.runtime.files.segment_tree import folder_names, index_name
from headrace.server.doctor.report import FileReport, Lost, Verdict
from headrace.server.doctor.segments import examine_segments
from headrace.wire.batches import decode_batch_header
from headrace.wire.segment import SegmentHeader, encode_segment_header, segment_name
from tests.kernel.samples import Stamp, batch_of, simple_messages

PARTITION = 5
BATCHES = 12
MESSAGES = 10
BATCH_AT_FIELD = 8  # base_offset of a batch's header


class Made:
    """A sealed segment of one piece on the disk, with its index: an entry for every third batch."""

    def __init__(self, root: Path) -> None:
        options = PartitionOptions(
            namespace=pack_namespace(Namespace(StreamId(3), TopicId(2), PartitionId(PARTITION))),
            created_revision=7,
        )
        self.root = root
        self.log = PartitionLog(options)
        self.positions: list[int] = []
        batches = []
        for number in range(BATCHES):
            stamp = Stamp(PARTITION, number * MESSAGES, 1_900_000_000_000_000 + number)
            batches.append(batch_of(simple_messages(MESSAGES, 2_500), stamp))
            self.positions.append(self.log.append(decode_batch_header(batches[-1]))[1])
        segment = self.log.segments[0]
        segment.is_sealed = True
        folder = root.joinpath(*folder_names(segment.file))
        folder.mkdir(parents=True)
        self.file = folder / segment_name(0)
        header = SegmentHeader(
            namespace=options.namespace, created_revision=7, history_epoch=0, base_offset=0
        )
        self.file.write_bytes(encode_segment_header(header) + b"".join(batches))
        self.index = folder / index_name(0)
        assert segment.index is not None
        self.index.write_bytes(segment.index.encode(segment.file, segment.length))

    def spoil(self, position: int) -> None:
        data = bytearray(self.file.read_bytes())
        data[position] ^= 1
        self.file.write_bytes(data)

    def examine(self) -> list[FileReport]:
        return list(examine_segments(self.root, self.log, {}, "shop/orders, partition 5"))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_all_is_right(made: Made) -> None:
    segment, index = made.examine()
    assert (segment.verdict, segment.lost) == (Verdict.FINE, ())
    assert segment.text == "sealed, offsets 0 to 119"
    assert index.verdict == Verdict.FINE


def test_a_broken_batch_header_costs_that_batch(made: Made) -> None:
    made.spoil(made.positions[4] + BATCH_AT_FIELD)
    segment, index = made.examine()
    assert segment.lost == (Lost(40, 49),)
    assert segment.position == made.positions[4]
    assert index.verdict == Verdict.FINE


def test_without_an_index_it_costs_no_more(made: Made) -> None:
    made.index.unlink()
    made.spoil(made.positions[4] + BATCH_AT_FIELD)
    (segment,) = made.examine()
    assert segment.lost == (Lost(40, 49),)


def test_an_index_that_lies_is_not_followed_astray(made: Made) -> None:
    """The checkpoint does not vouch for it: it names no place."""
    made.index.write_bytes(made.index.read_bytes()[:-1] + b"?")
    made.spoil(made.positions[4] + 300)
    segment, index = made.examine()
    assert segment.lost == (Lost(40, 49),)
    assert index.verdict == Verdict.REPAIRED


@pytest.mark.parametrize("field", [32, 33, 48])
def test_a_length_or_a_count_that_lies_is_not_believed(made: Made, field: int) -> None:
    made.spoil(made.positions[4] + field)
    assert made.examine()[0].lost == (Lost(40, 49),)


def test_the_last_batch(made: Made) -> None:
    made.spoil(made.positions[-1] + BATCH_AT_FIELD)
    assert made.examine()[0].lost == (Lost(110, 119),)
