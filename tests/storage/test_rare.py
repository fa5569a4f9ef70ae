"""What a store rarely meets: answers in a strange order, and damage at the edge of a file."""

import pytest

from headrace.base.limits import RESERVE_PARTS
from headrace.ports.disk import (
    AllocateJournal,
    BlockWritten,
    FileReplaced,
    JournalAllocated,
    Synced,
    WriteBlock,
    WriteJournal,
    Written,
)
from headrace.ports.recovered import ViewState
from headrace.storage.checkpoint import decode_checkpoint
from headrace.storage.records import Head
from tests.storage.samples import config, formatted, opened, prepare, started
from tests.storage.test_forged import forged, heads, image, small
from tests.storage.test_store import group_at, write

LAP_AT = 32  # in the header of a record
FILLING = 256  # of it records fill a file to its last byte
FILE_BYTES = 8192

# Answers.


def test_a_record_that_waits_for_its_file_is_written_with_the_answer() -> None:
    made = config()
    store = opened(made, formatted(made).files()).store
    store.stage_prepare(*prepare(1, 1))
    store.flush(sync=True)
    wanted = store.take_effects()
    while blocks := [each for each in wanted if isinstance(each, WriteBlock)]:
        wanted = [each for each in wanted if isinstance(each, AllocateJournal)]
        for block in blocks:
            store.step(BlockWritten(block.token))
        wanted += store.take_effects()
    (allocate,) = wanted
    assert isinstance(allocate, AllocateJournal)
    store.step(JournalAllocated(allocate.file, is_done=True))
    assert any(isinstance(each, WriteJournal) for each in store.take_effects())


def test_a_journal_without_space_for_its_next_file_is_without_space() -> None:
    store, _ = started(config())
    asked: list[AllocateJournal] = []
    for op in range(1, 6):
        store.stage_prepare(*prepare(1, op, bytes(3000)))
        store.flush(sync=True)
        asked += [each for each in store.take_effects() if isinstance(each, AllocateJournal)]
    assert not store.is_without_space
    (allocate,) = asked
    store.step(JournalAllocated(allocate.file, is_done=False))
    assert store.is_without_space


def test_an_answer_to_a_checkpoint_that_is_over_changes_nothing() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1)
    store.step(FileReplaced(9999, is_done=False))
    store.check()
    assert not store.is_without_space
    assert not store.is_checkpointing


# Bounds.


def test_many_bytes_ask_for_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.storage.journal.SYNC_BYTES", 8192)
    store, _ = started(config())
    syncs = []
    for op in range(1, 7):
        store.stage_prepare(*prepare(1, op, bytes(3000)))
        store.flush(sync=False)
        syncs += [each.sync for each in store.take_effects() if isinstance(each, WriteJournal)]
    assert syncs == [False, False, True, False, False, True]


def test_an_op_that_no_record_holds_has_no_place_in_the_reserve_either() -> None:
    store, _ = started(config())
    assert store.has_room(7000, reserve_parts=RESERVE_PARTS)
    assert not store.has_room(9000, reserve_parts=RESERVE_PARTS)


def test_a_group_that_goes_while_two_checkpoints_wait_is_in_neither() -> None:
    store, disk = started(config())
    for group in (1, 2, 3):
        write(store, disk, group, 1, 2)
    everyone = [group_at(group, 1) for group in (1, 2, 3)]
    store.begin_checkpoint(everyone, lambda *_: None)
    store.begin_checkpoint([group_at(1, 2), group_at(3, 2)], lambda *_: None)
    store.capture_gone(3)
    number = store.begin_checkpoint([group_at(2, 2)], lambda *_: None)
    disk.settle(store)
    assert store.checkpointed == number
    checkpoint = decode_checkpoint(disk.files()[f"checkpoint.{number}"])
    assert list(checkpoint.groups) == [group_at(1, 2), group_at(2, 2)]


def test_an_answer_that_comes_after_a_later_one_takes_nothing_back() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1, 2, 3)
    synced = store.synced
    assert synced > 1
    for late in (Written(synced - 1), Synced(synced - 1)):
        store.step(late)
        store.check()
        assert store.synced == synced


def test_damage_of_an_op_that_was_removed_while_it_was_read_is_no_finding() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1, 2, 3)
    assert store.read(1, 3, 70)
    store.stage_truncate(1, 3)
    store.flush(sync=True)
    held = disk.cached["journal.0"]
    held[held.index(prepare(1, 3)[0])] ^= 1
    disk.settle(store)
    assert store.take_reads() == [(70, b"", b"")]
    assert store.take_findings() == []


def test_an_op_that_its_group_does_not_have_any_more_does_not_travel() -> None:
    made = small()
    store, disk = started(made)
    write(store, disk, 2, 1)
    ops = 0
    while not store.wants_checkpoint():
        ops += 1
        write(store, disk, 1, ops, body=bytes(500))
    asked = []

    def live(group: int, op: int) -> None:
        asked.append((group, op))

    store.begin_checkpoint([group_at(1, ops, bytes(500))], live)
    disk.settle(store)
    assert asked == [(2, 1)]
    (group,) = opened(made, disk.files()).groups
    assert group.state.group == 1


