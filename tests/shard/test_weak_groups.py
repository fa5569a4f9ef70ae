"""A group without syncs doubts its log after a power cut, and only then (O1.2, FM-7)."""

import pytest

from headrace.shard.config import GroupConfig
from headrace.sim.machine import AppendMachine
from headrace.vsr.sessions import ClientTable
from tests.memory_disk import MemoryDisk
from tests.shard.stage import GROUPS, Stage

WEAK = GROUPS["p"]


class WeakStage(Stage):
    """Three nodes, one of whose groups does not wait for syncs."""

    def wake(self, number: int) -> None:
        plane = self.nodes[number].shard
        assert plane is not None
        for group in GROUPS.values():
            config = GroupConfig(group, is_persisted=group != WEAK)
            plane.add_group(config, AppendMachine(), ClientTable())


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_replica_is_suspect_only_after_a_power_cut(*, is_power_cut: bool) -> None:
    stage = WeakStage(3)
    stage.tick(5)
    for name in ("p", "q"):
        stage.request(0, name, 0, 0, b"")
        stage.deliver()
    node = stage.nodes[1]
    if is_power_cut:
        node.disk = MemoryDisk(node.disk.cut())
        node.boot_identity += 1
    stage.boot(1)
    plane = node.shard
    assert plane is not None
    assert plane.groups[WEAK].is_suspect == is_power_cut
    assert not plane.groups[GROUPS["q"]].is_suspect
