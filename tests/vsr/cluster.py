"""Replicas of one group side by side: a disk that answers at once, a network that is one list."""

import msgspec

from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.ports.network import SendFrame, SendReply
from headrace.ports.probes import Probes
from headrace.ports.recovered import GroupCheckpoint, RecoveredEntry, RecoveredGroup, ViewState
from headrace.sim.machine import AppendMachine
from headrace.vsr.events import (
    CheckpointDone,
    EntryRead,
    FrameReceived,
    GroupEffect,
    GroupEvent,
    JournalPrepare,
    JournalTruncate,
    PersistView,
    PrepareDurable,
    PrimaryBeat,
    PrimarySilent,
    ReadEntry,
    ReadPiece,
    RequestReceived,
    SetTimer,
    StopTimer,
    TakeCheckpoint,
    TimerFired,
    ViewDurable,
)
from headrace.vsr.invariants import check_shared
from headrace.vsr.quorum import quorums_of
from headrace.vsr.replica import Replica
from headrace.vsr.sessions import ClientTable
from headrace.vsr.state import GroupOptions, Shared
from headrace.vsr.timeouts import Timeouts, Timer
from headrace.wire.numbers import Operation
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.prepares import PREPARE
from headrace.wire.requests import RequestHeader

WRITES = (JournalPrepare, JournalTruncate, PersistView, TakeCheckpoint)


class Node:
    """One replica with a disk that never fails, and answers at once unless it is held."""

    def __init__(self, number: int, replicas: int, seed: int, pipeline_max: int = 32) -> None:
        self.number = number
        self.probes = Probes()
        self.options = GroupOptions(
            cluster=1,
            group=METADATA_GROUP,
            replica=number,
            quorums=quorums_of(replicas),
            timeouts=Timeouts(),
            incarnation=seed * 100 + number + 1,
            chunk_bytes=300,
            pipeline_max=pipeline_max,
        )
        self.shared = Shared(self.probes, lambda *_, **__: True, life=seed + 1)
        self.replica = Replica(
            self.options,
            AppendMachine(),
            ClientTable(),
            Prng(seed),
            self.shared,
        )
        self.timers: dict[Timer, int] = {}
        self.entries: dict[int, tuple[bytes, bytes | None]] = {}
        self.taken: dict[int, tuple[bytes, bytes | None]] = {}  # as they were before the damage
        self.view = ViewState(METADATA_GROUP, 0, 0, 0, is_suspect=False)
        self.checkpoint: GroupCheckpoint | None = None
        self.is_holding = False  # the disk takes no write
        self.waiting: list[GroupEffect] = []
        self.sent: list[SendFrame] = []
        self.replies: list[SendReply] = []

    def begin(self, recovered: RecoveredGroup | None, *, is_replaced: bool) -> None:
        self.replica.restore(recovered, is_replaced=is_replaced)
        effects = self.replica.start()
        self._check()
        self.take(effects)

    def _check(self) -> None:
        self.replica.check()
        check_shared(self.shared, (self.replica.state,))

    def take(self, effects: list[GroupEffect]) -> None:
        for effect in effects:
            if self.is_holding and isinstance(effect, WRITES):
                self.waiting.append(effect)
                continue
            follow = self._carry_out(effect)
            if follow is not None:
                self.step(follow)

    def release(self) -> None:
        """Let the disk take what it was asked for since it was held."""
        self.is_holding = False
        waiting, self.waiting = self.waiting, []
        self.take(waiting)

    def save(self) -> None:
        """Take a checkpoint; the journal keeps what follows it."""
        self.checkpoint = self.replica.checkpoint()
        commit = self.replica.commit_min
        self.entries = {op: each for op, each in self.entries.items() if op > commit}

    def step(self, event: GroupEvent) -> None:
        effects = self.replica.step(event)
        self._check()
        self.take(effects)

    def _carry_out(self, effect: GroupEffect) -> GroupEvent | None:
        match effect:
            case SendFrame():
                self.sent.append(effect)
            case SendReply():
                self.replies.append(effect)
            case JournalPrepare(op, checksum, header, body):
                self.entries[op] = (header, None if body is None else bytes(body))
                return PrepareDurable(op, checksum) if body is not None else None
            case JournalTruncate(from_op):
                self.entries = {op: each for op, each in self.entries.items() if op < from_op}
            case PersistView(state):
                self.view = state
                return ViewDurable(state.view, state.log_view)
            case SetTimer(timer, ticks):
                self.timers[timer] = ticks
            case StopTimer(timer):
                self.timers.pop(timer, None)
            case ReadEntry(token, op):
                header, body = self.entries.get(op, (b"", None))
                return EntryRead(token, header if body is not None else b"", body or b"")
            case TakeCheckpoint() | ReadPiece():  # no machine here keeps a piece outside memory
                self.save()
                return CheckpointDone()
        return None


