"""A data folder with groups in every store, and a start of a node that runs no groups."""

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event

import msgspec

from headrace.base.ids import METADATA_GROUP, GroupId
from headrace.base.placement import owner_of
from headrace.ports.recovered import RecoveredGroup, ViewState
from headrace.server.folders import (
    OpenedStore,
    all_configs,
    check_layout,
    format_folder,
    hold_folder,
    open_one,
    store_folders,
)
from headrace.server.generations import remove_leftovers
from headrace.server.starts import check_starts, next_start
from headrace.storage.config import StoreConfig
from headrace.storage.layout import LayoutRecord
from headrace.storage.store import Store, format_store
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import config, opened, prepare
from tests.storage.world import Group, commit

NUMBERS = tuple(range(1, 9))
START = 5
_WAIT_SECONDS = 10


def configs(*, boot_identity: int = 7) -> tuple[StoreConfig, StoreConfig]:
    made = config(replica_count=1, files=4, boot_identity=boot_identity)
    return made, msgspec.structs.replace(made, journal=1)


def fill_folder(folder: Path, shard_count: int) -> None:
    """Make the folder of a node that was killed in its fifth start."""
    with hold_folder(folder):
        format_folder(folder, configs(), shard_count=shard_count)
        layout = check_layout(folder, configs()[0])
    stores = zip(store_folders(folder, layout), all_configs(configs(), shard_count), strict=True)
    for journal, (path, made) in enumerate(stores):
        numbers = [each for each in NUMBERS if owner_of(GroupId(each), shard_count) == journal - 1]
        files = fill_store(made, numbers if journal else [METADATA_GROUP])
        for name, data in files.items():
            (path / name).write_bytes(data)
            (path / name).chmod(0o600)


def fill_store(made: StoreConfig, numbers: list[int]) -> dict[str, bytes]:
    """Return the files of a store with a checkpoint, views, ops and ceilings."""
    made = msgspec.structs.replace(made, start=START)
    disk = FakeDisk(format_store(made, 0))
    store = opened(made, disk.files()).store
    disk.settle(store)
    store.begin()
    groups = {number: Group(number) for number in numbers}

    def stage(number: int) -> None:
        group = groups[number]
        group.op += 1
        group.ops[group.op] = prepare(number, group.op, bytes(100 * number % 700), salt=group.op)
        store.stage_prepare(*group.ops[group.op])

    for number in numbers:
        stage(number)
        stage(number)
        store.stage_ceiling(number, 1000 + number % 1000)
    store.flush(sync=True)
    disk.settle(store)
    for number in numbers[::2]:
        commit(groups[number], 1)
    store.begin_checkpoint(
        [groups[number].checkpoint() for number in numbers[::2]],
        lambda group, op: groups[group].ops.get(op),
    )
    disk.settle(store)
    for number in numbers:
        stage(number)
        store.stage_view(ViewState(number, 2, 1, 1, is_suspect=False))
    store.flush(sync=True)
    disk.settle(store)
    return disk.files()


class Found(msgspec.Struct, frozen=True):
    """What a start has found: the layout, and everything that its groups go on from."""

    layout: LayoutRecord
    groups: dict[int, RecoveredGroup]
    ceilings: dict[int, int]


def start_node(folder: Path, *, boot_identity: int = 7) -> Found:
    """Open the stores as a start does, let them be written, and stop them cleanly."""
    pair = configs(boot_identity=boot_identity)
    with hold_folder(folder):
        layout = check_layout(folder, pair[0])
        paths = store_folders(folder, layout)
        number = next_start(paths)
        woken = Event()
        stores: dict[Path, OpenedStore] = {}
        try:
            for path, made in zip(paths, all_configs(pair, layout.shard_count), strict=True):
                numbered = msgspec.structs.replace(made, start=number)
                stores[path] = open_one(path, numbered, woken.set)
            check_starts({path: store.opened.moment for path, store in stores.items()})
            remove_leftovers(folder, layout)
            for store in stores.values():
                _work(store, woken, lambda one: one.is_open)
                store.opened.store.begin()
                store.opened.store.stop_clean()
                _work(store, woken, lambda one: one.is_stopped)
        finally:
            for store in stores.values():
                store.disk.close()
    return _found(layout, list(stores.values()))


def _work(one: OpenedStore, woken: Event, is_done: Callable[[Store], bool]) -> None:
    """Carry out the effects of a store until something is so."""
    store, disk = one.opened.store, one.disk
    while not is_done(store):
        for effect in store.take_effects():
            answer = disk.submit(effect)
            if answer is not None:
                store.step(answer)
        if not store.outbox.effects:
            assert woken.wait(_WAIT_SECONDS), "the disk answers"
        woken.clear()
        for event in disk.take_events():
            store.step(event)


def _found(layout: LayoutRecord, stores: list[OpenedStore]) -> Found:
    groups = [group for store in stores for group in store.opened.groups]
    return Found(
        layout,
        {group.state.group: group for group in groups},
        {group: offset for store in stores for group, offset in store.opened.ceilings},
    )


def copy_folder(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target
