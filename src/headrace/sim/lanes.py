"""The bus of one simulated node: a main and a reply lane between every two of its shards.

A lane keeps what it has accepted, in order, until its reader takes it; it accepts a frame, or
refuses it before the first byte. A reader that stands still takes nothing, so its lanes fill up.
What is drawn to be held or full is so until its time is over. A forwarded request takes the place
of its reply, which is free again when the reply arrives or is given up.

Invariants: frames of a lane keep their order; none is lost while both ends live.
"""

from collections import Counter, deque
from typing import Protocol

import msgspec

from headrace.base.prng import Prng
from headrace.ports.bus import BusRefused, DropReason, MemberLost, ReleaseReply, SendToMember
from headrace.sim.agenda import MILLISECOND, Agenda, draw_delay
from headrace.wire.bus.decode import group_of, ticket_of
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind

_LOOK = MILLISECOND  # a lane that cannot move is looked at again
_REQUEST = int(FrameKind.FORWARDED_REQUEST)
_REPLY = int(FrameKind.FORWARDED_REPLY)


class LaneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How long lanes take, in microseconds, and how many frames they keep."""

    delay_mean: int = 60
    capacity: int = 1_000
    reply_capacity: int = 1_000
    handover_refused: int = 0  # rate of descriptors that cannot be handed over, of 16,384


class Readers(Protocol):
    """The shards at the ends of the lanes."""

    def is_reading(self, shard: int) -> bool:
        """Whether a shard takes what its lanes bring."""

    def take_frame(self, shard: int, sender: int, frame: bytes, *, is_reply: bool) -> None:
        """Take a frame."""

    def take_lost(self, shard: int, lost: MemberLost) -> None:
        """Take that a sibling is gone."""


class _Lane:
    __slots__ = ("frames", "held_until", "is_moving", "is_reply", "sender", "target")

    def __init__(self, sender: int, target: int, *, is_reply: bool) -> None:
        self.sender = sender
        self.target = target
        self.is_reply = is_reply
        self.frames: deque[bytes] = deque()
        self.is_moving = False
        self.held_until = 0


class Lanes:
    """All lanes of a node; they begin empty with each of its lives."""

    def __init__(
        self, options: LaneOptions, prng: Prng, agenda: Agenda, count: int, readers: Readers
    ) -> None:
        self.options = options
        self.events: Counter[str] = Counter()
        self._prng = prng
        self._agenda = agenda
        self._count = count
        self._readers = readers
        self._life = 0
        self.clear()

    def clear(self) -> None:
        """Begin anew, with all shards."""
        self._life += 1
        pairs = [(a, b) for a in range(self._count) for b in range(self._count) if a != b]
        self._lanes = {
            (sender, target, is_reply): _Lane(sender, target, is_reply=is_reply)
            for sender, target in pairs
            for is_reply in (False, True)
        }
        self._full_until: dict[tuple[int, int], int] = {}
        self._places: dict[tuple[int, int], dict[int, None]] = {pair: {} for pair in pairs}
        self._lost: dict[tuple[int, int], None] = {}  # who has learned that whom is gone

    # What shards do.

    def send(self, sender: int, effect: SendToMember) -> BusRefused | None:
        """Accept a frame, or refuse it."""
        frame = b"".join(bytes(part) for part in effect.parts)
        kind, target = frame[KIND_OFFSET], effect.member
        reason = self._reason_to_refuse(sender, target, frame)
        if reason is not None:
            self.events[f"lane.refused_{reason.value}"] += 1
            return BusRefused(target, kind, ticket_of(frame), reason, group_of(frame))
        if kind == _REQUEST:
            self._places[sender, target][ticket_of(frame)] = None
        lane = self._lanes[sender, target, kind == _REPLY]
        lane.frames.append(frame)
        self.events["lane.reply" if lane.is_reply else "lane.frame"] += 1
        self._plan(lane)
        return None

    def _reason_to_refuse(self, sender: int, target: int, frame: bytes) -> DropReason | None:
        kind = frame[KIND_OFFSET]
        lane = self._lanes.get((sender, target, kind == _REPLY))
        if lane is None:
            return DropReason.UNROUTABLE
        if (sender, target) in self._lost:
            return DropReason.DISCONNECTED
        options = self.options
        if lane.is_reply:
            is_full = len(lane.frames) >= options.reply_capacity
        else:
            is_filled = self._full_until.get((sender, target), 0) > self._agenda.now
            is_full = is_filled or len(lane.frames) >= options.capacity
        if kind == _REQUEST and len(self._places[sender, target]) >= options.reply_capacity:
            is_full = True
        return DropReason.FULL if is_full else None

    def release(self, sender: int, effect: ReleaseReply) -> None:
        """Give up the place of a reply."""
        self._places[sender, effect.member].pop(effect.ticket, None)

    # Faults.

    def hold(self, sender: int, target: int, until: int) -> None:
        """Let both lanes of a pair bring nothing until then."""
        self.events["lane.held"] += 1
        for is_reply in (False, True):
            self._lanes[sender, target, is_reply].held_until = until

    def fill(self, sender: int, target: int, until: int) -> None:
        """Let the main lane of a pair take nothing until then."""
        self.events["lane.filled"] += 1
        self._full_until[sender, target] = until

    def heal(self) -> None:
        """End what was drawn to go wrong."""
        self.options = LaneOptions()
        self._full_until.clear()
        for lane in self._lanes.values():
            lane.held_until = 0

    def end(self, shard: int) -> None:
        """Close the lanes of a shard: what it had written arrives, the rest is lost."""
        for sibling in range(self._count):
            if sibling == shard:
                continue
            for is_reply in (False, True):
                self._lanes[sibling, shard, is_reply].frames.clear()
                left = self._lanes[shard, sibling, is_reply]
                left.held_until = 0
                for _ in range(self._prng.below(len(left.frames) + 1)):
                    left.frames.pop()
            delay = draw_delay(self._prng, self.options.delay_mean)
            self._agenda.after(delay, self._lose, (self._life, sibling, shard))

    def _lose(self, argument: tuple[int, int, int]) -> None:
        life, sibling, shard = argument
        if life != self._life:
            return
        if not self._readers.is_reading(sibling):
            self._agenda.after(_LOOK, self._lose, argument)
            return
        for is_reply in (False, True):
            self._bring(self._lanes[shard, sibling, is_reply])
        self._lost[sibling, shard] = None
        self._places[sibling, shard].clear()
        self._readers.take_lost(sibling, MemberLost(shard, "closed"))

    # Movement.

    def _plan(self, lane: _Lane) -> None:
        if not lane.is_moving:
            lane.is_moving = True
            delay = draw_delay(self._prng, self.options.delay_mean)
            self._agenda.after(delay, self._move, (self._life, lane))

    def _move(self, argument: tuple[int, _Lane]) -> None:
        life, lane = argument
        if life != self._life:
            return
        if lane.held_until > self._agenda.now or not self._readers.is_reading(lane.target):
            self._agenda.after(_LOOK, self._move, argument)
            return
        lane.is_moving = False
        self._bring(lane)

    def _bring(self, lane: _Lane) -> None:
        frames = list(lane.frames)
        lane.frames.clear()
        for frame in frames:
            if lane.is_reply:
                self._places[lane.target, lane.sender].pop(ticket_of(frame), None)
            self._readers.take_frame(lane.target, lane.sender, frame, is_reply=lane.is_reply)
