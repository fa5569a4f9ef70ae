"""Stores of another shard count: recovery finds in them what it found in the old ones (O2.5)."""

from collections.abc import Iterator
from itertools import product

import msgspec
import pytest

from headrace.base.ids import METADATA_GROUP, GroupId
from headrace.base.placement import owner_of
from headrace.base.prng import Prng
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup, ViewState
from headrace.storage.config import StoreConfig, journal_name
from headrace.storage.moments import find_older
from headrace.storage.resharding import (
    BuiltStore,
    NotMovableError,
    build_store,
    contents_of,
    share_out,
)
from headrace.storage.store import Opened, format_store
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import FILE_BYTES, INCARNATION, config, opened, prepare
from tests.storage.stage import Stage, group_of
from tests.storage.world import World

COUNTS = (1, 2, 3, 4)
NUMBERS = tuple(range(1, 13))
OTHER_BOOT = 8


def shard_config(shard: int, *, replica_count: int = 1, boot_identity: int = 7) -> StoreConfig:
    made = config(replica_count=replica_count, boot_identity=boot_identity)
    return msgspec.structs.replace(made, journal=1 + shard)


def owned(shard: int, count: int) -> tuple[int, ...]:
    return tuple(each for each in NUMBERS if owner_of(GroupId(each), count) == shard)


def image(built: BuiltStore) -> dict[str, bytes]:
    """Return the files as they are on the disk."""
    return {
        name: data.ljust(built.journal_bytes, b"\0") if name.startswith("journal.") else data
        for name, data in built.files.items()
    }


def change(stores: list[Opened], count: int, configs: list[StoreConfig]) -> list[dict[str, bytes]]:
    """Return the files of the new stores, after comparing what recovery finds in them."""
    named = {f"shards/1/{shard}": each for shard, each in enumerate(stores)}
    start = min(each.moment.start for each in stores)
    shares = share_out(named, shard_count=count, start=start)
    files = [image(build_store(*each)) for each in zip(shares, configs, strict=True)]
    found = [opened(*each) for each in zip(configs, files, strict=True)]
    assert [contents_of(each) for each in found] == list(shares)
    assert all_groups(found) == all_groups(stores)
    assert not any(each.findings for each in found)
    assert min(each.life for each in found) >= max(each.life for each in stores)
    assert all(each.is_first for each in found) == all(each.is_first for each in stores)
    for shard, each in enumerate(found):
        assert all(owner_of(GroupId(group.state.group), count) == shard for group in each.groups)
    moments = {str(at): each.moment for at, each in enumerate([*stores, *found])}
    assert find_older(moments) is None, "old and new stores are of one moment"
    return files


def all_groups(stores: list[Opened]) -> dict[int, RecoveredGroup]:
    found = [group for each in stores for group in each.groups]
    assert len({group.state.group for group in found}) == len(found), "each group is once"
    return {group.state.group: group for group in found}


def all_ceilings(stores: list[Opened]) -> dict[int, int]:
    return {group: offset for each in stores for group, offset in each.ceilings}


def random_files(
    prng: Prng, old_config: StoreConfig, numbers: tuple[int, ...], turns: int
) -> dict[str, bytes]:
    """Return what a random life has left: running, crashed, stopped, or never begun."""
    world = World(old_config, prng.u64(), numbers)
    if not numbers or prng.chance(1, 8):
        return format_store(old_config, INCARNATION)
    world.work(prng.below(turns))
    match prng.below(4):
        case 0:
            return world.disk.crash()
        case 1:
            world.flush()
            world.checkpoint()
            world.disk.settle(world.store)
            world.store.stop_clean()
            world.disk.settle(world.store)
            return world.disk.files()
        case 2:
            world.crash()
            world.work(prng.below(20))
            return world.disk.crash()
        case _:
            return world.disk.files()


def live_on(made: StoreConfig, files: dict[str, bytes]) -> dict[str, bytes]:
    """Open a store, use it, checkpoint it, and return its files after a kill."""
    found = opened(made, files)
    disk, store = FakeDisk(files), found.store
    disk.settle(store)
    groups = {each.state.group: group_of(each) for each in found.groups}
    for number, group in groups.items():
        header, body = prepare(number, group.op + 1, b"more", view=group.state.log_view)
        assert store.has_room(len(body))
        store.stage_prepare(header, body)
        store.flush(sync=True)
        group.op += 1
        group.ops[group.op] = (header, body)
    disk.settle(store)
    before = all_groups([found])
    now = all_groups([opened(made, disk.files())])
    assert [len(now[each].entries) - len(before[each].entries) for each in now] == [1] * len(now)
    store.begin_checkpoint(
        [group.checkpoint() for group in groups.values()],
        lambda group, op: groups[group].ops.get(op),
    )
    disk.settle(store)
    assert store.checkpointed == found.store.checkpointed
    return disk.files()


