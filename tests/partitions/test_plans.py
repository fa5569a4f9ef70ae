"""The segment plan: it names what is in the files, all of it and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions import plans
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import chain_batch, decode_batch_header, split_batches
from headrace.wire.commands.segments import OffsetRange, PlannedSegment, SegmentPlan
from headrace.wire.segment import decode_segment_header
from tests.partitions.stage import NAMESPACE, REVISION, Stage, make_options
from tests.partitions.transfers import offered

FOLDER = "/data/partitions"


def plan(stage: Stage, start: int = 0, folder: str = FOLDER) -> SegmentPlan:
    return stage.machine.plan_segments(start, folder)


def filled(sends: int = 25) -> Stage:
    stage = Stage()
    for _ in range(sends):
        stage.send()
    stage.store()
    return stage


def check_file(stage: Stage, plan: SegmentPlan, segment: PlannedSegment) -> None:
    """Hold a planned segment against its file, byte by byte."""
    key = (plan.namespace, plan.created_revision, plan.history_epoch, segment.base_offset)
    data = memoryview(stage.files.logs[SegmentFile(*key)])
    header = decode_segment_header(data)
    assert key == (
        header.namespace,
        header.created_revision,
        header.history_epoch,
        header.base_offset,
    )
    assert len(data) == segment.length
    offset = segment.base_offset
    for position, piece in zip(segment.positions(), segment.pieces, strict=True):
        assert piece.first_offset == offset
        chain = 0
        for batch in split_batches(data[position : position + piece.length]):
            stamped = decode_batch_header(batch)
            assert segment.oldest_stamp <= stamped.base_timestamp <= segment.newest_stamp
            chain = chain_batch(chain, stamped.checksum)
            offset += stamped.messages_count
        assert chain == piece.chain
    assert offset == segment.end_offset
    assert segment.length == SEGMENT_HEADER_BYTES + sum(each.length for each in segment.pieces)


def check(stage: Stage, plan: SegmentPlan) -> None:
    """Segments and lost ranges cover the offsets up to the unsealed rest, once."""
    spans = [(each.base_offset, each.end_offset) for each in plan.segments]
    spans += [(each.first, each.end) for each in plan.lost if each.first < plan.sealed_end]
    expected = plan.first_offset
    for first, end in sorted(spans):
        assert first == expected < end
        expected = end
    assert expected == plan.sealed_end <= plan.next_offset
    for segment in plan.segments:
        check_file(stage, plan, segment)


def test_an_empty_partition_has_an_empty_plan() -> None:
    assert plan(Stage()) == SegmentPlan(
        namespace=NAMESPACE,
        created_revision=REVISION,
        history_epoch=0,
        first_offset=0,
        next_offset=0,
        folder="/data/partitions/3/2/5-77/0",
        lost=(),
        segments=(),
        is_more=False,
    )


def test_sealed_segments_are_named_with_their_files() -> None:
    stage = filled()
    found = plan(stage)
    assert len(found.segments) > 2
    assert found.next_offset == 75 > found.sealed_end
    check(stage, found)
    assert found.path(found.segments[0]) == f"{FOLDER}/3/2/5-77/0/{0:020}.log"


def test_without_a_folder_nobody_is_told_where_files_are() -> None:
    stage = filled()
    found = plan(stage, folder="")
    assert found.folder == ""
    assert found.segments == plan(stage).segments


def test_what_is_not_written_yet_is_not_named() -> None:
    stage = Stage()
    for _ in range(24):
        stage.send()
    assert plan(stage).segments == ()
    stage.machine.store()
    assert plan(stage).segments == ()  # handed over, and not answered
    stage.store()
    assert len(plan(stage).segments) > 2


def test_what_a_transfer_brought_is_named_when_it_is_written() -> None:
    sender = filled()
    receiver = filled(8)  # has the first segment, and part of the second
    before = plan(receiver)
    receiver.machine.install(offered(sender, receiver))
    assert plan(receiver).segments == plan(sender).segments[:1] == before.segments
    receiver.machine.store()
    assert plan(receiver).segments == before.segments  # handed over, and not answered
    receiver.store()
    assert plan(receiver) == plan(sender)
    check(receiver, plan(receiver))


def test_it_begins_with_the_segment_that_holds_the_offset() -> None:
    stage = filled()
    whole = plan(stage).segments
    assert plan(stage, whole[1].base_offset).segments == whole[1:]
    assert plan(stage, whole[1].end_offset - 1).segments == whole[1:]
    assert plan(stage, whole[1].end_offset).segments == whole[2:]
    assert plan(stage, 1 << 63).segments == ()


def test_lost_ranges_and_a_trimmed_start_are_told() -> None:
    stage = filled(3)
    stage.lose(9, 100)
    for _ in range(24):
        stage.send()
    stage.store()
    found = plan(stage)
    assert found.lost == (OffsetRange(9, 100),)
    assert [each.base_offset for each in found.segments][:2] == [0, 100]
    check(stage, found)
    stage.trim(found.segments[1].end_offset - 1)
    stage.settle()
    found = plan(stage)
    assert found.lost == ()
    assert found.first_offset == found.segments[0].base_offset > 100


def test_a_long_plan_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = filled(6)
    stage.lose(18, 50)
    for _ in range(24):
        stage.send()
    stage.store()
    whole = plan(stage)
    monkeypatch.setattr(plans, "PLAN_PIECES_MAX", 1)
    start = 0
    segments: list[PlannedSegment] = []
    lost: list[OffsetRange] = []
    while True:
        page = plan(stage, start)
        segments += page.segments
        lost += page.lost
        if not page.is_more:
            break
        assert len(page.segments) == 1
        start = page.sealed_end
    assert tuple(segments) == whole.segments
    assert tuple(lost) == whole.lost == (OffsetRange(18, 50),)


@pytest.mark.slow
@settings(max_examples=100)
@given(data=st.data())
def test_after_any_ops_the_plan_is_what_the_files_hold(data: st.DataObject) -> None:
    stage = Stage(make_options(segment_bytes=data.draw(st.sampled_from([700, 2000, 4096]))))
    generation = 0
    for _ in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from("ssssssltpwcr")):
            case "s":
                stage.send(data.draw(st.integers(1, 5)), data.draw(st.integers(1, 300)))
            case "l":
                first = stage.machine.next_offset
                stage.lose(first, first + data.draw(st.integers(1, 9)))
            case "t":
                stage.trim(data.draw(st.integers(0, stage.machine.next_offset)))
            case "p":
                generation += 1
                stage.purge(generation)
            case "w":
                stage.store()
            case "c":
                stage.checkpoint()
            case _:
                stage.restart()
        stage.settle()
        check(stage, plan(stage))
