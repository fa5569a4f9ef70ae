"""What must hold between the shards of a node.

O5.2  the image of a shard is the metadata as it was after the op that the shard was fed last
RC1   once nothing goes wrong any more, the images of all shards become the metadata
O4.3  and nobody waits for an answer on any of them
SH18  no frame goes to a shard that it is not for; none is dropped where no lane is disturbed
"""

from collections.abc import Iterator, Sequence

from headrace.ports.bus import DropReason
from headrace.shard.peer import PeerShard
from headrace.shard.shard import Shard
from headrace.sim.nodes.checkers import METADATA, Checkers
from headrace.sim.nodes.options import NodeOptions
from headrace.sim.nodes.running import Host, running_of
from headrace.sim.violation import SimViolationError

_NEVER = (DropReason.UNROUTABLE.value, DropReason.MISROUTED.value)
# A frame that waited in vain for its partition: no lane is to blame.
_ALWAYS = (DropReason.PARK_OVERFLOW.value, DropReason.PARK_DROPPED.value)
_FRAMES_MANY = 1_000  # a lane for so many fills up only if it is disturbed


class Siblings:
    """The shards of all nodes."""

    def __init__(self, options: NodeOptions, checkers: Checkers) -> None:
        faults, lanes = options.faults, options.lanes
        is_narrow = min(lanes.capacity, lanes.reply_capacity) < _FRAMES_MANY
        self._is_disturbed = is_narrow or bool(
            faults.part_kill_mean or faults.part_pause_mean or faults.lane_mean
        )
        self._checkers = checkers
        self._compared: dict[tuple[int, int, int], int] = {}  # ops, by node, life and shard

    def check(self, host: Host) -> None:
        """Check the images that have changed, and what was dropped."""
        running = host.running
        assert running is not None
        for index, each in enumerate(running.shards):
            if isinstance(each.shard, PeerShard):
                self._check_image(host, index, each.shard)
            self._check_drops(host, index, each.shard)

    def _check_image(self, host: Host, index: int, shard: PeerShard) -> None:
        op, place = shard.image.last_op, (host.index, host.life, index)
        if op == 0 or self._compared.get(place) == op:
            return
        self._compared[place] = op
        known = self._checkers.histories[METADATA].ops.get(op)
        if known is None or known.state_hash != shard.image.machine.state_hash():
            raise SimViolationError("O5.2", why="another metadata", node=host.index, shard=index)
        self._checkers.count("image.compared")

    def _check_drops(self, host: Host, index: int, shard: Shard | PeerShard) -> None:
        rows = shard.front.counters.drops()
        for variant, reason, count in rows:
            if reason in _NEVER or (reason not in _ALWAYS and not self._is_disturbed):
                raise SimViolationError(
                    "SH18",
                    why="dropped, and nothing was disturbed",
                    node=host.index,
                    shard=index,
                    dropped=(variant, reason, count),
                )


def why_not_level(core: Sequence[Host]) -> str:
    """Return which shard has not all the metadata, or somebody who waits; or nothing."""
    return next(_reasons(core), "")


def _reasons(core: Sequence[Host]) -> Iterator[str]:
    for host, running in running_of(core):
        main = running.shards[0].shard
        assert isinstance(main, Shard)
        for index, each in enumerate(running.shards):
            place = f"shard {index} of node {host.index}"
            if isinstance(each.shard, PeerShard) and each.shard.image.commit < main.metadata.commit:
                yield f"{place} has not all the metadata"
            if each.shard.front.answers.waiting_count:
                yield f"{place} has still to answer"
