"""An op that a checkpoint does not cover is kept by later ones, though nothing changes (O2.2)."""

from tests.shard.stage import GROUPS, Stage

VALUE = bytes(1500)
LAPS = 6  # of a journal, about


def test_an_op_without_a_quorum_outlives_many_checkpoints() -> None:
    stage = Stage(3)
    stage.tick(5)
    stage.request(0, "m", 0, 0, b"")
    stage.deliver()
    ((_, session),) = stage.take_answers()
    stage.muted[GROUPS["p"]] = None
    stage.request(0, "p", 0, 0, b"")
    plane = stage.nodes[0].shard
    assert plane is not None
    stuck = plane.groups[GROUPS["p"]]
    assert (stuck.op, stuck.commit_min) == (1, 0)
    for number in range(1, 40 * LAPS + 1):
        stage.request(0, "m", number, session, VALUE)
        stage.deliver()
        stage.take_answers()
    assert plane.checkpoints.done_count >= LAPS
    assert (stuck.op, stuck.commit_min) == (1, 0)
    stage.boot(0)
    again = stage.nodes[0].shard
    assert again is not None
    assert again.groups[GROUPS["p"]].op == 1
