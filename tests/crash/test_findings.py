"""Six findings of a review of the software whose protocol we speak; each has its test here.

| number | what was wrong there |
|---|---|
| 1 | an error of a sync was swallowed when a file of messages was opened again |
| 2 | the same of its index |
| 5 | a request whose owner was not found went to shard 0 |
| 9 | the end of the log was taken from the index |
| 10 | a stored offset beyond the data was moved back in silence |
| 12 | a file of messages that was missing was made anew, empty |
"""

from pathlib import Path

import pytest

from headrace.partitions.offsets import ConsumerOffsets, StoredMark
from headrace.partitions.options import AheadPolicy
from headrace.server.config.load import load_config
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import First, FromOffset
from headrace.wire.numbers import ConsumerKind
from tests.crash.client import Producer
from tests.crash.faults import Action, Call
from tests.crash.stage import SEGMENTS_OF_A, Stage, staged


def fill(stage: Stage) -> None:
    """Have both topics hold sealed segments, with indexes, and stop the node."""
    for _ in range(8):
        stage.send(stage.a, 1)
        stage.send(stage.b, 1)
    stage.node.stop()


def code_of_poll(stage: Stage, producer: Producer) -> Code:
    stage.reader.connect(stage.node.tcp)
    with pytest.raises(RefusedError) as refusal:
        stage.reader.poll(producer.place, First())
    return refusal.value.code


@pytest.mark.slow
def test_finding_1_an_error_of_the_sync_at_opening_fences_the_partition(library: Path) -> None:
    with staged(library) as stage:
        fill(stage)
        stage.faults.order(Action.FAIL, (Call.SYNC,), pattern=SEGMENTS_OF_A, count=1)
        stage.node.restart()
        assert stage.faults.hits == 1
        assert code_of_poll(stage, stage.a) == Code.CANNOT_READ_MESSAGE
        assert "the partition is fenced" in stage.node.output()
        assert len(stage.reader.read_all(stage.b.place)) == 80
        stage.verify_after_two_starts()


@pytest.mark.slow
def test_finding_2_an_error_of_an_index_is_told_and_costs_nothing(library: Path) -> None:
    """Ours is derived data, written without a sync: what is wrong with one is made anew."""
    with staged(library) as stage:
        stage.faults.order(Action.FAIL, (Call.WRITE,), pattern=".index")
        fill(stage)
        assert stage.faults.hits > 0
        assert "cannot write the index" in stage.node.output()
        assert not list(stage.node.data.rglob("*.index"))
        stage.verify_after_two_starts()


@pytest.mark.slow
def test_finding_5_what_has_no_owner_is_refused_and_lands_nowhere(library: Path) -> None:
    with staged(library) as stage:
        stray = Producer(90, ("s", "a", 7))
        stray.connect(stage.node.tcp)
        assert stray.send().refusals == [Code.RESOURCE_NOT_FOUND]
        stray.place = ("s", "nowhere", 0)
        assert stray.send().refusals == [Code.RESOURCE_NOT_FOUND]
        stray.close()
        for producer in (stage.a, stage.b):
            assert stage.reader.read_all(producer.place) == []


@pytest.mark.slow
@pytest.mark.parametrize("way", ["missing", "empty", "of another segment"])
def test_finding_9_the_end_of_the_log_does_not_come_from_the_index(library: Path, way: str) -> None:
    with staged(library) as stage:
        fill(stage)
        indexes = sorted(stage.node.data.rglob("*.index"))
        assert indexes
        others = [path.read_bytes() for path in reversed(indexes)]
        for path, other in zip(indexes, others, strict=True):
            if way == "missing":
                path.unlink()
            else:
                path.write_bytes(b"" if way == "empty" else other)
        stage.node.restart()
        stage.reader.connect(stage.node.tcp)
        for producer in (stage.a, stage.b):
            polled = stage.reader.poll(producer.place, FromOffset(79))
            assert (polled.current_offset, polled.messages_count) == (79, 1)
        stage.verify_after_two_starts()


def test_finding_10_an_offset_beyond_the_data_is_an_error_and_not_moved() -> None:
    """PT-20: moving it is a choice, and not the default."""
    config = load_config(None, {}, {}, "serve")
    assert config.consumers.offset_ahead_policy == "fail"
    stored = ConsumerOffsets(8)
    mark = StoredMark(ConsumerKind.CONSUMER, 1, 9, is_ahead=False)
    assert stored.restore([mark], next_offset=5, policy=AheadPolicy.FAIL) == 1
    with pytest.raises(RefusedError) as refusal:
        stored.find(ConsumerKind.CONSUMER, 1)
    assert refusal.value.code == Code.INVALID_OFFSET
    assert stored.peek(ConsumerKind.CONSUMER, 1) == 9


@pytest.mark.slow
def test_finding_12_a_missing_segment_is_not_made_anew(library: Path) -> None:
    with staged(library) as stage:
        fill(stage)
        files = sorted(stage.node.data.glob("partitions/0/0/*/*/*.log"))
        kept = files[0].read_bytes()
        files[0].unlink()
        stage.node.restart()
        assert code_of_poll(stage, stage.a) == Code.CANNOT_READ_MESSAGE
        assert str(files[0]) in stage.node.output()
        assert not files[0].exists()
        assert len(stage.reader.read_all(stage.b.place)) == 80
        files[0].write_bytes(kept)
        stage.verify_after_two_starts()
