"""A simulated disk that mixes up segments and indexes gives and takes bytes of another place."""

import pytest

from headrace.base.prng import Prng
from headrace.partitions.writer import header_block
from headrace.ports.segments import (
    IndexRead,
    ReadIndex,
    ReadSegment,
    RemoveSegments,
    SegmentEffect,
    SegmentEvent,
    SegmentFile,
    SegmentRead,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.sim.agenda import Agenda
from headrace.sim.astray import Astray
from headrace.sim.folder import Folder, FolderOptions
from headrace.sim.nodes.actions import make_batch

ALWAYS = 1 << 14
FILE = SegmentFile(namespace=0, created_revision=1, history_epoch=0, base_offset=0)
TWIN = SegmentFile(namespace=1 << 20, created_revision=2, history_epoch=0, base_offset=0)
LATER = SegmentFile(namespace=0, created_revision=1, history_epoch=1, base_offset=0)


def batches(letter: bytes) -> bytes:
    return b"".join(make_batch([letter * 20], first_id=at, origin=at) for at in range(3))


def image(file: SegmentFile, letter: bytes) -> bytes:
    return header_block(file) + batches(letter)


class Stage:
    """A folder with two files of equal looks."""

    def __init__(self, options: FolderOptions, seed: int = 1) -> None:
        self.agenda = Agenda()
        self.events: list[SegmentEvent] = []
        self.folder = Folder(
            FolderOptions(), Prng(seed), self.agenda, (self.events.append,), Astray(Prng(seed))
        )
        for token, (file, letter) in enumerate(((FILE, b"a"), (TWIN, b"b")), 1):
            self.do(WriteSegment(token, file, 0, (image(file, letter),)))
            self.do(WriteIndex(file, letter), SyncSegments(9, (file,)))
        self.folder.options = options

    def do(self, *effects: SegmentEffect) -> list[SegmentEvent]:
        for effect in effects:
            self.folder.submit(effect)
        while len(self.agenda):
            self.agenda.run_next()
        events, self.events[:] = list(self.events), []
        return events

    def content(self, file: SegmentFile) -> bytes:
        content = self.folder.content(file)
        assert content is not None
        return content


@pytest.mark.parametrize("seed", range(8))
def test_a_read_brings_batches_of_the_same_place_of_another_file(seed: int) -> None:
    stage = Stage(FolderOptions(read_astray=ALWAYS), seed)
    (event,) = stage.do(ReadSegment(5, FILE, 4096, 10_000))
    assert isinstance(event, SegmentRead)
    assert event.data is not None
    assert event.data != batches(b"a")
    assert len(event.data) == len(batches(b"a"))
    assert b"b" * 20 in event.data
    assert stage.content(FILE) == image(FILE, b"a"), "only the read was wrong"
    assert not stage.folder.is_damaged
    assert stage.folder.events["folder.read_astray"] == 1


@pytest.mark.parametrize("seed", range(8))
def test_a_write_changes_another_file_and_not_its_own(seed: int) -> None:
    stage = Stage(FolderOptions(), seed)
    stage.do(WriteSegment(5, LATER, 0, (header_block(LATER) + b"x" * 100,)))
    stage.folder.options = FolderOptions(write_astray=ALWAYS)
    stage.do(WriteSegment(6, LATER, 4096 + 100, (b"y" * 50,)))
    assert len(stage.content(LATER)) == 4096 + 150, "the file has grown all the same"
    assert b"y" not in stage.content(LATER)
    hit = [file for file in (FILE, TWIN) if stage.content(file)[4196:4246] == b"y" * 50]
    assert len(hit) == 1
    assert list(stage.folder.rotten) == [*hit, LATER]


def test_what_a_write_missed_may_be_what_a_removed_file_left() -> None:
    found = set()
    for seed in range(20):
        stage = Stage(FolderOptions(), seed)
        stage.do(RemoveSegments((FILE,)))
        stage.folder.options = FolderOptions(write_astray=ALWAYS)
        stage.do(WriteSegment(5, LATER, 0, (image(LATER, b"c"),)))
        found.add(stage.content(LATER)[4096:])
    assert found == {batches(b"a"), bytes(len(batches(b"c")))}


def test_files_are_swapped_and_batches_misplaced() -> None:
    found: set[str] = set()
    for seed in range(60):
        stage = Stage(FolderOptions(misplaced=100), seed)
        assert stage.folder.rot()
        found.update(stage.folder.events)
        assert stage.folder.is_damaged
        if "folder.swapped" in stage.folder.events:
            assert stage.content(FILE).endswith(batches(b"b"))
            assert stage.content(TWIN).endswith(batches(b"a"))
        else:
            (hit,) = stage.folder.rotten
            held = stage.content(hit)
            assert held[:4096] == header_block(hit)
            assert {FILE: b"b", TWIN: b"a"}[hit] * 20 in held
            assert len(held) == len(image(hit, b"a"))
    assert found == {"folder.swapped", "folder.misplaced"}


def test_an_index_is_read_and_written_at_another_file() -> None:
    stage = Stage(FolderOptions(index_astray=ALWAYS))
    assert stage.do(ReadIndex(5, FILE)) == [IndexRead(5, b"b")]
    stage.do(WriteIndex(FILE, b"new"))
    stage.folder.options = FolderOptions()
    assert stage.do(ReadIndex(5, FILE)) == [IndexRead(5, b"a")]
    assert stage.do(ReadIndex(5, TWIN)) == [IndexRead(5, b"new")]


def test_a_new_disk_has_no_old_blocks() -> None:
    stage = Stage(FolderOptions())
    stage.do(RemoveSegments((FILE, TWIN)))
    stage.folder.wipe()
    stage.do(WriteSegment(5, LATER, 0, (image(LATER, b"c"),)))
    stage.folder.options = FolderOptions(read_astray=ALWAYS)
    (event,) = stage.do(ReadSegment(6, LATER, 4096, 10_000))
    assert event == SegmentRead(6, batches(b"c"))
