"""A node of several shards with one folder of segments, whose lanes and shards can be disturbed.

Requests and all else travel on main lanes, replies on their own, as on the bus. A shard can stand
still, or be killed alone: its siblings go on until the whole node is ended.
"""

from collections import deque
from typing import Any

from headrace.base.ids import GroupId
from headrace.base.placement import owner_of
from headrace.ports.bus import BusFrames, BusRefused, DropReason, MemberLost, SendToMember
from headrace.ports.network import ConnectionClosed
from headrace.shard.effects import ShardEvent
from headrace.storage.resharding import BuiltStore, build_store, contents_of, share_out
from headrace.storage.store import Opened, open_store
from headrace.wire.bus.decode import group_of, ticket_of
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from tests.memory_disk import MemoryDisk
from tests.shard.several import Member, Several
from tests.shard.whole import LOOPBACK

_DATA = 1  # the store of a shard's partitions


class Shards(Several):
    """The node."""

    def __init__(self, count: int, **settings: Any) -> None:
        self.replies: dict[tuple[int, int], deque[bytes]] = {
            (sender, target): deque() for sender in range(count) for target in range(count)
        }
        self.paused: dict[int, None] = {}
        self.dead: dict[int, None] = {}
        super().__init__(count, **settings)
        for member in self.members[1:]:
            self._share_folder(member)

    def _share_folder(self, member: Member) -> None:
        """Have a shard see the files of all."""
        folder, own = self.main.segments, member.segments
        own.logs, own.indexes, own.durable = folder.logs, folder.indexes, folder.durable
        own.quarantined = folder.quarantined

    def begin(self) -> None:
        """Tell all shards that all stores are open; one that is alone waits for nobody."""
        if self.count > 1:
            super().begin()

    # Lanes.

    def send(self, sender: int, effect: SendToMember) -> list[ShardEvent]:
        """Take a frame into its lane, or refuse it."""
        frame = b"".join(bytes(part) for part in effect.parts)
        kind = frame[KIND_OFFSET]
        if effect.member >= self.count or effect.member in self.dead:
            is_there = effect.member < self.count
            reason = DropReason.DISCONNECTED if is_there else DropReason.UNROUTABLE
            return [BusRefused(effect.member, kind, ticket_of(frame), reason, group_of(frame))]
        if kind != FrameKind.FORWARDED_REPLY:
            return super().send(sender, effect)
        self.replies[sender, effect.member].append(frame)
        return []

    def deliver(self) -> bool:
        """Deliver what the lanes hold, to shards that do not stand still."""
        is_any = False
        for is_reply, lanes in ((False, self.lanes), (True, self.replies)):
            for pair, lane in lanes.items():
                is_still = pair[1] in self.paused or pair[1] in self.dead
                if lane and not is_still and (is_reply or pair not in self.held):
                    frames = tuple((pair[0], bytearray(frame)) for frame in lane)
                    lane.clear()
                    is_any = True
                    self.members[pair[1]].step(BusFrames(frames))
        return is_any

    def tick(self, count: int = 1) -> None:
        """Let time pass for all, and frames arrive between any two ticks."""
        for _ in range(count):
            self.rest()
            for member in self.members:
                if member.number in self.paused or member.number in self.dead:
                    member.now += 1
                else:
                    member.tick()
        self.rest()

    # Lives.

    def kill_one(self, shard: int) -> None:
        """Kill a shard alone: what it had not sent is gone, and its siblings learn of it."""
        self.dead[shard] = None
        self.paused.pop(shard, None)
        for lanes in (self.lanes, self.replies):
            for pair, lane in lanes.items():
                if shard in pair:
                    lane.clear()
        for member in self.members:
            if member.number not in self.dead:
                member.step(MemberLost(shard, "closed"))
        self.rest()

    def end(self, *, is_power_cut: bool = False) -> None:
        """End all shards."""
        for lanes in (self.lanes, self.replies):
            for lane in lanes.values():
                lane.clear()
        self.held.clear()
        self.full.clear()
        self.paused.clear()
        self.dead.clear()
        for member in self.members:
            member.end(is_power_cut=is_power_cut)
        if is_power_cut:
            self._join_folders()

    def _join_folders(self) -> None:
        """Leave of every file what its owner's writes have left of it."""
        folder = self.main.segments
        folder.logs = {
            file: data
            for member in self.members
            for file, data in member.segments.logs.items()
            if owner_of(GroupId(file.namespace), self.count) == member.number
        }
        for member in self.members[1:]:
            self._share_folder(member)

    def start(self) -> None:
        """Start all shards from their disks."""
        for member in self.members:
            member.start()
        self.begin()

    def with_count(self, count: int, **settings: Any) -> "Shards":
        """Return the node that has ended with another number of shards, not started yet (O2.5)."""
        stores = {str(each.number): _open(each, _DATA) for each in self.members}
        start = min(each.moment.start for each in stores.values())
        shares = share_out(stores, shard_count=count, start=start)
        made = Shards(count, **settings)
        made.end()
        for member, share in zip(made.members, shares, strict=True):
            member.now = self.main.now
            member.boot_identity = self.main.boot_identity
            built = build_store(share, member._store_config(_DATA, member.boot_identity))
            metadata = self.main if member.number == 0 else member
            member.set_files([metadata.disks[0].image(), _image(built)])
            assert contents_of(_open(member, _DATA)) == share, "what is moved is found again"
        made.main.segments = self.main.segments
        for member in made.members[1:]:
            made._share_folder(member)
        return made


class Door:
    """One shard of a node, as the connections that live there see it."""

    def __init__(self, node: Shards, home: int) -> None:
        self._node = node
        self._home = home

    @property
    def inbox(self) -> dict[int, list[bytes]]:
        return self._node.members[self._home].inbox

    def connect(self, address: str = LOOPBACK) -> int:
        return self._node.connect(address, self._home)

    def step(self, event: ShardEvent) -> None:
        if isinstance(event, ConnectionClosed):
            self._node.close(event.connection)
        else:
            self._node.step(event)


def _open(member: Member, store: int) -> Opened:
    image = MemoryDisk(member.disks[store].image()).image()
    found = open_store(member._store_config(store, member.boot_identity), image)
    assert isinstance(found, Opened), found
    return found


def _image(built: BuiltStore) -> dict[str, bytes]:
    return {
        name: data.ljust(built.journal_bytes, b"\0") if name.startswith("journal.") else data
        for name, data in built.files.items()
    }
