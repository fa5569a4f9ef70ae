"""Groups that wake while a checkpoint is taken keep all that the disk had of them."""

from collections.abc import Iterable

from headrace.shard.config import GroupConfig, PlaneConfig
from headrace.shard.plane import Plane
from headrace.sim.machine import AppendMachine
from headrace.storage.store import Opened, open_store
from headrace.vsr.sessions import ClientTable
from headrace.vsr.timeouts import Timeouts
from tests.shard.stage import GROUPS, Disk, Stage

OPS = 16
VALUE = bytes(1500)  # so many of them fill the journal as far as they may
WATCHED = GROUPS["p"]


class Slowly:
    """What lies outside of checkpoints, and is durable only when the test says so."""

    def flush(self) -> bool:
        return False

    def lacking(self) -> Iterable[int]:
        return ()


def boot_slowly(stage: Stage) -> Plane:
    """Start the node again, without a group."""
    (node,) = stage.nodes
    files = {name: bytes(data) for name, data in node.disk.files.items()}
    opened = open_store(node.store_config(), files)
    assert isinstance(opened, Opened)
    node.disk = Disk(files)
    node.starts += 1
    config = PlaneConfig(
        cluster=1, replica=0, replica_count=1, timeouts=Timeouts(), seed=node.starts
    )
    node.shard = plane = Plane(config, opened, outside=Slowly())
    stage.carry_out(node, plane.start())
    return plane


def wake(stage: Stage, plane: Plane) -> None:
    for group in GROUPS.values():
        plane.add_group(GroupConfig(group), AppendMachine(), ClientTable())
    stage.tick(1)


def test_a_group_that_wakes_during_a_checkpoint_loses_nothing() -> None:
    stage = Stage(1)
    plane = boot_slowly(stage)
    wake(stage, plane)
    stage.request(0, "p", 0, 0, b"")
    ((_, session),) = stage.take_answers()
    for number in range(1, OPS + 1):
        stage.request(0, "p", number, session, VALUE)
    head = plane.groups[WATCHED].op
    assert head == OPS + 1
    assert plane.checkpoints_done == 0

    plane = boot_slowly(stage)
    stage.tick(1)  # A checkpoint begins: the journal is full.
    wake(stage, plane)
    plane.on_flushed()
    stage.tick(1)
    assert plane.checkpoints_done == 1

    for _ in range(2):
        stage.boot(0)
        found = stage.nodes[0].shard
        assert found is not None
        assert found.groups[WATCHED].op == head
        assert found.groups[WATCHED].commit_min == head
