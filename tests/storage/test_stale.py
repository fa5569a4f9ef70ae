"""Files of a store from an older copy among newer ones (DK16)."""

import pytest

from headrace.storage.config import SUPERBLOCK_NAME, journal_name
from headrace.storage.moments import Moment
from headrace.storage.store import Opened, Refused, Store, StoreConfig, Wiped, open_store
from headrace.storage.superblock import choose_superblock, decode_superblock
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import config, formatted, opened, prepare

ALONE = config(replica_count=1, start=1)


def reopened(disk: FakeDisk, made: StoreConfig = ALONE) -> Store:
    """Open the store once more, as a start does."""
    store = opened(made, disk.files()).store
    disk.settle(store)
    store.begin()
    disk.settle(store)
    return store


def write(store: Store, disk: FakeDisk, *ops: int, body: bytes = b"body") -> None:
    for op in ops:
        store.stage_prepare(*prepare(1, op, body))
        store.flush(sync=True)
        disk.settle(store)


def two_lives() -> tuple[FakeDisk, dict[str, bytes]]:
    """Give the disk of a store that was killed twice, and what it held after the first time."""
    disk = formatted(ALONE)
    write(reopened(disk), disk, 1, 2)
    older = disk.files()
    write(reopened(disk), disk, 3, 4)
    return disk, older


def ops_of(found: Opened) -> list[int]:
    [group] = found.groups
    return [entry.header.op for entry in group.entries]


def test_an_older_superblock_is_refused() -> None:
    """Its openings are fewer than the journal has; with peers the store has forgotten too much."""
    disk, older = two_lives()
    assert ops_of(opened(ALONE, disk.files())) == [1, 2, 3, 4]
    mixed = disk.files() | {SUPERBLOCK_NAME: older[SUPERBLOCK_NAME]}
    found = open_store(ALONE, mixed)
    assert isinstance(found, Refused)
    assert "superblock is older than the journal: it knows 1 openings" in found.sentence


def test_an_older_superblock_means_a_lost_store_where_there_are_peers() -> None:
    """FM-7: it may not vote with what it remembers."""
    made = config(replica_count=3, start=1)
    disk = formatted(made)
    write(reopened(disk, made), disk, 1)
    older = disk.files()
    write(reopened(disk, made), disk, 2)
    mixed = disk.files() | {SUPERBLOCK_NAME: older[SUPERBLOCK_NAME]}
    assert isinstance(open_store(made, mixed), Wiped)


def test_an_older_journal_file_is_refused() -> None:
    """Without the superblock's word it would look like a journal that ends earlier."""
    disk, older = two_lives()
    mixed = disk.files() | {journal_name(0): older[journal_name(0)]}
    found = open_store(ALONE, mixed)
    assert isinstance(found, Refused)
    assert found.sentence.startswith("journal.0 at byte ")
    assert "damaged or missing" in found.sentence


def test_an_older_file_is_refused_wherever_the_journal_is() -> None:
    disk = formatted(ALONE)
    write(reopened(disk), disk, 1)
    older = disk.files()
    store = reopened(disk)
    for op in range(2, 12):
        write(store, disk, op, body=bytes(4000))
        files = disk.files()
        for name in [each for each in files if each.startswith("journal.")]:
            is_same = older.get(name, bytes(len(files[name]))) == files[name]
            mixed = files | {name: older.get(name, bytes(len(files[name])))}
            found = open_store(ALONE, mixed)
            assert is_same or (isinstance(found, Refused) and name in found.sentence), (op, name)


@pytest.mark.parametrize("copies", [1, 2, 3, 4])
def test_older_copies_of_the_superblock(copies: int) -> None:
    """Two that agree on the newest suffice; fewer are not believed over the journal."""
    disk, older = two_lives()
    newer = disk.files()[SUPERBLOCK_NAME]
    size = copies * 4096
    mixed = disk.files() | {SUPERBLOCK_NAME: older[SUPERBLOCK_NAME][:size] + newer[size:]}
    assert isinstance(open_store(ALONE, mixed), Opened if copies <= 2 else Refused)


def test_all_files_of_one_moment_are_taken_as_they_are() -> None:
    _, older = two_lives()
    assert ops_of(opened(ALONE, older)) == [1, 2]


def test_the_superblock_knows_a_record_of_every_file() -> None:
    disk = formatted(ALONE)
    store = reopened(disk)
    for op in range(1, 9):
        write(store, disk, op, body=bytes(4000))
        found = decode_superblock(choose_superblock(disk.files()[SUPERBLOCK_NAME]).payload)
        assert found.synced >= store._journal.ring.head.first


def test_nothing_is_written_before_the_groups_live() -> None:
    """Else a start that ended before the other stores knew of it would make these look older.

    What a crash tore is told by the first record of an opening: that one waits, too.
    """
    made = config(replica_count=3, start=1)
    disk = formatted(made)
    store = reopened(disk, made)
    write(store, disk, 1)
    before = disk.files()
    store.stage_prepare(*prepare(1, 2, b"x" * 600))
    store.flush(sync=False)
    while disk.step(store, may_sync=False):
        pass
    [(_, position, data)] = disk.unsynced
    held = before[journal_name(0)]
    torn = held[:position] + data[:-300] + held[position + len(data) - 300 :]
    disk = FakeDisk(before | {journal_name(0): torn})

    second = config(replica_count=3, start=2)
    store = opened(second, disk.files()).store
    disk.settle(store)
    assert store.is_open
    assert store._journal.queued_sizes(), "the verdict on what is torn waits"
    assert opened(second, disk.files()).moment == Moment(2, is_begun=False)
    store.begin()
    disk.settle(store)
    assert not store._journal.queued_sizes()
    assert opened(second, disk.files()).moment == Moment(2, is_begun=True)
