"""What segment files hold beyond the end of their log (FM-11, DK16, P7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.partitions.beyond import (
    Fate,
    Read,
    find_batch,
    is_left_of_write,
    judge_file,
    judge_remains,
)
from headrace.partitions.writer import header_block
from headrace.ports.segments import LogEnd, SegmentFile
from headrace.wire.errors import Code, RefusedError
from tests.partitions.stage import NAMESPACE, REVISION, Stage, make_options

OPTIONS = make_options(segment_bytes=1500, piece_bytes=700)
END = LogEnd(
    history_epoch=2, first_offset=10, next_offset=20, lost_until=0, segments=(), dropped=()
)


def file_at(base_offset: int, epoch: int = 2) -> SegmentFile:
    return SegmentFile(NAMESPACE, REVISION, epoch, base_offset)


def reader_of(data: bytes) -> Read:
    return lambda position, length: data[position : position + length]


def newest_batch(next_offset: int, count: int = 3) -> bytes:
    """Give a batch that a partition stamped at that offset."""
    stage = Stage(OPTIONS)
    if next_offset:
        stage.lose(0, next_offset)
    stage.send(count)
    return stage.journal[-1][1]


def test_a_whole_batch_is_found_and_nothing_else() -> None:
    batch = newest_batch(20)
    found = find_batch(file_at(0), reader_of(batch), 0)
    assert found is not None
    assert (found.base_offset, found.messages_count) == (20, 3)
    for wrong in (b"", batch[:-1], batch[:100], b"x" + batch[1:], bytes(1000), batch[:-1] + b"x"):
        assert find_batch(file_at(0), reader_of(wrong), 0) is None
    other = SegmentFile(NAMESPACE + 1, REVISION, 2, 0)
    assert find_batch(other, reader_of(batch), 0) is None


@pytest.mark.parametrize(
    ("offset", "lost_until", "fate"),
    [
        (None, 0, Fate.QUARANTINE),
        (19, 0, Fate.QUARANTINE),
        (20, 0, Fate.FAULT),
        (20, 22, Fate.FAULT),
        (20, 23, Fate.QUARANTINE),
    ],
)
def test_a_message_that_the_log_lacks_is_a_fault_unless_the_power_took_it(
    offset: int | None, lost_until: int, fate: Fate
) -> None:
    batch = b"" if offset is None else newest_batch(offset)
    found = find_batch(file_at(10), reader_of(batch), 0)
    end = LogEnd(
        history_epoch=2,
        first_offset=10,
        next_offset=20,
        lost_until=lost_until,
        segments=(),
        dropped=(),
    )
    assert judge_remains(end, found) == fate


@pytest.mark.parametrize(
    ("file", "fate"),
    [
        (file_at(500, epoch=1), Fate.REMOVE),
        (file_at(9), Fate.REMOVE),
        (file_at(15), Fate.QUARANTINE),
        (file_at(20), Fate.FAULT),
        (file_at(0, epoch=3), Fate.FAULT),
    ],
)
def test_a_file_that_the_log_does_not_have(file: SegmentFile, fate: Fate) -> None:
    data = header_block(file) + newest_batch(file.base_offset)
    assert judge_file(END, file, reader_of(data)) == fate
    if fate != Fate.REMOVE:  # Without a header of its own, or without a message, it is strange.
        for wrong in (header_block(file), data[:-1], header_block(file_at(99)) + data[4096:], b""):
            assert judge_file(END, file, reader_of(wrong)) == Fate.QUARANTINE


@given(st.binary(min_size=1, max_size=300), st.data())
def test_what_a_crash_leaves_of_a_write_is_known(new: bytes, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(new), max_size=len(new)))
    left = bytes(byte if is_kept else 0 for byte, is_kept in zip(new, kept, strict=True))
    assert is_left_of_write(left[: data.draw(st.integers(0, len(left)))], new)
    at = data.draw(st.integers(0, len(new) - 1))
    other = bytearray(new)
    other[at] ^= data.draw(st.integers(1, 255))
    assert is_left_of_write(bytes(other), new) == (other[at] == 0)


def alone(batches: int) -> Stage:
    """Give a partition that has a checkpoint, and as many batches in its journal."""
    stage = Stage(OPTIONS, is_alone=True)
    stage.send(2)
    stage.checkpoint()
    for _ in range(batches):
        stage.send(2)
    stage.store()
    return stage


def test_stores_older_than_the_segments_fence_the_partition() -> None:
    """DK16: no message is cut, no offset is given out a second time."""
    stage = alone(6)
    assert len(stage.files.logs) > 2
    before = {file: bytes(data) for file, data in stage.files.logs.items()}
    journal = stage.journal
    stage.journal = journal[:-4]
    for _ in range(2):
        stage.restart()
        assert stage.machine.fence is not None
        with pytest.raises(RefusedError) as error:
            stage.send(1)
        assert error.value.code == Code.CANNOT_APPEND_MESSAGE
        assert stage.files.logs == before
    stage.journal = journal  # With the right stores all is well.
    stage.op = len(journal)
    stage.restart()
    assert stage.machine.fence is None
    assert stage.send(1) == 14


def test_what_is_no_message_goes_to_quarantine_and_the_partition_goes_on() -> None:
    stage = alone(1)
    [file] = stage.files.logs
    whole = bytes(stage.files.logs[file])
    stage.files.logs[file] += b"not a batch"
    strange = SegmentFile(NAMESPACE, REVISION, 0, 3)
    stage.files.logs[strange] = bytearray(b"not a segment")
    stage.restart()
    assert stage.machine.fence is None
    assert stage.files.logs == {file: whole}
    assert stage.files.quarantined == [
        (file, len(whole), b"not a batch"),
        (strange, 0, b"not a segment"),
    ]


def test_other_bytes_in_the_place_of_the_journals_are_kept() -> None:
    stage = alone(2)
    [file] = stage.files.logs
    whole = bytes(stage.files.logs[file])
    stage.files.logs[file][-5:] = b"other"
    stage.restart()
    stage.store()
    assert stage.files.logs[file] == whole
    [(found, _, held)] = stage.files.quarantined
    assert (found, held[-5:]) == (file, b"other")
