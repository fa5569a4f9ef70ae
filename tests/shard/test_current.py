"""Who leads says what is current only while others have promised to stay (O6.2)."""

import pytest

from headrace.ports.network import Ticked
from headrace.shard.consensus.plane import Plane
from headrace.vsr.events import PrimarySilent
from headrace.vsr.replica import Replica
from headrace.vsr.timeouts import Timeouts
from tests.shard.stage import GROUPS, Stage

GROUP = GROUPS["p"]
INTERVAL = Timeouts().heartbeat_interval
TIMEOUT = Timeouts().heartbeat_timeout


def plane_of(stage: Stage, number: int) -> Plane:
    plane = stage.nodes[number].shard
    assert plane is not None
    return plane


def replica_of(stage: Stage, number: int) -> Replica:
    return plane_of(stage, number).groups[GROUP]


def is_current(stage: Stage, number: int) -> bool:
    return plane_of(stage, number).is_current(replica_of(stage, number))


def tick_among(stage: Stage, count: int, *nodes: int) -> None:
    """Let time pass for all; only these nodes hear each other."""
    for _ in range(count):
        stage.now += 1
        for node in stage.nodes:
            stage.step(node, Ticked(stage.now, stage.now * 10_000))
        while stage.flying:
            stage.flying = [
                each for each in stage.flying if each[0] in nodes and each[1].replica in nodes
            ]
            frames, stage.flying = stage.flying, []
            for frame in frames:
                rest, stage.flying = stage.flying, [frame]
                stage.deliver()
                stage.flying += rest


def suspect(stage: Stage, number: int) -> None:
    """Have a node call for another view."""
    plane = plane_of(stage, number)
    plane.inbox.queue.append((replica_of(stage, number), PrimarySilent()))
    stage.carry_out(stage.nodes[number], plane.close_turn())


def test_a_node_that_is_alone_is_always_current() -> None:
    stage = Stage(1)
    assert is_current(stage, 0)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_whoever_leads_asks_and_then_knows(count: int) -> None:
    stage = Stage(count)
    stage.tick(1)
    assert not is_current(stage, 0)
    stage.tick(3)
    assert is_current(stage, 0)
    assert not is_current(stage, 1)  # It does not lead.


def test_what_is_asked_for_is_renewed_and_then_given_up() -> None:
    stage = Stage(3)
    is_current(stage, 0)
    stage.tick(TIMEOUT // 2)
    assert is_current(stage, 0)
    stage.tick(2 * TIMEOUT)
    assert not is_current(stage, 0)


def test_without_a_majority_nothing_is_current() -> None:
    stage = Stage(3)
    stage.tick(1)
    is_current(stage, 0)
    stage.tick(3)
    assert is_current(stage, 0)
    for _ in range(TIMEOUT // 2):
        is_current(stage, 0)
        tick_among(stage, 1, 0)
    assert not is_current(stage, 0)
    tick_among(stage, 2 * INTERVAL, 0, 1)
    assert is_current(stage, 0)


def test_who_promised_to_stay_follows_nobody_until_that_is_over() -> None:
    stage = Stage(3)
    stage.tick(1)
    is_current(stage, 0)
    tick_among(stage, 3, 0, 1)
    suspect(stage, 2)
    tick_among(stage, 3, 1, 2)
    assert (replica_of(stage, 1).view, replica_of(stage, 2).view) == (0, 1)
    assert is_current(stage, 0)
    tick_among(stage, TIMEOUT, 1, 2)
    assert replica_of(stage, 1).view > 0
    assert not is_current(stage, 0)


def test_a_primary_that_leaves_its_view_frees_the_others() -> None:
    stage = Stage(3)
    stage.tick(1)
    is_current(stage, 0)
    tick_among(stage, 3, 0, 1)
    suspect(stage, 2)
    stage.tick(3)
    assert not is_current(stage, 0)
    assert [replica_of(stage, number).view for number in range(3)] == [1, 1, 1]


def test_a_promise_counts_from_when_the_question_was_sent() -> None:
    stage = Stage(3)
    stage.tick(1)
    is_current(stage, 0)
    asked = stage.now + 1
    stage.tick(3)
    promised = replica_of(stage, 0).state.lease.promised
    assert list(promised.values()) == [asked, asked]


def test_only_promises_of_this_view_count() -> None:
    stage = Stage(3)
    stage.tick(1)
    replica = replica_of(stage, 0)
    for sender in (1, 2):
        replica.hear_promise(sender, replica.view + 1, stage.now)
    assert not replica.is_current
    assert not replica_of(stage, 1).promise(replica.view + 1)
    assert not replica.promise(replica.view)  # Who leads promises nothing to itself.
    replica.hear_promise(1, replica.view, stage.now)
    assert replica.is_current
