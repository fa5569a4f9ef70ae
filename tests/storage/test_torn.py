"""Torn tails: cut at the first bad record, kept as evidence, judged the same at every restart."""

import pytest

from headrace.ports.recovered import ViewState
from headrace.storage.store import Opened, Store
from tests.storage.fake_disk import FakeDisk, sectors
from tests.storage.samples import FILE_BYTES, config, opened, prepare, started
from tests.storage.world import World

Unsynced = tuple[str, int, bytes]  # file, position, data
RECORD_BYTES = 1344  # of one with a body of 600 bytes


def image(*, replica_count: int = 3) -> tuple[dict[str, bytes], list[tuple[int, bytes]]]:
    """Give the files before three last writes, and these writes."""
    store, disk = started(config(replica_count=replica_count))
    for op in range(1, 4):
        store.stage_prepare(*prepare(1, op))
        store.flush(sync=True)
        disk.settle(store)
    for now in range(8):
        store.tick(now)
        disk.settle(store)
    before = disk.files()
    for op in range(4, 7):
        store.stage_prepare(*prepare(1, op, bytes(600)))
        store.flush(sync=False)
    while disk.step(store, may_sync=False):
        pass
    return before, [(position, data) for _, position, data in disk.unsynced]


def put(files: dict[str, bytes], position: int, data: bytes) -> dict[str, bytes]:
    held = files["journal.0"]
    return files | {"journal.0": held[:position] + data + held[position + len(data) :]}


def ops(result: Opened) -> list[int]:
    return [entry.header.op for entry in result.groups[0].entries]


def restart_twice(files: dict[str, bytes], *, replica_count: int = 3) -> Opened:
    """Open, go on, open again: the second recovery finds what the first one decided."""
    made = config(replica_count=replica_count)
    first = opened(made, files)
    disk = FakeDisk(files)
    disk.settle(first.store)
    second = opened(made, disk.files())
    assert second.groups == first.groups
    assert second.is_suspect == first.is_suspect
    next_op = ops(first)[-1] + 1
    second.store.stage_prepare(*prepare(1, next_op, b"again"))
    second.store.flush(sync=True)
    disk = FakeDisk(disk.files())
    disk.settle(second.store)
    third = opened(made, disk.files())
    assert ops(third) == [*ops(first), next_op]
    assert third.groups[0].entries[-1].body == prepare(1, next_op, b"again")[1]
    assert third.is_suspect == first.is_suspect
    assert third.groups[0].state.is_suspect == first.is_suspect
    return first


@pytest.mark.slow
@pytest.mark.parametrize("replica_count", [1, 3])
def test_every_prefix_of_the_last_three_records(replica_count: int) -> None:
    """DK6."""
    files, writes = image(replica_count=replica_count)
    for position, data in writes:
        for length in range(0, len(data), 3):
            result = restart_twice(put(files, position, data[:length]), replica_count=replica_count)
            assert ops(result)[:3] == [1, 2, 3]
            assert all(entry.body is not None for entry in result.groups[0].entries[:3])
            assert result.is_suspect is False or replica_count > 1
        files = put(files, position, data)
    assert ops(opened(config(replica_count=replica_count), files)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("replica_count", [1, 3])
def test_every_subset_of_sectors_of_the_last_records(replica_count: int) -> None:
    """DK6, DK9: a later write may be there and an earlier one not."""
    files, writes = image(replica_count=replica_count)
    pieces = [
        (start, data[start - position : end - position])
        for position, data in writes[:2]
        for start, end in sectors(position, len(data))
    ]
    assert len(pieces) < 10
    for chosen in range(0, 1 << len(pieces), 3):
        torn = files
        for number, (position, data) in enumerate(pieces):
            if chosen >> number & 1:
                torn = put(torn, position, data)
        result = restart_twice(torn, replica_count=replica_count)
        assert ops(result) in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5])


def test_the_cut_bytes_are_kept() -> None:
    files, writes = image()
    position, data = writes[0]
    result = restart_twice(put(files, position, data[:300]))
    assert ops(result) == [1, 2, 3]
    (cut,) = result.quarantine
    assert (cut.file, cut.position, cut.data) == ("journal.0", position, data[:300].rstrip(b"\0"))
    (finding,) = result.findings
    assert (finding.kind, finding.file, finding.position) == ("torn", "journal.0", position)
    assert result.is_suspect


def test_a_torn_body_is_that_op_and_nothing_else() -> None:
    files, writes = image()
    position, data = writes[0]
    torn = data[:700] + bytes(100) + data[800:]
    result = restart_twice(put(files, position, torn))
    assert ops(result) == [1, 2, 3, 4]
    assert [entry.body is None for entry in result.groups[0].entries] == [False] * 3 + [True]
    assert not result.is_suspect


