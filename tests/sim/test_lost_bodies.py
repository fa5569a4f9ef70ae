"""What a store tells of an op whose body it lost: torn and rotten are two things (DK6, FM-6a)."""

import pytest

from headrace.ports.recovered import ViewState
from headrace.storage.store import Opened, Store
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import config, opened, prepare, started

BODY = bytes(range(1, 200)) * 3


def write(store: Store, disk: FakeDisk, *ops: int, sync: bool) -> list[tuple[str, int, bytes]]:
    """Write ops, one record each; give the writes that no sync has covered."""
    for op in ops:
        store.stage_prepare(*prepare(1, op, BODY))
        store.flush(sync=sync)
    while disk.step(store, may_sync=sync):
        pass
    return list(disk.unsynced)


def damage(files: dict[str, bytes], written: tuple[str, int, bytes]) -> dict[str, bytes]:
    """Change one byte near the end of a record: it lies in the body."""
    name, position, data = written
    at = position + len(data) - 200
    held = files[name]
    return files | {name: held[:at] + bytes([held[at] ^ 1]) + held[at + 1 :]}


def torn() -> dict[str, bytes]:
    """Give the files after op 3 was written, not synced, and torn."""
    store, disk = started(config())
    write(store, disk, 1, 2, sync=True)
    (written,) = write(store, disk, 3, sync=False)
    return damage(disk.files(), written)


def rotten(*ops: int) -> dict[str, bytes]:
    """Give the files after these ops of three were synced, recorded as synced, and damaged."""
    store, disk = started(config())
    writes = [write(store, disk, op, sync=False)[-1] for op in (1, 2, 3)]
    store.flush(sync=True)
    for now in range(20):
        store.tick(now)
        disk.settle(store)
    files = disk.files()
    for op in ops:
        files = damage(files, writes[op - 1])
    return files


def lost(result: Opened) -> list[int]:
    return [each.header.op for each in result.groups[0].entries if each.body is None]


def test_a_torn_body_makes_nobody_suspect() -> None:
    result = opened(config(), torn())
    assert lost(result) == [3]
    assert [finding.kind for finding in result.findings] == ["torn"]
    assert not result.groups[0].state.is_suspect


@pytest.mark.parametrize("is_written", [False, True])
def test_a_torn_body_is_torn_at_every_start(is_written: bool) -> None:
    """The sync point passes it with the first record, and that record says what it was."""
    files = torn()
    first = opened(config(), files)
    for _ in range(3):
        disk = FakeDisk(files)
        result = opened(config(), files)
        assert result.groups == first.groups
        while not result.store.is_open:
            assert disk.step(result.store)
        if is_written:
            disk.settle(result.store)
            result.store.stage_view(ViewState(2, 1, 1, 0, is_suspect=False))
            result.store.flush(sync=True)
            disk.settle(result.store)
            first = opened(config(), disk.files())
            assert lost(first) == [3]
            assert not first.groups[0].state.is_suspect
        files = disk.files()


def test_what_was_torn_can_be_fetched_and_rot() -> None:
    files = torn()
    disk = FakeDisk(files)
    store = opened(config(), files).store
    disk.settle(store)
    (written,) = write(store, disk, 3, sync=False)
    store.flush(sync=True)
    for now in range(20):
        store.tick(now)
        disk.settle(store)
    assert lost(opened(config(), disk.files())) == []
    result = opened(config(), damage(disk.files(), written))
    assert lost(result) == [3]
    assert result.groups[0].state.is_suspect


def test_a_rotten_body_above_the_commit_point_makes_its_group_suspect() -> None:
    result = opened(config(), rotten(3))
    assert lost(result) == [3]
    assert [finding.kind for finding in result.findings] == ["rot"]
    assert result.groups[0].state.is_suspect
    assert not result.is_suspect, "the other groups are not"


def test_a_rotten_body_that_is_committed_is_only_fetched() -> None:
    result = opened(config(), rotten(2))
    assert lost(result) == [2]
    assert not result.groups[0].state.is_suspect


def torn_twice(*, with_view: bool) -> dict[str, bytes]:
    """Give the files after op 3 lost its body and the record of op 5 its beginning."""
    store, disk = started(config())
    write(store, disk, 1, 2, sync=True)
    writes = write(store, disk, 3, sync=False)
    store.stage_prepare(*prepare(1, 4))
    if with_view:
        store.stage_view(ViewState(1, 7, 7, 2, is_suspect=False))
    store.flush(sync=False)
    name, position, _ = write(store, disk, 5, sync=False)[-1]
    files = damage(disk.files(), writes[0])
    held = files[name]
    return files | {name: held[:position] + b"?" + held[position + 1 :]}


def test_a_tail_that_is_cut_is_cut_at_the_first_torn_body() -> None:
    result = opened(config(), torn_twice(with_view=False))
    assert [each.header.op for each in result.groups[0].entries] == [1, 2]
    assert result.groups[0].state.is_suspect
    assert result.quarantine


def test_a_view_behind_a_torn_body_is_kept() -> None:
    result = opened(config(), torn_twice(with_view=True))
    assert [each.header.op for each in result.groups[0].entries] == [1, 2, 3, 4]
    assert result.groups[0].state.view == 7
    assert result.groups[0].state.is_suspect