def cases() -> Iterator[tuple[int, int, int, int]]:
    for replicas, old, new in product((1, 3), COUNTS, COUNTS):
        yield replicas, old, new, replicas * 100 + old * 10 + new


@pytest.mark.parametrize(("replicas", "old", "new", "seed"), list(cases()))
def test_recovery_finds_the_same_groups(replicas: int, old: int, new: int, seed: int) -> None:
    """Restarted twice, used, and changed once more."""
    check_change(replicas, old, new, Prng(seed), turns=20)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "old", "new", "seed"), list(cases()))
def test_recovery_finds_the_same_groups_after_long_lives(
    replicas: int, old: int, new: int, seed: int
) -> None:
    prng = Prng(seed + 1000)
    for _ in range(2):
        check_change(replicas, old, new, prng, turns=80)


def check_change(replicas: int, old: int, new: int, prng: Prng, *, turns: int) -> None:
    files = [
        random_files(prng, shard_config(shard, replica_count=replicas), owned(shard, old), turns)
        for shard in range(old)
    ]
    boot = prng.choice((7, OTHER_BOOT))
    configs = [
        shard_config(shard, replica_count=replicas, boot_identity=boot) for shard in range(4)
    ]
    stores = [opened(*each) for each in zip(configs, files, strict=False)]
    new_files = change(stores, new, configs[:new])
    for shard in range(new):
        made, again = configs[shard], new_files[shard]
        first = opened(made, again)
        disk = FakeDisk(again)
        disk.settle(first.store)
        second = opened(made, disk.files())
        assert second.groups == first.groups
        assert second.ceilings == first.ceilings
        assert second.life == first.life + 1
        new_files[shard] = live_on(made, disk.files())
    later = [opened(*each) for each in zip(configs, new_files, strict=False)]
    third = 1 + prng.below(4)
    change(later, third, configs[:third])


def test_ceilings_go_with_their_groups() -> None:
    made = [shard_config(shard) for shard in range(3)]
    disk = FakeDisk(format_store(made[0], 0))
    store = opened(made[0], disk.files()).store
    for number in NUMBERS:
        store.stage_prepare(*prepare(number, 1))
        store.stage_ceiling(number, 100 + number)
    store.stage_gone(NUMBERS[0])
    store.flush(sync=True)
    disk.settle(store)
    stores = [opened(made[0], disk.files())]
    files = change(stores, 3, made)
    found = [opened(*each) for each in zip(made, files, strict=True)]
    assert all_ceilings(found) == {number: 100 + number for number in NUMBERS[1:]}


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("is_power_loss", [True, False])
def test_a_ceiling_without_a_loss_reports_none(*, is_listed: bool, is_power_loss: bool) -> None:
    """FM-7: one shard stopped cleanly, the other did not, and power was lost since."""
    found = []
    made = [shard_config(shard, boot_identity=OTHER_BOOT) for shard in range(2)]
    for shard in range(2):
        old = shard_config(shard)
        disk = FakeDisk(format_store(old, 0))
        store = opened(old, disk.files()).store
        (number, *_) = owned(shard, 2)
        store.stage_ceiling(number, 50)
        if is_listed:
            store.stage_prepare(*prepare(number, 1))
        store.flush(sync=True)
        disk.settle(store)
        if shard == 0 or not is_power_loss:
            store.stop_clean()
            disk.settle(store)
        found.append(opened(made[shard], disk.files()))
    files = change(found, 1, made[:1])
    merged = opened(made[0], files[0])
    clean, lost = owned(0, 2)[0], owned(1, 2)[0]
    assert merged.is_power_loss == is_power_loss
    is_kept = is_listed or not is_power_loss
    assert dict(merged.ceilings) == {lost: 50} | ({clean: 50} if is_kept else {})


def test_a_journal_grows_for_what_it_must_hold() -> None:
    """Two full journals become one; a body larger than a file of the new size has its place."""
    made = [shard_config(shard) for shard in range(2)]
    found = []
    for shard in range(2):
        disk = FakeDisk(format_store(made[shard], 0))
        store = opened(made[shard], disk.files()).store
        disk.settle(store)
        number, op = owned(shard, 2)[0], 0
        while store.has_room(4000):
            op += 1
            store.stage_prepare(*prepare(number, op, bytes(3900)))
            store.flush(sync=True)
            disk.settle(store)
        found.append(opened(made[shard], disk.files()))
    files = change(found, 1, made[:1])
    sizes = {name: len(data) for name, data in files[0].items() if name.startswith("journal.")}
    assert set(sizes.values()) == {FILE_BYTES}
    assert len(sizes) > made[0].journal_files
    small = msgspec.structs.replace(made[0], journal_bytes_max=4 * 8192, record_bytes_max=4096)
    bigger = msgspec.structs.replace(small, journal_files=8)  # files of 4 KiB
    change(found, 1, [bigger])
    live_on(made[0], files[0])


