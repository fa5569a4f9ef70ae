"""Edges of the journal: records that are just full, files without space, damage that goes away."""

from headrace.base.limits import RESERVE_PARTS
from headrace.storage.records import (
    PREPARE_ENTRY_BYTES,
    TERMINATOR,
    Entry,
    Head,
    Kind,
    build_record,
    entries_bytes_max,
    record_bytes,
)
from headrace.storage.ring import ADMISSION_FILES_FREE, Ring, UsedFile
from headrace.storage.store import Opened
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from tests.storage.samples import config, opened, prepare, started
from tests.storage.test_store import group_at, write

JOINED_BYTES_MAX = 16 << 10  # up to so many bytes of a record are copied into one buffer
LIFE = 1


def head_of(length: int) -> Head:
    return Head(
        version=1,
        file=0,
        place=0,
        life=LIFE,
        lap=1,
        sequence=1,
        opening=1,
        previous=0,
        synced=0,
        position=0,
        length=length,
    )


def test_the_body_of_a_large_record_is_not_copied() -> None:
    header, _ = prepare(1, 1)
    room = JOINED_BYTES_MAX - record_bytes(PREPARE_ENTRY_BYTES) - len(TERMINATOR)
    joined = room - room % len(TERMINATOR)
    for size, is_joined in ((joined, True), (joined + len(TERMINATOR), False)):
        body = bytes(size)
        length = record_bytes(PREPARE_ENTRY_BYTES + size)
        entry = Entry(Kind.PREPARE, 1, extra=header, body=body)
        built = build_record(head_of(length), [entry], is_followed=True)
        assert (len(built.parts) == 1) == is_joined
        assert any(part is body for part in built.parts) != is_joined
        assert sum(len(part) for part in built.parts) == built.length
        assert (built.length <= JOINED_BYTES_MAX) == is_joined


def test_entries_that_just_fill_a_record_are_one() -> None:
    made = config()
    store, disk = started(made)
    filler, (header, body) = prepare(1, 1, b"x" * 100), prepare(1, 2, b"x" * 100)
    room = entries_bytes_max(made.record_bytes_max) - 2 * PREPARE_ENTRY_BYTES - len(filler[1])
    header, body = prepare(1, 2, b"x" * (100 + room - len(body)))
    assert len(body) == room
    before = store.issued
    store.stage_prepare(*filler)
    store.stage_prepare(header, body)
    assert store.flush(sync=True) == before + 1
    disk.settle(store)
    assert [entry.body for entry in opened(made, disk.files()).groups[0].entries] == [
        filler[1],
        body,
    ]


def test_what_is_queued_before_the_store_is_open_takes_room() -> None:
    made = config()
    _, disk = started(made)
    store = opened(made, disk.files()).store
    ring = store.journal.ring
    op = 0
    while store.has_room(3000):
        op += 1
        store.stage_prepare(*prepare(1, op, bytes(3000)))
        store.flush(sync=True)
        assert 3000 * op < ring.admission_bytes
    disk.settle(store)
    assert len(ring.used) <= ring.files_count - ADMISSION_FILES_FREE
    assert ops_of(opened(made, disk.files()))[-1] == op


def test_an_op_that_makes_room_joins_a_record_only_if_that_holds_it() -> None:
    """The record that is staged has its place in this file, and the op in the reserve."""
    store, disk = started(config(files=4))
    ring = store.journal.ring
    op = 0
    while len(ring.used) < 2 or ring.position + 8000 < ring.file_bytes:
        op += 1
        write(store, disk, 1, op, body=bytes(1000))
    assert store.has_room(5500)
    store.stage_prepare(*prepare(1, op + 1, bytes(5500)))
    assert not store.has_room(3500)
    assert store.has_room(3500, reserve_parts=RESERVE_PARTS)


def test_a_head_that_is_full_needs_no_space() -> None:
    """It may have become shorter since: what follows goes to the next file."""
    used = [UsedFile(0, 1, 5)]
    is_allocated = [False, True, True, True]
    ring = Ring(files_count=4, file_bytes=8192, used=used, position=8192, is_allocated=is_allocated)
    assert ring.can_place([1000], leave=0)
    assert ring.can_admit([1000])
    assert ring.advance(1000, 6) == 0
    assert ring.head.ordinal == 1


def test_a_repaired_prepare_is_kept_as_the_prepare_that_it_repeats() -> None:
    store, disk = started(config())
    header, body = prepare(1, 1)
    repaired = bytearray(header)
    repaired[KIND_OFFSET] = FrameKind.REPAIR_PREPARE
    store.stage_prepare(bytes(repaired), body)
    store.flush(sync=True)
    disk.settle(store)
    (entry,) = opened(config(), disk.files()).groups[0].entries
    assert entry.body == body
    assert disk.files()["journal.0"].count(header) == 1


def test_a_checkpoint_leaves_half_of_the_journal_to_those_who_lack_ops() -> None:
    made = config(files=8)
    store, disk = started(made)
    ring = store.journal.ring
    op = 0
    while not store.wants_checkpoint():
        op += 1
        write(store, disk, 1, op, body=bytes(3000))
    store.begin_checkpoint([group_at(1, op, bytes(3000))], lambda *_: None)
    disk.settle(store)
    assert ring.used_bytes <= ring.admission_bytes // 2
    assert ring.used_bytes + ring.file_bytes > ring.admission_bytes // 2


def test_a_last_record_that_can_be_read_again_is_used_again() -> None:
    """What was written since does not contradict it: it names no record before it."""
    made = config()
    store, disk = started(made)
    write(store, disk, 1, 1, 2)
    store.stage_prepare(*prepare(1, 3))
    store.flush(sync=True)
    disk.settle(store)
    store.name_synced()
    disk.settle(store)
    name, position, _ = disk.last
    disk.damage(name, position, bytes([disk.cached[name][position] ^ 1]))
    found = opened(made, disk.files())
    assert ops_of(found) == [1, 2]
    assert found.is_rotten
    disk.settle(found.store)
    write(found.store, disk, 1, 4)
    disk.damage(name, position, bytes([disk.cached[name][position] ^ 1]))
    again = opened(made, disk.files())
    assert ops_of(again) == [1, 2, 3, 4]
    assert not again.findings


def ops_of(found: Opened) -> list[int]:
    return [entry.header.op for entry in found.groups[0].entries]
