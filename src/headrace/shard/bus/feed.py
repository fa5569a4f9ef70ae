"""Feeds the metadata to the shards that have no metadata group (O5.2).

Every op that the group applies goes to every other shard, with the op before it, so that a shard
notices what it lacks. Points say how far the commit is, at least ten times a second. Whoever asks
gets what follows: from the newest ops, or as a whole image.

Flow: apply.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from headrace.base.limits import HEADER_BYTES
from headrace.metadata.machine import MetadataMachine
from headrace.ports.bus import SendToMember
from headrace.ports.machine import Piece
from headrace.ports.network import Buffer
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.turn import Turn
from headrace.wire.bus.feed import (
    FEED_IMAGE,
    FEED_OP,
    FEED_POINT,
    FeedAskHeader,
    FeedImageHeader,
    FeedOpHeader,
    FeedPointHeader,
)
from headrace.wire.replica.prepares import PREPARE, PrepareHeader

if TYPE_CHECKING:
    from headrace.shard.bus.numbered import Incoming

POINT_TICKS = 10
SILENT_TICKS = 100  # ten times as long as a shard takes to tell how far it is
_PIECE_BYTES = 1 << 20
_OPS_MAX = 1024
_OPS_BYTES_MAX = 16 << 20


class _Fed(msgspec.Struct, frozen=True):
    """An op that was applied, and the one before it."""

    previous: int
    op: int
    frame: bytes  # its prepare


class FedMachine(MetadataMachine):
    """The machine of the metadata group, on a shard that feeds others."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[tuple[PrepareHeader, bytes]] = []  # applied since the feed has looked
        self.installed_op = -1  # of an image that took its place lately: others need one too

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Apply one committed op, and have it fed."""
        assert not self.fresh or self.fresh[-1][0].op < header.op, "ops are applied in order"
        reply = super().apply(header, body)
        self.fresh.append((header, bytes(body)))
        return reply

    def install(self, artifacts: Sequence[Piece]) -> None:
        """Replace the state by a snapshot: those who are fed need it too."""
        super().install(artifacts)
        self.fresh.clear()
        self.installed_op = self.op


class Peer:
    """What is known of a shard that is fed."""

    __slots__ = ("commit", "heard", "op", "settled")

    def __init__(self) -> None:
        self.heard = 0  # the tick of its last frame
        self.op = -1  # the last op that it has applied; -1: it has no image
        self.commit = 0
        self.settled = -1  # the revision at which all its partitions are as metadata says


class Feed:
    """On shard 0; `MetadataImage` is the other end."""

    def __init__(self, group: MetadataGroup, machine: FedMachine, count: int, turn: Turn) -> None:
        assert count > 1, "a shard that is alone feeds nobody"
        self._group = group
        self._machine = machine
        self._turn = turn
        self.peers = {member: Peer() for member in range(1, count)}
        self._ops: deque[_Fed] = deque()
        self._ops_bytes = 0
        self._last_op = 0
        self._told = -1  # the commit that was told last
        self._told_at = 0
        self.departures: Mapping[int, Incoming] = {}  # what shards have told of connections

    def after_turn(self) -> None:
        """Feed what was applied in this turn, and tell the commit if it has changed."""
        machine, clock = self._machine, self._turn.clock
        if machine.installed_op >= 0:
            assert machine.installed_op <= machine.op, "what was applied since is fresh"
            self._ops.clear()
            self._ops_bytes = 0
            # Ops that were applied after it in the same turn are fed, and follow it.
            self._last_op, machine.installed_op = machine.installed_op, -1
        for header, body in machine.fresh:
            fed = _Fed(self._last_op, header.op, PREPARE.encode(header) + body)
            self._last_op = header.op
            self._keep(fed)
            for member in self.peers:
                self._send_op(member, fed)
        machine.fresh.clear()
        assert self._last_op == machine.op, "all that is applied is fed"
        commit = self._group.commit
        if commit != self._told or clock.now - self._told_at >= POINT_TICKS:
            self._told, self._told_at = commit, clock.now
            for member in self.peers:
                self._send_point(member, 0)

    def _keep(self, fed: _Fed) -> None:
        assert fed.previous < fed.op, "ops are fed in order"
        self._ops.append(fed)
        self._ops_bytes += len(fed.frame)
        while len(self._ops) > _OPS_MAX or self._ops_bytes > _OPS_BYTES_MAX:
            self._ops_bytes -= len(self._ops.popleft().frame)
        assert 0 <= self._ops_bytes <= _OPS_BYTES_MAX, "what is kept is bounded"

    def on_ask(self, member: int, asked: FeedAskHeader) -> None:
        """Take how far a shard is, and send what it asks for.

        A question with a number asks for the commit, and says nothing of the shard.
        """
        peer = self.peers[member]
        assert peer.heard <= self._turn.clock.now, "time does not go back"
        peer.heard = self._turn.clock.now
        if asked.number:
            self._send_point(member, asked.number)
            return
        assert peer.commit <= asked.commit, "a shard does not go back"
        peer.op = asked.op if asked.has_image else -1
        peer.commit, peer.settled = asked.commit, asked.settled - 1
        if asked.is_lacking and self._group.is_caught_up:
            following = [fed for fed in self._ops if fed.op > asked.op]
            if asked.has_image and following and following[0].previous == asked.op:
                for fed in following:
                    self._send_op(member, fed)
            elif not asked.has_image or asked.op != self._last_op:
                self._send_image(member)
        if asked.is_lacking:
            self._send_point(member, 0)

    def _send_op(self, member: int, fed: _Fed) -> None:
        assert fed.op <= self._last_op, "only what is applied is fed"
        header = FeedOpHeader(size=HEADER_BYTES + len(fed.frame), op=fed.op, previous=fed.previous)
        self._turn.out.append(SendToMember(member, (FEED_OP.encode(header), fed.frame)))

    def _send_image(self, member: int) -> None:
        (image,) = self._machine.checkpoint()
        data = image.data
        assert len(data) > 0, "an image is never empty: its last piece installs it"
        assert self._last_op <= image.frontier <= self._group.commit, "it has all that was fed"
        for offset in range(0, len(data), _PIECE_BYTES):
            piece = data[offset : offset + _PIECE_BYTES]
            header = FeedImageHeader(
                size=HEADER_BYTES + len(piece),
                op=image.frontier,
                commit=self._group.commit,
                offset=offset,
                total=len(data),
            )
            self._turn.out.append(SendToMember(member, (FEED_IMAGE.encode(header), piece)))

    def _send_point(self, member: int, number: int) -> None:
        assert not self._machine.fresh, "a point tells of nothing that was not fed before"
        taken = self.departures[member].taken if member in self.departures else 0
        header = FeedPointHeader(
            op=self._last_op,
            commit=self._group.commit,
            number=number,
            departures=taken,
            is_current=int(number > 0 and self._group.is_current),
        )
        self._turn.out.append(SendToMember(member, (FEED_POINT.encode(header),)))

    def hears(self, member: int) -> bool:
        """Whether a shard has told lately how far it is; one that hangs has not."""
        return self._turn.clock.now - self.peers[member].heard < SILENT_TICKS

    def are_settled(self) -> bool:
        """Whether all shards have made their partitions as the metadata says now, purges too."""
        revision = self._group.state.revision
        return all(peer.settled >= revision for peer in self.peers.values())

    def check(self) -> None:
        """Assert that what is kept is one run of ops up to the last one, within its bounds."""
        previous = self._ops[0].previous if self._ops else self._last_op
        for fed in self._ops:
            assert fed.previous == previous < fed.op, "ops are fed in order"
            previous = fed.op
        assert previous == self._last_op, "the newest op is kept"
        assert self._ops_bytes == sum(len(fed.frame) for fed in self._ops), "bytes are counted"
        assert self._last_op <= self._group.commit, "only what is applied is fed"
        assert not self._machine.fresh, "what was applied in a turn is fed in it"
        assert self._machine.installed_op == -1, "an image that took its place was noticed"
        assert self._machine.op == self._last_op, "all that is applied is fed"
        assert len(self._ops) <= _OPS_MAX, "what is kept is bounded"
        assert self._told <= self._group.commit, "only what is committed is told"
        assert self._told_at <= self._turn.clock.now, "nothing was told in the future"
        assert self.departures.keys() == self.peers.keys(), "who is fed is a home"
        for peer in self.peers.values():
            assert -1 <= peer.op <= peer.commit, "only what is committed is fed"
            assert peer.commit <= self._group.commit, "nobody is ahead of the group"
            assert peer.op <= self._last_op, "nobody has what was not fed"
            assert peer.settled <= self._group.state.revision, "partitions follow the metadata"
