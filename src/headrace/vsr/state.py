"""What one replica of one group knows; the phases of the protocol share it.

Two commit numbers (VS-3): `commit_max` is known to be committed, `commit_min` is applied here.

Invariants: commit_min <= commit_max, and commit_min <= head; log_view <= view; no message of a view
            leaves before the journal will remember that view (MD-26).
"""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from headrace.base.ids import View
from headrace.base.prng import Prng
from headrace.ports.machine import RequestTable, StateMachine
from headrace.ports.network import Buffer, SendFrame
from headrace.ports.probes import Probes
from headrace.ports.recovered import ViewState
from headrace.vsr.events import GroupEffect, PersistView, SetTimer, StopTimer
from headrace.vsr.fetched import Fetched, Held
from headrace.vsr.log import Log
from headrace.vsr.quorum import Quorums
from headrace.vsr.timeouts import BACKOFF_SHIFT_MAX, Timeouts, Timer, backed_off
from headrace.wire.errors import Code
from headrace.wire.layout import LIFE, ORIGIN, H, Layout
from headrace.wire.replica.seals import seal

if TYPE_CHECKING:
    from headrace.vsr.merge import Vote
    from headrace.vsr.transfer_session import Offer, Pull
    from headrace.wire.replica.transfers import RequestStateChunkHeader
    from headrace.wire.requests import RequestHeader


_STAMP = struct.Struct("<QQ")  # life and origin, which lie side by side
_STAMP_START = LIFE.start
_STAMP_END = ORIGIN.stop

assert LIFE.stop == ORIGIN.start
assert _STAMP_START + _STAMP.size == _STAMP_END


class Status(IntEnum):
    """What a replica is doing."""

    NORMAL = 0
    VIEW_CHANGE = 1
    RECOVERING = 2


# A replica is normal again only in a view that was decided, and it recovers only when it starts.
STATUS_CHANGES = {
    Status.NORMAL: (Status.NORMAL, Status.VIEW_CHANGE),
    Status.VIEW_CHANGE: (Status.NORMAL, Status.VIEW_CHANGE),
    Status.RECOVERING: (Status.NORMAL, Status.VIEW_CHANGE),
}


class Transfer(IntEnum):
    """How far a replica is with the state of its primary."""

    NONE = 0
    WANTED = 1  # repair alone is not enough; decided when the step ends
    PULLING = 2  # the manifest or a chunk was requested
    INSTALLING = 3  # installed, and the checkpoint that holds it is not durable yet


# The next transfer starts after the checkpoint of the last one: its end is told without a name.
TRANSFER_CHANGES = {
    Transfer.NONE: (Transfer.WANTED, Transfer.PULLING),
    Transfer.WANTED: (Transfer.NONE, Transfer.PULLING),
    Transfer.PULLING: (Transfer.NONE, Transfer.INSTALLING),
    Transfer.INSTALLING: (Transfer.NONE,),
}


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while a replica lives."""

    cluster: int
    group: int
    replica: int
    quorums: Quorums
    timeouts: Timeouts
    incarnation: int  # of this start of the node: tells answers to it from older ones
    origin: int = 0  # the created_revision of the partition: a namesake is another group
    pipeline_max: int = 32
    queue_max: int = 64
    repair_ops_max: int = 128
    chunk_bytes: int = 256 << 10


# How many parts of the journal's reserve an op with such a body may use.
ReserveParts: TypeAlias = Callable[[int, Buffer], int]


class HasRoom(Protocol):
    """Whether the journal takes a body of that size, after so many others of a size together."""

    def __call__(
        self,
        body_bytes: int,
        *,
        held_count: int = 0,
        held_bytes: int = 0,
        reserve_parts: int = 0,
    ) -> bool:
        """Answer that, for an op that may use so many parts of the journal's reserve (O2.10)."""


