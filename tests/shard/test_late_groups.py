"""A group that a node takes up later than the others: what they said of it meanwhile counts."""

from headrace.shard.consensus.plane import Plane
from tests.shard.stage import GROUPS, Stage

WATCHED = GROUPS["p"]
LATE = 0  # It leads the first view.


class LateStage(Stage):
    """Three nodes, of which one has no groups until it is told to."""

    is_late = True

    def wake(self, number: int) -> None:
        if number != LATE or not self.is_late:
            super().wake(number)


def plane_of(stage: Stage, number: int) -> Plane:
    plane = stage.nodes[number].shard
    assert plane is not None
    return plane


def test_a_late_group_hears_of_the_view_that_the_others_are_in() -> None:
    stage = LateStage(3)
    late = plane_of(stage, LATE)
    stage.nodes[LATE].shard = None  # Nobody hears of it, and it stands still.
    stage.tick(600)
    view = plane_of(stage, 1).groups[WATCHED].view
    assert view > 0
    stage.nodes[LATE].shard = late
    stage.tick(200)  # The others tell their views, and hear that this was heard.
    assert late.probes.counts["frame.no_such_group"]
    stage.is_late = False
    stage.wake(LATE)
    assert late.groups[WATCHED].view == 0
    stage.tick(300)
    assert late.groups[WATCHED].view == plane_of(stage, 1).groups[WATCHED].view == view
    assert late.groups[WATCHED].status == plane_of(stage, 1).groups[WATCHED].status
