"""Groups that wake while a checkpoint is taken keep all that the disk had of them."""

from headrace.shard.consensus.plane import Plane
from tests.shard.stage import GROUPS, Slowly, Stage

OPS = 16
VALUE = bytes(1500)  # so many of them fill the journal as far as they may
WATCHED = GROUPS["p"]


def boot_slowly(stage: Stage, *, is_awake: bool) -> Plane:
    stage.boot(0, outside=Slowly(), is_awake=is_awake)
    plane = stage.nodes[0].shard
    assert plane is not None
    return plane


def test_a_group_that_wakes_during_a_checkpoint_loses_nothing() -> None:
    stage = Stage(1)
    plane = boot_slowly(stage, is_awake=True)
    stage.request(0, "p", 0, 0, b"")
    ((_, session),) = stage.take_answers()
    for number in range(1, OPS + 1):
        stage.request(0, "p", number, session, VALUE)
    head = plane.groups[WATCHED].op
    assert head == OPS + 1
    assert plane.checkpoints.done_count == 0

    plane = boot_slowly(stage, is_awake=False)
    stage.tick(1)  # A checkpoint begins: the journal is full.
    stage.wake(0)
    stage.tick(1)
    plane.on_flushed()
    stage.tick(1)
    assert plane.checkpoints.done_count == 1

    for _ in range(2):
        stage.boot(0)
        found = stage.nodes[0].shard
        assert found is not None
        assert found.groups[WATCHED].op == head
        assert found.groups[WATCHED].commit_min == head
