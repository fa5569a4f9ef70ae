"""Takes the frames of other nodes to the plane of their group, on whatever shard that is.

```
link of another node -> its group, or its store for a heartbeat -> this shard: its plane
                                                                -> another: its main lane
lane of another shard                                           -> this shard: its plane
                                                                -> another: dropped, counted
```

A frame belongs to a group, and its group to one shard: the metadata group is on shard 0 and never
hashed (SH-13). Both ends of a link are of shards of one number, so only frames of a node
that sees its shards otherwise take the second way.

Flow:       route, replicate.
Invariants: a frame takes one hop at most, and nobody else gets it instead (SH-12, SH-15).
"""

from collections.abc import Mapping

from headrace.base.ids import METADATA_GROUP, GroupId
from headrace.base.placement import METADATA_SHARD, Placement
from headrace.ports.bus import DropReason, SendToMember
from headrace.ports.network import Buffer, FramesArrived
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.consensus.plane import Plane
from headrace.shard.turn import Turn
from headrace.wire.errors import RemoteError
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import NodeHeartbeatHeader
from headrace.wire.replica.kinds import ReplicaHeader


class ReplicaFrames:
    """The way of such frames; `plane_of` has the planes of this shard by their store."""

    def __init__(self, placement: Placement, plane_of: Mapping[int, Plane], turn: Turn) -> None:
        assert DATA_STORE in plane_of, "every shard has partitions"
        self._placement = placement
        self._plane_of = plane_of
        self._turn = turn

    def on_frames(self, event: FramesArrived) -> None:
        """Take frames of the links of this shard."""
        for sender, frame in event.frames:
            found = self._decode(frame)
            if found is None:
                continue
            kind, header = found
            owner = self._owner(header)
            if owner == self._placement.shard:
                self._take(sender, kind, header, frame)
            else:
                assert self._placement.shard_count > 1, "who is alone has every group"
                self._turn.probes.hit("frame.passed_on")
                self._turn.out.append(SendToMember(owner, (frame,)))

    def on_passed(self, frame: Buffer) -> None:
        """Take a frame that came by another shard; its sender is the one that it names."""
        assert self._placement.shard_count > 1, "who is alone has no lanes"
        frame = bytes(frame)
        found = self._decode(frame)
        if found is None:
            return
        kind, header = found
        if self._owner(header) == self._placement.shard:
            self._take(header.replica, kind, header, frame)
        else:
            group = getattr(header, "group", METADATA_GROUP)
            self._turn.drops.count(kind, DropReason.MISROUTED, group=group)

    def _decode(self, frame: bytes) -> tuple[FrameKind, ReplicaHeader] | None:
        try:
            return decode_replica(frame)
        except RemoteError:
            self._turn.probes.hit("frame.refused")
            return None

    def _owner(self, header: ReplicaHeader) -> int:
        """Return the shard that a frame is for; heartbeats of partitions are for who has them."""
        placement = self._placement
        if placement.shard_count == 1:
            return placement.shard
        if isinstance(header, NodeHeartbeatHeader):
            return METADATA_SHARD if header.journal == METADATA_STORE else placement.shard
        owner = placement.owner(GroupId(getattr(header, "group", METADATA_GROUP)))
        assert owner < placement.shard_count, "an owner is a shard of this node"
        return owner

    def _take(self, sender: int, kind: FrameKind, header: ReplicaHeader, frame: bytes) -> None:
        """Pass a frame to its plane: lives and heartbeats belong to one store."""
        if isinstance(header, NodeHeartbeatHeader):
            store = header.journal
        else:
            is_metadata = getattr(header, "group", METADATA_GROUP) == METADATA_GROUP
            store = METADATA_STORE if is_metadata else DATA_STORE
        if store in self._plane_of:
            self._plane_of[store].take_frame(sender, kind, header, frame)
        else:
            self._turn.probes.hit("frame.foreign")
