"""The data folder: who may have it, and what is never touched."""

import errno
import os
from pathlib import Path

import pytest

from headrace.server.folders import (
    FolderLockedError,
    FolderRefusedError,
    StrangeFolderError,
    all_configs,
    check_layout,
    draw_cluster,
    format_folder,
    hold_folder,
    is_new,
    open_one,
    read_layout,
    store_folders,
    write_layout,
)
from headrace.storage.config import StoreConfig


def configs(**changes: int) -> tuple[StoreConfig, StoreConfig]:
    def make(journal: int) -> StoreConfig:
        fields = {
            "cluster": 1,
            "replica": 0,
            "replica_count": 1,
            "journal_bytes_max": 1 << 20,
            "journal_files": 4,
            "record_bytes_max": 1 << 18,
            "boot_identity": 1,
            "journal": journal,
        }
        return StoreConfig(**(fields | changes))

    return make(0), make(1)


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(StrangeFolderError), hold_folder(tmp_path):
        pytest.fail("held")
    assert [entry.name for entry in tmp_path.iterdir()] == ["letters.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    """DK19."""
    folder = tmp_path / "data"
    with hold_folder(folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(FolderLockedError, match=str(os.getpid())), hold_folder(folder):
            pytest.fail("held twice")
    with hold_folder(folder):
        pass


def test_a_format_that_was_broken_off_is_made_again(tmp_path: Path) -> None:
    with hold_folder(tmp_path):
        format_folder(tmp_path, configs())
        assert not is_new(tmp_path)
        (tmp_path / "layout").unlink()
        assert is_new(tmp_path)
        format_folder(tmp_path, configs())
        check_layout(tmp_path, configs()[0])


def test_a_folder_with_many_shards(tmp_path: Path) -> None:
    """O2.5: each has a store of its own, and a number in the order of the shards."""
    with hold_folder(tmp_path):
        format_folder(tmp_path, configs(), shard_count=3)
    layout = check_layout(tmp_path, configs()[0])
    folders = store_folders(tmp_path, layout)
    names = [path.relative_to(tmp_path).as_posix() for path in folders]
    assert names == ["metadata", "shards/1/0", "shards/1/1", "shards/1/2"]
    for path, config in zip(folders, all_configs(configs(), 3), strict=True):
        open_one(path, config, lambda: None).disk.close()


def test_a_format_that_was_broken_off_leaves_no_shard_too_many(tmp_path: Path) -> None:
    with hold_folder(tmp_path):
        format_folder(tmp_path, configs(), shard_count=3)
        (tmp_path / "layout").unlink()
        format_folder(tmp_path, configs(), shard_count=2)
    assert sorted(path.name for path in (tmp_path / "shards" / "1").iterdir()) == ["0", "1"]


def test_a_layout_record_that_does_not_fit_the_disk_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DK5: a short write is not taken for a whole one."""
    format_folder(tmp_path, configs())
    before = (tmp_path / "layout").read_bytes()
    real, calls = os.pwritev, []

    def write_some(fd: int, parts: list[memoryview], position: int) -> int:
        calls.append(position)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, parts[:1], position)

    monkeypatch.setattr(os, "pwritev", write_some)
    record = read_layout(tmp_path)[0]
    with pytest.raises(OSError, match="full"):
        write_layout(tmp_path, record, sequence=2)
    assert calls == [0, 4096]
    assert (tmp_path / "layout").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cluster": 1 << 64}, "another cluster"),
        ({"replica_count": 3}, "replica 0 of 1, not 0 of 3"),
    ],
)
def test_a_folder_of_another_node_is_refused(
    tmp_path: Path, changes: dict[str, int], told: str
) -> None:
    """DK17."""
    format_folder(tmp_path, configs())
    with pytest.raises(FolderRefusedError, match=told):
        check_layout(tmp_path, configs(**changes)[0])


def test_a_damaged_layout_record_is_refused_and_one_damaged_copy_is_not(tmp_path: Path) -> None:
    """O2.5, DK10."""
    format_folder(tmp_path, configs())
    path = tmp_path / "layout"
    good = path.read_bytes()
    size = len(good) // 4
    path.write_bytes(bytes(size) + good[size:])
    check_layout(tmp_path, configs()[0])
    path.write_bytes(bytes(3 * size) + good[3 * size :])
    with pytest.raises(FolderRefusedError, match="fewer than two of the four copies"):
        check_layout(tmp_path, configs()[0])


def test_a_store_that_is_gone_is_refused(tmp_path: Path) -> None:
    """DK14: a single node has no peer to restore it from."""
    format_folder(tmp_path, configs())
    metadata, data = store_folders(tmp_path, read_layout(tmp_path)[0])
    open_one(metadata, configs()[0], lambda: None).disk.close()
    (data / "superblock").unlink()
    with pytest.raises(FolderRefusedError, match="restore the folder from a backup"):
        open_one(data, configs()[1], lambda: None)
    for entry in data.iterdir():
        entry.unlink()
    data.rmdir()
    with pytest.raises(FolderRefusedError, match="is missing"):
        open_one(data, configs()[1], lambda: None)


def test_stores_of_two_nodes_with_one_cluster_name_are_told_apart(tmp_path: Path) -> None:
    """DK17."""
    named = configs()[0].cluster
    folders = [tmp_path / "one", tmp_path / "two"]
    numbers = []
    for folder in folders:
        with hold_folder(folder):
            format_folder(folder, configs(cluster=draw_cluster(named)))
        numbers.append(check_layout(folder, configs()[0]).cluster)
    assert numbers[0] != numbers[1]
    _, data = store_folders(folders[1], read_layout(folders[1])[0])
    with pytest.raises(FolderRefusedError):
        open_one(data, configs(cluster=numbers[0])[1], lambda: None)