class Cluster:
    """All replicas; messages wait in a list until the test delivers or drops them."""

    def __init__(self, replicas: int, seed: int = 1, *, pipeline_max: int = 32) -> None:
        self.nodes = [Node(number, replicas, seed, pipeline_max) for number in range(replicas)]
        self.prng = Prng(seed)
        self.flying: list[tuple[int, SendFrame]] = []
        for node in self.nodes:
            node.begin(None, is_replaced=False)
        self.collect()

    def collect(self) -> None:
        for node in self.nodes:
            self.flying += [(node.number, frame) for frame in node.sent]
            node.sent.clear()

    def deliver(self, position: int) -> None:
        sender, sent = self.flying.pop(position)
        kind, header = decode_replica(sent.frame)
        self.nodes[sent.replica].step(FrameReceived(sender, kind, header, sent.frame))
        self.collect()

    def deliver_all(self, limit: int = 10_000) -> None:
        while self.flying and limit:
            self.deliver(0)
            limit -= 1
        assert limit

    def request(
        self, node: int, client: int, request: int, session: int, body: bytes, *, checksum: int = 0
    ) -> None:
        operation = Operation.CREATE_STREAM if session else Operation.REGISTER
        header = RequestHeader(
            size=HEADER_BYTES + len(body),
            client=client,
            request=request,
            session=session,
            request_checksum=checksum,
            operation=operation,
            group=METADATA_GROUP,
        )
        self.nodes[node].step(RequestReceived(header, body))
        self.collect()

    def fire(self, node: int, timer: Timer) -> None:
        self.nodes[node].timers.pop(timer, None)
        self.nodes[node].step(TimerFired(timer))
        self.collect()

    def silent(self, node: int) -> None:
        self.nodes[node].step(PrimarySilent())
        self.collect()

    def beat(self) -> None:
        """Every primary tells the others how far it has committed."""
        for node in self.nodes:
            beat = node.replica.beat()
            if beat is None:
                continue
            for other in self.nodes:
                if other is not node:
                    other.step(PrimaryBeat(node.number, beat.view, beat.commit, beat.is_declined))
        self.collect()

    def restart(self, number: int, *, damage: str = "", op: int = 0) -> None:
        """Start a node again from what its journal holds.

        Damage strikes as storage tells it: `vanished`, nothing of the op and of what follows was
        written; `cut`, the same, and something was; `torn` and `rotten`, the body of the op, and
        `missing`, the whole record of it, which `restored` brings back.
        """
        old = self.nodes[number]
        if damage in ("cut", "vanished"):
            old.entries = {each: old.entries[each] for each in old.entries if each < op}
        elif damage == "restored":
            old.entries[op] = old.taken.pop(op)
        elif damage == "missing":
            old.taken[op] = old.entries.pop(op)
        elif damage:
            old.taken[op] = old.entries[op]
            old.entries[op] = (old.entries[op][0], None)
        is_suspect = damage in ("cut", "rotten", "missing")
        node = Node(number, len(self.nodes), self.prng.below(1 << 30))
        node.entries = old.entries
        node.taken = old.taken
        node.checkpoint = old.checkpoint
        node.view = msgspec.structs.replace(
            old.view, commit=0, is_suspect=is_suspect or old.view.is_suspect
        )
        entries = tuple(
            RecoveredEntry(PREPARE.decode(header), body)
            for _, (header, body) in sorted(old.entries.items())
        )
        self.nodes[number] = node
        node.begin(RecoveredGroup(node.view, node.checkpoint, entries), is_replaced=False)
        self.collect()

    def wipe(self, number: int) -> None:
        """Start a node again with an empty disk."""
        node = Node(number, len(self.nodes), self.prng.below(1 << 30))
        node.view = msgspec.structs.replace(node.view, is_view_lost=True)
        self.nodes[number] = node
        node.begin(None, is_replaced=True)
        self.collect()
