"""Stores of two moments are told apart (DK16)."""

from pathlib import Path

import pytest

from headrace.server.folders import FolderRefusedError, format_folder, read_layout, store_folders
from headrace.server.starts import check_starts, next_start
from headrace.storage.moments import Moment
from headrace.storage.store import Opened, StoreConfig
from headrace.storage.superblock import choose_superblock, decode_superblock, encode_superblock_file
from tests.storage.samples import config, formatted, opened


def lived(made: StoreConfig, *, is_begun: bool) -> Opened:
    """Give a store as it is found after one start."""
    disk = formatted(made)
    store = opened(made, disk.files()).store
    disk.settle(store)
    if is_begun:
        store.begin()
        disk.settle(store)
    return opened(made, disk.files())


def test_a_store_knows_its_last_start_and_whether_its_groups_lived() -> None:
    for is_begun in (False, True):
        found = lived(config(start=5), is_begun=is_begun)
        assert found.moment == Moment(5, is_begun)


def test_a_store_that_is_older_is_refused() -> None:
    moments = {
        Path("metadata"): lived(config(start=6), is_begun=True).moment,
        Path("shards"): lived(config(start=5), is_begun=True).moment,
    }
    with pytest.raises(FolderRefusedError, match="shards is as of start 5 of the node, and metad"):
        check_starts(moments)


def test_every_start_has_a_higher_number(tmp_path: Path) -> None:
    made = config()
    format_folder(tmp_path, (made, made))
    folders = store_folders(tmp_path, read_layout(tmp_path)[0])
    assert next_start(folders) == 1
    path = folders[1] / "superblock"
    old = decode_superblock(choose_superblock(path.read_bytes()).payload)
    changed = {field: getattr(old, field) for field in old.__struct_fields__} | {"start": 7}
    path.write_bytes(encode_superblock_file(type(old)(**changed), sequence=2))
    assert next_start(folders) == 8
    path.write_bytes(b"")
    assert next_start(folders) == 1