class Shared:
    """What all groups of a shard have in common."""

    __slots__ = (
        "_has_room",
        "_reserve_parts",
        "held",
        "life",
        "now",
        "probes",
        "queued",
        "room_code",
        "wall",
    )

    def __init__(
        self,
        probes: Probes,
        has_room: HasRoom,
        life: int,
        room_code: Callable[[int], Code | None] = lambda _: Code.CANNOT_APPEND_MESSAGE,
        reserve_parts: ReserveParts = lambda *_: 0,
    ) -> None:
        self.life = life  # rises with every start of the node
        self.probes = probes
        self.held = Held()  # what will be journaled when gaps are closed
        self._has_room = has_room
        self._reserve_parts = reserve_parts
        self.room_code = room_code  # what to say if not; nothing if a checkpoint will make room
        self.wall = 0  # the wall clock as last told, in microseconds
        self.now = 0  # the ticks as last told
        # The groups in whose queues requests wait, by client and request.
        self.queued: dict[tuple[int, int], int] = {}

    def admits(self, operation: int, body: Buffer) -> bool:
        """Whether the journal takes an op; there is a reserve for those that make room (O2.10)."""
        if self.has_room(len(body)):
            return True
        parts = self._reserve_parts(operation, body)
        return parts > 0 and self._has_room(
            len(body),
            held_count=self.held.count,
            held_bytes=self.held.body_bytes,
            reserve_parts=parts,
        )

    def has_room(self, body_bytes: int, others: Sequence[int] = ()) -> bool:
        """Whether the journal takes such a body, and before it others with these sizes."""
        held = self.held
        assert held.count >= 0, "room is given back as it was taken"
        return self._has_room(
            body_bytes,
            held_count=held.count + len(others),
            held_bytes=held.body_bytes + sum(others),
        )


class Lease:
    """What keeps a view together for a while; see the module of that name."""

    __slots__ = ("bound_until", "promised")

    def __init__(self) -> None:
        self.promised: dict[int, int] = {}  # as primary: who stays, from which tick on
        self.bound_until = 0  # as backup: the tick before which a promise keeps it in its view


