"""What a checkpoint holds of its groups while it runs, and lets go of when it ends."""

from headrace.shard.consensus.checkpoints import Phase
from headrace.shard.consensus.plane import Plane
from tests.shard.stage import GROUPS, Slowly, Stage

PARTITION = GROUPS["p"]


def boot_slowly(stage: Stage, *, is_awake: bool) -> Plane:
    """Start the first node again, so that its checkpoints end when `end_checkpoint` says so."""
    stage.boot(0, outside=Slowly(), is_awake=is_awake)
    plane = stage.nodes[0].shard
    assert plane is not None
    return plane


def begin_checkpoint(stage: Stage, plane: Plane) -> None:
    plane.checkpoints.want_one()
    stage.tick(1)
    assert plane.checkpoints.phase is Phase.FLUSHING


def end_checkpoint(stage: Stage, plane: Plane) -> None:
    plane.on_flushed()
    stage.tick(1)
    assert plane.checkpoints.phase is Phase.IDLE


def test_ops_that_were_kept_for_a_checkpoint_are_let_go_with_it() -> None:
    stage = Stage(3)
    stage.tick(5)
    stage.muted[PARTITION] = None
    stage.request(0, "p", 0, 0, b"")
    plane = boot_slowly(stage, is_awake=True)
    stuck = plane.groups[PARTITION]
    assert (stuck.op, stuck.commit_min) == (1, 0)
    begin_checkpoint(stage, plane)
    assert stuck.live(1) is not None
    end_checkpoint(stage, plane)
    assert stuck.live(1) is None


def test_a_group_that_wakes_and_goes_during_a_checkpoint_leaves_nothing() -> None:
    stage = Stage(1)
    stage.tick(1)
    stage.request(0, "p", 0, 0, b"")
    plane = boot_slowly(stage, is_awake=False)
    begin_checkpoint(stage, plane)
    assert plane.is_dormant(PARTITION)
    stage.wake(0)
    plane.check()
    plane.remove_group(PARTITION)
    stage.carry_out(stage.nodes[0], plane.close_turn())
    plane.check()
    end_checkpoint(stage, plane)
    assert PARTITION in plane.store.checkpointed_ops()  # as it was when that began
    begin_checkpoint(stage, plane)
    end_checkpoint(stage, plane)
    assert PARTITION not in plane.store.checkpointed_ops()
