"""The simulated folder of segments honours its port, and a power cut takes what no sync covered."""

import pytest

from headrace.base.prng import Prng
from headrace.partitions.writer import header_block
from headrace.ports.segments import (
    IndexRead,
    OpenSegments,
    ReadIndex,
    ReadSegment,
    RemoveSegments,
    SegmentEffect,
    SegmentEvent,
    SegmentExtent,
    SegmentFile,
    SegmentRead,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.sim.agenda import Agenda
from headrace.sim.astray import Astray
from headrace.sim.folder import Folder, FolderOptions
from headrace.sim.violation import SimViolationError

FILE = SegmentFile(namespace=0, created_revision=1, history_epoch=0, base_offset=0)
OTHER = SegmentFile(namespace=1, created_revision=1, history_epoch=0, base_offset=0)
HEAD = header_block(FILE)


class Stage:
    def __init__(self, seed: int = 1) -> None:
        self.agenda = Agenda()
        self.events: list[SegmentEvent] = []
        self.folder = Folder(
            FolderOptions(), Prng(seed), self.agenda, (self.events.append,), Astray(Prng(seed))
        )

    def do(self, *effects: SegmentEffect) -> list[SegmentEvent]:
        for effect in effects:
            self.folder.submit(effect)
        while len(self.agenda):
            self.agenda.run_next()
        events, self.events[:] = list(self.events), []
        return events


def write(data: bytes, position: int = 0, file: SegmentFile = FILE, token: int = 1) -> WriteSegment:
    return WriteSegment(token, file, position, (data,))


def test_what_was_written_can_be_read_before_it_is_answered() -> None:
    stage = Stage()
    events = stage.do(write(b"abc"), ReadSegment(2, FILE, 1, 5))
    assert SegmentWritten(1, is_done=True) in events
    assert SegmentRead(2, b"bc") in events


def test_a_file_that_is_not_there_reads_as_nothing() -> None:
    assert Stage().do(ReadSegment(1, FILE, 0, 4)) == [SegmentRead(1, None)]


def test_a_write_into_no_file_a_hole_and_other_bytes_are_seen() -> None:
    stage = Stage()
    with pytest.raises(SimViolationError, match="no file"):
        stage.do(write(b"abc", 3))
    stage.do(write(b"abc"))
    with pytest.raises(SimViolationError, match="hole"):
        stage.do(write(b"abc", 4))
    with pytest.raises(SimViolationError, match="other bytes"):
        stage.do(write(b"x", 1))
    assert stage.do(write(b"abcd")) == [SegmentWritten(1, is_done=True)]


def test_what_was_synced_survives_a_power_cut_and_the_rest_may_not() -> None:
    kept = set()
    for seed in range(40):
        stage = Stage(seed)
        assert SegmentsSynced(2) in stage.do(write(b"abc"), SyncSegments(2, (FILE,)))
        stage.do(write(b"def", 3))
        stage.folder.crash(is_power=True)
        content = stage.folder.content(FILE)
        assert content is not None
        assert content.startswith(b"abc")
        kept.add(content)
    assert {b"abc", b"abcdef"} <= kept


def test_a_write_after_the_sync_was_asked_for_is_not_covered() -> None:
    contents = set()
    for seed in range(40):
        stage = Stage(seed)
        stage.folder.submit(write(b"abc"))
        stage.folder.submit(SyncSegments(2, (FILE,)))
        stage.folder.submit(write(b"def", 3, token=3))
        stage.do()
        stage.folder.crash(is_power=True)
        contents.add(stage.folder.content(FILE))
    assert b"abc" in contents


def test_a_name_that_no_sync_covered_may_vanish_with_the_power() -> None:
    found = set()
    for seed in range(20):
        stage = Stage(seed)
        stage.do(write(b"abc"))
        stage.folder.crash(is_power=True)
        found.add(stage.folder.content(FILE) is None)
    assert found == {True, False}


def test_a_killed_process_may_leave_its_last_write_cut_short() -> None:
    contents = set()
    for seed in range(40):
        stage = Stage(seed)
        stage.do(write(b"abc"), SyncSegments(2, (FILE,)))
        stage.folder.submit(write(b"def", 3))
        stage.folder.crash(is_power=False)
        contents.add(stage.folder.content(FILE))
    assert b"abcdef" in contents
    assert len(contents) > 2
    assert all(content is not None and content.startswith(b"abc") for content in contents)


def test_opening_cuts_to_the_length_and_removes_what_is_unknown() -> None:
    stage = Stage()
    unknown = SegmentFile(namespace=0, created_revision=1, history_epoch=1, base_offset=0)
    stage.do(
        write(HEAD + b"abcdef"),
        write(b"x", file=unknown, token=2),
        write(b"y", file=OTHER, token=3),
    )
    extent = SegmentExtent(FILE, len(HEAD) + 3)
    assert stage.do(OpenSegments(4, 0, 1, (extent,))) == [SegmentsOpened(4, ())]
    assert stage.folder.content(FILE) == HEAD + b"abc"
    assert stage.folder.content(unknown) is None
    assert stage.folder.content(OTHER) == b"y"


@pytest.mark.parametrize("content", [None, HEAD[:100], b"\0" * len(HEAD) + b"abc", HEAD])
def test_opening_says_what_is_wrong_and_changes_nothing(content: bytes | None) -> None:
    stage = Stage()
    if content is not None:
        stage.do(write(content))
    (event,) = stage.do(OpenSegments(2, 0, 1, (SegmentExtent(FILE, len(HEAD) + 3),)))
    assert isinstance(event, SegmentsOpened)
    assert [fault.file for fault in event.faults] == [FILE]
    assert stage.folder.content(FILE) == content


def test_without_space_nothing_counts_as_written_and_again_is_fine() -> None:
    stage = Stage()
    stage.do(write(b"abc"))
    stage.folder.is_full = True
    assert stage.do(write(b"defghi", 3)) == [SegmentWritten(1, is_done=False)]
    stage.folder.is_full = False
    assert stage.do(write(b"defghi", 3)) == [SegmentWritten(1, is_done=True)]
    assert stage.folder.content(FILE) == b"abcdefghi"


def test_an_index_is_kept_and_goes_with_its_file() -> None:
    stage = Stage()
    stage.do(write(b"abc"), WriteIndex(FILE, b"index"))
    assert stage.do(ReadIndex(2, FILE)) == [IndexRead(2, b"index")]
    stage.do(RemoveSegments((FILE,)))
    assert stage.do(ReadIndex(3, FILE)) == [IndexRead(3, None)]
    assert stage.folder.names() == []


def test_a_removal_may_not_survive_a_power_cut() -> None:
    found = set()
    for seed in range(20):
        stage = Stage(seed)
        stage.do(write(b"abc"), SyncSegments(2, (FILE,)))
        stage.do(RemoveSegments((FILE,)))
        stage.folder.crash(is_power=True)
        found.add(stage.folder.content(FILE))
    assert found == {None, b"abc"}


def test_rot_changes_what_is_durable_and_is_remembered() -> None:
    stage = Stage()
    assert not stage.folder.rot()
    stage.do(write(b"abcdef"), SyncSegments(2, (FILE,)))
    assert stage.folder.rot()
    assert stage.folder.content(FILE) != b"abcdef"
    assert list(stage.folder.rotten) == [FILE]
    stage.folder.wipe()
    assert stage.folder.names() == []