class State:
    """One replica of one group."""

    def __init__(
        self,
        options: GroupOptions,
        machine: StateMachine,
        table: RequestTable,
        prng: Prng,
        shared: Shared,
    ) -> None:
        self.options, self.replicas = options, options.quorums.replicas
        self.machine = machine
        self.table = table
        self.prng = prng
        self.shared = shared
        self.probes = shared.probes
        self.log = Log()
        self.status = Status.NORMAL
        self.view = self.log_view = View(0)
        self.commit_min = self.commit_max = 0
        self.durable = 0  # every op up to it is on the disk, and so may be acknowledged
        # Wiped: it has forgotten promises, and must hear of its view from others. A lost tail: ops
        # of a single replica went with the power, and the log does not say so yet.
        # Halted: a committed op contradicts the state here, so nothing is applied or led any more.
        self.is_suspect = self.is_wiped = self.is_tail_lost = self.is_halted = False
        self.timestamp = 0  # the highest stamp of the log
        # The view as the journal will remember it, and what waits for that.
        self.durable_view = (0, 0)
        self.held: list[SendFrame] = []
        # As primary.
        self.acknowledged = [0] * self.replicas
        self.view_head = 0  # serves no request before this op is committed again (FM-15)
        self.queue: deque[tuple[RequestHeader, Buffer]] = deque()
        self.is_short = False  # the first of the queue waits for room in the journal
        self.in_flight: dict[tuple[int, int], RequestHeader] = {}  # by client, maybe by request
        self.lease = Lease()
        # In a view change.
        self.suspicions: dict[int, None] = {}  # who else left the old view
        self.votes: dict[int, Vote] = {}
        self.parked: Log | None = None  # the decided log, while bodies of it are missing
        self.parked_commit = 0
        # In recovery.
        self.newer_view = View(0)  # the highest view that was heard of and not yet entered
        self.probes_sent = 0
        self.reports: dict[int, int] = {}  # replica -> its view, as told to a wiped replica
        # In repair and transfer.
        self.fetched = Fetched(shared.held)
        self.repair_nonce = self.token = 0
        self.repairing: tuple[int, int] | None = None  # the ops that were asked for
        self.wanted_head = 0  # an op above the head that the primary has sent
        self.serving: dict[int, tuple[int, int, int]] = {}  # token -> replica, nonce, op
        self.offers: dict[int, Offer] = {}  # by the nonce of who pulls
        self.sending: dict[int, tuple[int, RequestStateChunkHeader]] = {}  # by token of a read
        self.pull: Pull | None = None
        self.transfer = Transfer.NONE
        self.attempts: dict[Timer, int] = {}
        self.timers: dict[Timer, None] = {}  # those that run
        self.out: list[GroupEffect] = []

    @property
    def primary(self) -> int:
        """Who leads the current view."""
        return self.view % self.replicas

    @property
    def is_primary(self) -> bool:
        """Whether this replica leads the current view; by index is not enough (VS-14a)."""
        return (
            self.primary == self.options.replica
            and self.status == Status.NORMAL
            and self.newer_view <= self.view
            and not self.is_halted
        )

    @property
    def others(self) -> list[int]:
        """Everybody else."""
        return [each for each in range(self.replicas) if each != self.options.replica]

    def become(self, status: Status) -> None:
        """Change the status."""
        assert status in STATUS_CHANGES[self.status], "no replica returns to its recovery"
        self.status = status

    def move_transfer(self, phase: Transfer) -> None:
        """Change the phase of the transfer."""
        assert phase in TRANSFER_CHANGES[self.transfer], "transfers do not overlap"
        self.transfer = phase

    def send(self, replica: int, layout: Layout[H], header: H, body: bytes = b"") -> None:
        """Send a frame, once the journal remembers the view that it speaks for."""
        assert replica != self.options.replica, "a replica sends itself nothing"
        assert self.durable_view <= (self.view, self.log_view), "no later view was promised"
        frame = SendFrame(replica, self._seal(layout, header) + body)
        if self.durable_view == (self.view, self.log_view):
            self.out.append(frame)
        else:
            self.held.append(frame)

    def send_unscoped(self, replica: int, layout: Layout[H], header: H, body: bytes = b"") -> None:
        """Send a frame that promises nothing about the view."""
        assert replica != self.options.replica, "a replica sends itself nothing"
        self.out.append(SendFrame(replica, self._seal(layout, header) + body))

    def _seal(self, layout: Layout[H], header: H) -> bytes:
        """Write a header as of this life: frames of an earlier one count no more (NW8).

        Nor do those of another incarnation of the partition (RC-20).
        """
        data = layout.encode(header)
        stamp = _STAMP.pack(self.shared.life, self.options.origin)
        return seal(data[:_STAMP_START] + stamp + data[_STAMP_END:])

    def send_sealed(self, replica: int, frame: bytes) -> None:
        """Send a frame that was sealed before; it promises nothing about the view."""
        assert replica != self.options.replica, "a replica sends itself nothing"
        self.out.append(SendFrame(replica, frame))

    def persist_view(self) -> None:
        """Have the view remembered; what was held for an older one is never sent."""
        assert self.log_view <= self.view
        self.held.clear()
        assert self.durable_view <= (self.view, self.log_view), "views become durable in order"
        commit = min(self.commit_max, self.log.head)
        assert self.commit_min <= commit, "a view is remembered with all that is applied"
        state = ViewState(
            self.options.group,
            self.view,
            self.log_view,
            commit,
            is_suspect=self.is_suspect,
            is_view_lost=self.is_wiped,
            is_tail_lost=self.is_tail_lost,
        )
        self.out.append(PersistView(state))

    def start_timer(self, timer: Timer, base: int) -> None:
        """Start a timer anew, from its first wait."""
        self.attempts[timer] = 0
        self.timers[timer] = None
        self.out.append(SetTimer(timer, backed_off(base, 0, self.prng)))

    def restart_timer(
        self, timer: Timer, base: int, *, doublings_max: int = BACKOFF_SHIFT_MAX
    ) -> None:
        """Start a timer again after it fired in vain: it waits longer each time, up to a bound."""
        attempts = self.attempts.get(timer, -1) + 1
        self.attempts[timer] = attempts
        self.timers[timer] = None
        self.out.append(SetTimer(timer, backed_off(base, min(attempts, doublings_max), self.prng)))

    def stop_timer(self, timer: Timer) -> None:
        """Forget a timer."""
        self.timers.pop(timer, None)
        self.out.append(StopTimer(timer))

    def next_token(self) -> int:
        """Give a number for something that will be answered later."""
        self.token += 1
        return self.token