def test_suspicion_ends_with_a_view_that_says_so() -> None:
    """MD-26: what clears it was staged by one who knew of it."""
    files, writes = image()
    position, data = writes[0]
    files = put(files, position, data[:300])
    result = opened(config(), files)
    assert result.groups[0].state.is_suspect
    disk = FakeDisk(files)
    disk.settle(result.store)
    result.store.stage_view(ViewState(1, 9, 9, 3, is_suspect=False))
    result.store.flush(sync=True)
    disk.settle(result.store)
    (group,) = opened(config(), disk.files()).groups
    assert group.state == ViewState(1, 9, 9, 3, is_suspect=False)


def test_records_that_were_cut_never_come_back() -> None:
    """The first of three is lost, the others are whole: they are void in every later opening."""
    files, writes = image()
    for position, data in writes[1:]:
        files = put(files, position, data)
    result = opened(config(), files)
    assert ops(result) == [1, 2, 3]
    assert sum(len(cut.data) for cut in result.quarantine) > 1000
    disk = FakeDisk(files)
    disk.settle(result.store)
    header, body = prepare(1, 4, b"another")
    result.store.stage_prepare(header, body)
    result.store.flush(sync=True)
    disk.settle(result.store)
    (group,) = opened(config(), disk.files()).groups
    assert ops(opened(config(), disk.files())) == [1, 2, 3, 4]
    assert group.entries[3].body == body


@pytest.mark.slow
@pytest.mark.parametrize("replica_count", [1, 3])
def test_a_crash_at_every_step(replica_count: int) -> None:
    """PR4, PR5: appends, checkpoints, freed files, recovery, and a second crash after each."""
    steps = 0
    while True:
        world = World(config(replica_count=replica_count, files=4, file_bytes=8192), 11)
        steps += 1
        if run_steps(world, steps) < steps:
            break
        world.crash()
        for _ in range(steps % 6):
            world.disk.step(world.store)
        world.crash()
        world.work(3)
        world.crash()
    assert steps > 200
    assert world.store.checkpointed >= 3


def run_steps(world: World, limit: int) -> int:
    """Work in the same way each time; end after so many steps of the disk."""
    done = 0
    for _ in range(60):
        world.stage_prepare(1)
        world.stage_prepare(2)
        world.stage_view(1) if 1 in world.groups else None
        world.flush()
        while world.disk.step(world.store):
            done += 1
            if done == limit:
                return done
        world.tick()
    return done


def write(store: Store, disk: FakeDisk, op: int, *, sync: bool) -> int:
    """Write one op; return the position behind its record."""
    store.stage_prepare(*prepare(1, op, b"x" * 600))
    store.flush(sync=sync)
    while disk.step(store, may_sync=sync):
        pass
    return disk.last[1] + RECORD_BYTES


def unsynced_across_files() -> tuple[dict[str, bytes], list[Unsynced]]:
    """Return the files before two last writes, of which the second begins the next file."""
    store, disk = started(config())
    end = op = 0
    while end + 2 * RECORD_BYTES <= FILE_BYTES:
        op += 1
        end = write(store, disk, op, sync=True)
    before = disk.files()
    write(store, disk, op + 1, sync=False)
    write(store, disk, op + 2, sync=False)
    assert [name for name, _, _ in disk.unsynced] == ["journal.0", "journal.1"]
    return before, list(disk.unsynced)


def test_all_that_is_torn_is_kept_though_it_lies_in_two_files() -> None:
    files, writes = unsynced_across_files()
    torn = {name: data[:300] for name, _, data in writes}
    for name, position, _ in writes:
        held = files[name]
        files[name] = held[:position] + torn[name] + held[position + 300 :]
    kept = {cut.file: cut for cut in opened(config(), files).quarantine}
    assert list(kept) == ["journal.0", "journal.1"]
    for name, position, _ in writes:
        assert (kept[name].position, kept[name].data) == (position, torn[name].rstrip(b"\0"))


def test_a_torn_body_in_the_first_record_is_kept() -> None:
    """A single replica ends its log before it, so at the tail itself."""
    made = config(replica_count=1)
    store, disk = started(made)
    files = disk.files()
    write(store, disk, 1, sync=False)
    ((_, position, data),) = disk.unsynced
    result = opened(made, put(files, position, data[:500]))
    assert not result.groups
    (cut,) = result.quarantine
    assert (cut.file, cut.position, cut.data) == ("journal.0", position, data[:500].rstrip(b"\0"))
