"""Which shards a node starts with: what is given, what its folder has, what a new one gets."""

from pathlib import Path

import pytest

from headrace.server import shard_count
from headrace.server.allocation import Allocation, AllocationError, ShardPlace, Topology
from headrace.server.config.load import load_config
from headrace.server.config.sections import ServerConfig
from headrace.server.folders import FolderRefusedError, read_layout, read_shard_count
from headrace.server.shard_count import settle_shards
from headrace.storage.config import LAYOUT_NAME
from headrace.storage.layout import LayoutRecord, encode_layout


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_count, "allowed_cpus", lambda: [0, 1])


def with_shards(folder: Path, shards: int) -> Path:
    """Give a folder the layout record of so many shards."""
    record = LayoutRecord(cluster=1, replica=0, replica_count=1, shard_count=shards, generation=1)
    (folder / LAYOUT_NAME).write_bytes(b"".join(encode_layout(record, sequence=1)))
    return folder


def config(**flags: str) -> ServerConfig:
    return load_config(None, {}, {f"server.{key}": text for key, text in flags.items()}, "serve")


def refusal(given: ServerConfig, folder: Path | None) -> str:
    with pytest.raises(AllocationError) as caught:
        settle_shards(given, folder=folder)
    return str(caught.value)


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_the_count_of_a_folder_is_read(tmp_path: Path, shards: int) -> None:
    """SH-5: and nothing of the folder is changed."""
    folder = with_shards(tmp_path, shards)
    before = (folder / LAYOUT_NAME).read_bytes()
    assert read_shard_count(folder) == shards
    assert [each.name for each in folder.iterdir()] == [LAYOUT_NAME]
    assert (folder / LAYOUT_NAME).read_bytes() == before


def test_a_folder_that_tells_no_count(tmp_path: Path) -> None:
    assert read_shard_count(tmp_path / "none") is None
    assert read_shard_count(tmp_path) is None
    (tmp_path / LAYOUT_NAME).write_bytes(b"x" * 5000)
    assert read_shard_count(tmp_path) is None


def test_a_folder_keeps_its_count(tmp_path: Path) -> None:
    """SH-5, and SH-6: three shards on two CPUs are no error where nobody has asked for them."""
    assert settle_shards(config(), folder=with_shards(tmp_path, 1)) == Allocation((ShardPlace(),))
    kept = settle_shards(config(), folder=with_shards(tmp_path, 3))
    assert kept.shards == (ShardPlace(),) * 3
    assert kept.warnings == ("3 shards share 2 CPUs (0, 1); they are not pinned",)


def test_a_new_folder_gets_a_shard_for_every_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SH-5: of `serve`; where NUMA nodes are not shown, for every CPU. `dev` has one shard."""
    both = (ShardPlace((0,)), ShardPlace((1,)))
    monkeypatch.setattr(shard_count, "SYSTEM", tmp_path)  # shows nothing
    assert settle_shards(config(), folder=None).shards == both
    monkeypatch.setattr(
        shard_count, "read_topology", lambda *_: Topology({0: (0, 1)}, {0: (0, 1), 1: (0, 1)})
    )
    assert settle_shards(config(), folder=None).shards == (ShardPlace((0,), 0),)
    developed = load_config(None, {}, {}, "dev")
    assert settle_shards(developed, folder=None).shards == (ShardPlace(),)


def test_what_is_given_wins(tmp_path: Path) -> None:
    """SH-5."""
    folder = with_shards(tmp_path, 3)
    assert settle_shards(config(shards="1..2"), folder=folder) == Allocation((ShardPlace((1,)),))
    assert "3 shards need 3 CPUs, and this process may use 2" in refusal(
        config(shards="3"), with_shards(tmp_path, 1)
    )


def test_more_shards_than_cpus_may_be_asked_for_without_pinning() -> None:
    """SH-6 and SH-7."""
    settled = settle_shards(config(shards="3", pin_cores="false"), folder=None)
    assert settled.shards == (ShardPlace(),) * 3
    assert settled.warnings == ("3 shards share 2 CPUs (0, 1); they are not pinned",)


def test_a_count_that_no_node_has_written(tmp_path: Path) -> None:
    """SH-8: the record is damaged, which the opening reports."""
    assert read_shard_count(with_shards(tmp_path, 65_535)) is None
    with pytest.raises(FolderRefusedError, match="layout record of 65535 shards"):
        read_layout(tmp_path)