def test_an_empty_store_stays_a_new_one() -> None:
    made = [shard_config(shard) for shard in range(3)]
    stores = [opened(made[0], format_store(made[0], 0))]
    for files in change(stores, 3, made):
        assert sorted(files) == ["marker", "superblock"]


def test_a_group_without_news_takes_no_journal() -> None:
    """After a clean stop with a checkpoint the new stores have no record, and need none."""
    made = [shard_config(shard) for shard in range(2)]
    disk = FakeDisk(format_store(made[0], 0))
    store = opened(made[0], disk.files()).store
    header, _ = prepare(1, 7)
    state = ViewState(1, 3, 2, 0, is_suspect=False)
    store.begin_checkpoint([GroupCheckpoint(state, header, b"", ())], lambda *_: None)
    disk.settle(store)
    store.stop_clean()
    disk.settle(store)
    for files in change([opened(made[0], disk.files())], 2, made):
        assert journal_name(0) not in files


def test_bodies_that_are_missing_stay_missing() -> None:
    """DK6: never held, or rotten; and a group is suspect for what rotted only."""
    stage = Stage(3)
    header, _ = prepare(2, 1)
    stage.store.stage_prepare(*prepare(1, 1, bytes(600)))
    stage.store.flush(sync=True)
    stage.work()
    stage.store.stage_prepare(header, None, is_never_held=True)
    stage.store.stage_view(ViewState(3, 4, 1, 0, is_suspect=False, is_view_lost=True))
    stage.store.flush(sync=True)
    stage.work()
    stage.close(stage.disk.files())
    stage.damage_record(1, is_body=True)
    found = opened(stage.config, stage.files)
    made = [shard_config(shard, replica_count=3) for shard in range(3)]
    files = change([found], 3, made)
    groups = all_groups([opened(*each) for each in zip(made, files, strict=True)])
    assert [groups[each].state.is_suspect for each in (1, 2, 3)] == [True, False, False]
    bodies = [
        (entry.body, entry.is_never_held) for each in groups for entry in groups[each].entries
    ]
    assert bodies == [(None, False), (None, True)]
    assert groups[3].state.is_view_lost


def test_suspicion_of_groups_that_are_not_listed_is_kept() -> None:
    """FM-7: a torn tail of one shard makes every group suspect that no store lists."""
    made = [shard_config(shard, replica_count=3) for shard in range(4)]
    prng = Prng(3)
    for _ in range(50):
        files = [random_files(prng, made[shard], owned(shard, 2), 20) for shard in range(2)]
        stores = [opened(*each) for each in zip(made, files, strict=False)]
        if sum(each.is_suspect for each in stores) == 1:
            break
    else:
        pytest.fail("no life has left one suspect store")
    for shard, new_files in enumerate(change(stores, 4, made)):
        disk = FakeDisk(new_files)
        first = opened(made[shard], new_files)
        assert first.is_suspect
        disk.settle(first.store)
        second = opened(made[shard], disk.files())
        assert second.is_suspect
        assert second.groups == first.groups


# What is refused.


def test_a_rotten_journal_is_refused() -> None:
    """FM-7: with peers it is opened, but what it lost cannot be told of the new stores."""
    stage = Stage(3)
    for op in (1, 2, 3):
        stage.store.stage_prepare(*prepare(1, op, bytes(600)))
        stage.store.flush(sync=True)
        stage.work()
    stage.close(stage.disk.files())
    stage.lose_record(1)
    found = opened(stage.config, stage.files)
    assert found.is_rotten
    with pytest.raises(NotMovableError, match="shards/1/0: records of the journal that were sync"):
        share_out({"shards/1/0": found}, shard_count=2, start=0)


@pytest.mark.parametrize(
    ("number", "told"),
    [(METADATA_GROUP, "which is none"), (1, "which belongs to another of 2 shards")],
)
def test_a_group_that_is_not_the_shards_is_refused(number: int, told: str) -> None:
    made = [shard_config(shard) for shard in range(2)]
    stores = {}
    for shard in range(2):
        disk = FakeDisk(format_store(made[shard], 0))
        store = opened(made[shard], disk.files()).store
        if shard != owner_of(GroupId(number), 2) or number == METADATA_GROUP:
            store.stage_prepare(*prepare(number, 1))
            store.flush(sync=True)
        disk.settle(store)
        stores[f"shards/1/{shard}"] = opened(made[shard], disk.files())
    with pytest.raises(NotMovableError, match=told):
        share_out(stores, shard_count=1, start=0)
