"""O2.9: the superblock names the record of a promised view before a frame of that view leaves."""

from headrace.ports.disk import BlockWritten, WriteBlock
from headrace.shard.consensus.plane import Effect
from headrace.storage.copies import COPIES_QUORUM
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.decode import decode_replica
from tests.shard.stage import GROUPS, Node, Stage

NAMED = "superblock: a synced record is named"


class SlowStage(Stage):
    """A stage on which blocks of superblocks are written when the test says so."""

    def __init__(self, count: int) -> None:
        self.is_slow = False
        self.blocks: list[tuple[Node, WriteBlock]] = []
        super().__init__(count)

    def carry_out(self, node: Node, effects: list[Effect]) -> None:
        if self.is_slow:
            blocks = [effect for effect in effects if isinstance(effect, WriteBlock)]
            self.blocks += [(node, block) for block in blocks]
            effects = [effect for effect in effects if not isinstance(effect, WriteBlock)]
        super().carry_out(node, effects)

    def write_block(self) -> None:
        node, block = self.blocks.pop(0)
        end = block.position + len(block.data)
        node.disk.cached[block.name][block.position : end] = block.data
        self.step(node, BlockWritten(block.token))

    def spoken(self, number: int) -> list[FrameKind]:
        """Give the kinds of the frames about groups that a node has sent and nobody has heard."""
        kinds = [decode_replica(sent.frame)[0] for sender, sent in self.flying if sender == number]
        return [kind for kind in kinds if kind != FrameKind.NODE_HEARTBEAT]


def test_a_view_is_named_before_it_is_spoken_of() -> None:
    stage = SlowStage(3)
    stage.tick(60)
    stage.is_slow = True
    stage.nodes[0].shard = stage.nodes[1].shard = None
    stage.tick(600)
    plane = stage.nodes[2].shard
    assert plane is not None
    assert [plane.groups[group].view for group in GROUPS.values()] == [1, 1, 1]
    for _ in range(COPIES_QUORUM):
        assert stage.spoken(2) == []
        assert len(stage.blocks) == 1, "one write for all groups, one copy after another"
        stage.write_block()
    kinds = stage.spoken(2)
    assert kinds.count(FrameKind.START_VIEW_CHANGE) >= 2 * len(GROUPS)
    while stage.blocks:
        stage.write_block()
    assert plane.store.probes.counts[NAMED] == 1


def test_views_that_come_while_one_is_named_share_the_next_write() -> None:
    stage = SlowStage(3)
    stage.tick(60)
    stage.is_slow = True
    stage.nodes[0].shard = stage.nodes[1].shard = None
    stage.tick(600)
    stage.tick(1200)  # every group tries the next view before the first one is named
    plane = stage.nodes[2].shard
    assert plane is not None
    views = [plane.groups[group].view for group in GROUPS.values()]
    assert min(views) > 1
    assert len(stage.blocks) == 1
    while stage.blocks:
        stage.write_block()
    assert plane.store.probes.counts[NAMED] == 2
    assert plane.store.named == plane.store.synced
    told = [
        decode_replica(sent.frame)[1].view
        for _, sent in stage.flying
        if decode_replica(sent.frame)[0] == FrameKind.START_VIEW_CHANGE
    ]
    assert told
    assert min(told) == min(views), "nothing is said of a view that was left before it was named"


def test_a_single_node_names_nothing() -> None:
    stage = Stage(1)
    for number in range(3):
        stage.request(0, "m", number, 0, b"")
    stage.tick(700)
    plane = stage.nodes[0].shard
    assert plane is not None
    assert plane.groups[GROUPS["m"]].commit_min == 3
    assert NAMED not in plane.store.probes.counts