def test_what_is_staged_is_as_large_as_its_entries() -> None:
    store, disk = started(config())
    store.stage_prepare(*prepare(1, 1))
    store.stage_truncate(1, 2)
    store.check()
    store.flush(sync=True)
    disk.settle(store)
    (group,) = opened(config(), disk.files()).groups
    assert [entry.header.op for entry in group.entries] == [1]


# Records of the journal.


def test_a_cut_of_a_group_that_has_nothing_is_nothing() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1)
    store.stage_truncate(9, 5)
    store.flush(sync=True)
    disk.settle(store)
    (group,) = opened(config(), disk.files()).groups
    assert [entry.header.op for entry in group.entries] == [1]


def test_the_newest_view_of_a_group_counts_wherever_it_stands() -> None:
    store, disk = started(config())
    for view in (5, 3):
        store.stage_view(ViewState(1, view, view, 0, is_suspect=False))
        store.flush(sync=True)
        disk.settle(store)
    (group,) = opened(config(), disk.files()).groups
    assert group.state.view == 5


# The edge of a file.


def over_the_edge() -> tuple[dict[str, bytes], Head, Head]:
    """Return files, and the last record of the first of them and the first of the next.

    None of these two was synced.
    """
    store, disk = started(small())
    op = 0
    while True:
        op += 1
        store.stage_prepare(*prepare(1, op, bytes(500)))
        store.flush(sync=False)
        while disk.step(store, may_sync=False):
            pass
        row = list(heads(disk.files(), small()).values())
        if row[-1].file == 1:
            return disk.files(), row[-2], row[-1]


def ops_of(files: dict[str, bytes]) -> list[int]:
    (group,) = opened(small(), files).groups
    return [entry.header.op for entry in group.entries]


def with_flip(files: dict[str, bytes], head: Head) -> dict[str, bytes]:
    name = f"journal.{head.file}"
    data = bytearray(files[name])
    data[head.position + 8] ^= 1
    return files | {name: bytes(data)}


def cuts_of(files: dict[str, bytes]) -> list[tuple[str, int]]:
    """Open; give where something is cut off."""
    return [(each.file, each.position) for each in opened(small(), files).findings]


def test_a_record_of_the_next_file_behind_a_torn_one_is_cut_off_too() -> None:
    files, last, _ = over_the_edge()
    assert cuts_of(files) == []
    torn = with_flip(files, last)
    assert cuts_of(torn) == [("journal.0", last.position), ("journal.1", 0)]
    assert ops_of(torn) == ops_of(files)[:-2]


def test_a_torn_record_that_begins_a_file_is_cut_off() -> None:
    files, _, first = over_the_edge()
    torn = with_flip(files, first)
    assert cuts_of(torn) == [("journal.1", 0)]
    assert ops_of(torn) == ops_of(files)[:-1]


def test_a_record_of_a_lap_that_cannot_be_is_as_good_as_missing() -> None:
    files = image()
    lap = heads(files, small())[3].lap
    assert lap == 1
    strange = forged(files, 3, LAP_AT, (9).to_bytes(8, "little"))
    assert heads(strange, small())[3].lap == 9
    result = opened(small(), strange)
    assert [each.kind for each in result.findings] == ["rot"]
    assert result.is_suspect


def test_a_hole_behind_a_file_that_is_full_to_its_last_byte_begins_in_the_next() -> None:
    made = small()
    store, disk = started(made)
    op = 0
    while not any(head.file for head in heads(disk.files(), made).values()):
        op += 1
        write(store, disk, 1, op, body=bytes(FILLING))
    row = list(heads(disk.files(), made).values())
    full = [head for head in row if head.file == 0][-1]
    assert full.position + full.length == FILE_BYTES
    write(store, disk, 1, op + 1)
    for now in range(12):
        store.tick(now)
        disk.settle(store)
    first = next(head for head in row if head.file == 1)
    (finding,) = opened(made, with_flip(disk.files(), first)).findings
    assert (finding.kind, finding.file, finding.position) == ("rot", "journal.1", 0)


def test_what_an_older_lap_left_in_the_next_file_is_no_part_of_a_damaged_end() -> None:
    made = small()
    store, disk = started(made)
    op = 0
    while store.checkpointed < 8:
        op += 1
        write(store, disk, 1, op)
        if store.wants_checkpoint():
            store.begin_checkpoint([group_at(1, op)], lambda *_: None)
            disk.settle(store)
    for each in (1, 2):
        write(store, disk, 1, op + each)
    store.stop_clean()
    disk.settle(store)
    row = heads(disk.files(), made)
    last = row[max(row)]
    following = (last.file + 1) % made.journal_files
    older = next(head for head in row.values() if (head.file, head.position) == (following, 0))
    assert older.lap < last.lap or following == 0
    assert last.position > 0
    damaged = opened(made, with_flip(disk.files(), last))
    assert [(each.kind, each.file) for each in damaged.findings] == [
        ("rot", f"journal.{last.file}")
    ]
