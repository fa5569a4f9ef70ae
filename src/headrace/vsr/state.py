"""The state of one replica of one group, shared by the phases of the protocol.

Two commit points (VS-3): `commit_max` is known to be committed, `commit_min` is applied here.

Invariants: commit_min <= commit_max, and commit_min <= head; log_view <= view; no message of a view
            is sent before that view is durable in the journal (MD-26).
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


_STAMP = struct.Struct("<QQ")  # life and origin, which are adjacent
_STAMP_START = LIFE.start
_STAMP_END = ORIGIN.stop

assert LIFE.stop == ORIGIN.start
assert _STAMP_START + _STAMP.size == _STAMP_END


class Status(IntEnum):
    """What a replica is doing."""

    NORMAL = 0
    VIEW_CHANGE = 1
    RECOVERING = 2


NORMAL = Status.NORMAL

# A replica becomes normal in a decided view only, and recovers only when it starts.
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


INSTALLING = Transfer.INSTALLING

# A transfer starts after the checkpoint of the last one: `CheckpointDone` names no transfer.
TRANSFER_CHANGES = {
    Transfer.NONE: (Transfer.WANTED, Transfer.PULLING),
    Transfer.WANTED: (Transfer.NONE, Transfer.PULLING),
    Transfer.PULLING: (Transfer.NONE, Transfer.INSTALLING),
    Transfer.INSTALLING: (Transfer.NONE,),
}


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a replica that do not change while it runs."""

    cluster: int
    group: int
    replica: int
    quorums: Quorums
    timeouts: Timeouts
    incarnation: int  # of this start of the node: tells its answers from older ones
    origin: int = 0  # the created_revision of the partition, so that a namesake is another group
    pipeline_max: int = 32
    queue_max: int = 64
    repair_ops_max: int = 128
    chunk_bytes: int = 256 << 10


# How many parts of the journal's reserve an op with such a body may use.
ReserveParts: TypeAlias = Callable[[int, Buffer], int]


class HasRoom(Protocol):
    """Returns whether the journal has room for a body, after held ones of a total size."""

    def __call__(
        self,
        body_bytes: int,
        *,
        held_count: int = 0,
        held_bytes: int = 0,
        reserve_parts: int = 0,
    ) -> bool:
        """Return that, for an op that may use these parts of the journal's reserve (O2.10)."""


class Shared:
    """The state that all groups of a shard share."""

    __slots__ = (
        "_has_room",
        "_reserve_parts",
        "fits",
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
        fits: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.life = life  # rises with every start of the node
        self.probes = probes
        self.held = Held()  # ops that are journaled when gaps are closed
        self._has_room = has_room
        self.fits = fits  # whether a body certainly has room, if nothing is held back
        self._reserve_parts = reserve_parts
        self.room_code = room_code  # the refusal if not; None if a checkpoint will make room
        self.wall = 0  # the wall clock of the last tick, in microseconds
        self.now = 0  # the last tick
        # The groups in whose queues requests wait, by client and request.
        self.queued: dict[tuple[int, int], int] = {}

    def admits(self, operation: int, body: Buffer) -> bool:
        """Return whether the journal has room; ops that make room may use a reserve (O2.10)."""
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
        """Return whether the journal has room for a body, and for others before it."""
        held = self.held
        assert held.count >= 0, "room is given back as it was taken"
        return self._has_room(
            body_bytes,
            held_count=held.count + len(others),
            held_bytes=held.body_bytes + sum(others),
        )


class Lease:
    """The promises of a view; see module `lease`."""

    __slots__ = ("bound_until", "promised")

    def __init__(self) -> None:
        self.promised: dict[
            int, int
        ] = {}  # as primary: the tick of the heartbeat that a backup has answered
        self.bound_until = 0  # as backup: until this tick a promise keeps it in its view


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
        self.durable = 0  # every op up to it is on the disk, and may be acknowledged
        # Suspect: the log may have lost ops. Wiped: it has forgotten promises, and must learn its
        # view from others. Tail lost: a single replica lost ops in a power failure, and the log
        # does not show that yet. Halted: a committed op contradicts the state, so this replica
        # applies nothing more and does not lead.
        self.is_suspect = self.is_wiped = self.is_tail_lost = self.is_halted = False
        self.timestamp = 0  # the highest stamp of the log
        # The view that is durable in the journal, and the frames that wait for the current one.
        self.durable_view = (0, 0)
        self.held: list[SendFrame] = []
        # As primary.
        self.acknowledged = [0] * self.replicas
        self.view_head = 0  # it serves no request before this op is applied (FM-15)
        self.queue: deque[tuple[RequestHeader, Buffer]] = deque()
        self.is_short = False  # the first request of the queue waits for room in the journal
        self.in_flight: dict[
            tuple[int, int], RequestHeader
        ] = {}  # by client, or by client and request
        self.lease = Lease()
        # In a view change.
        self.suspicions: dict[int, None] = {}  # the others that have left the old view
        self.votes: dict[int, Vote] = {}
        self.parked: Log | None = None  # the decided log, while some of its bodies are missing
        self.parked_commit = 0
        # In recovery.
        self.newer_view = View(0)  # the highest view that is known and not entered yet
        self.probes_sent = 0
        self.reports: dict[int, int] = {}  # the views that others reported to this wiped replica
        # In repair and transfer.
        self.fetched = Fetched(shared.held)
        self.repair_nonce = self.token = 0
        self.repairing: tuple[int, int] | None = None  # the first and the last requested op
        self.wanted_head = 0  # an op above the head that the primary has sent
        self.serving: dict[int, tuple[int, int, int]] = {}  # token -> replica, nonce, op
        self.offers: dict[int, Offer] = {}  # by the nonce of the pull
        self.sending: dict[int, tuple[int, RequestStateChunkHeader]] = {}  # by token of a read
        self.pull: Pull | None = None
        self.transfer = Transfer.NONE
        self.attempts: dict[Timer, int] = {}
        self.timers: dict[Timer, None] = {}  # those that run
        self.out: list[GroupEffect] = []

    @property
    def primary(self) -> int:
        """The primary of the current view."""
        return self.view % self.replicas

    @property
    def is_primary(self) -> bool:
        """Whether this replica leads the current view; its index is not enough (VS-14a)."""
        return (
            self.view % self.replicas == self.options.replica
            and self.status is NORMAL
            and self.newer_view <= self.view
            and not self.is_halted
        )

    @property
    def others(self) -> list[int]:
        """All other replicas."""
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
        """Send a frame, as soon as its view is durable in the journal."""
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
        """Encode a header with the life of this node and the origin of the partition.

        Frames of an earlier life (NW8) and of another incarnation (RC-20) are dropped.
        """
        data = layout.encode(header)
        stamp = _STAMP.pack(self.shared.life, self.options.origin)
        return seal(data[:_STAMP_START] + stamp + data[_STAMP_END:])

    def send_sealed(self, replica: int, frame: bytes) -> None:
        """Send a frame that was sealed before; it promises nothing about the view."""
        assert replica != self.options.replica, "a replica sends itself nothing"
        self.out.append(SendFrame(replica, frame))

    def persist_view(self) -> None:
        """Make the view durable; frames held for an older one are never sent."""
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
        """Start a timer with its first wait."""
        self.attempts[timer] = 0
        self.timers[timer] = None
        self.out.append(SetTimer(timer, backed_off(base, 0, self.prng)))

    def restart_timer(
        self, timer: Timer, base: int, *, doublings_max: int = BACKOFF_SHIFT_MAX
    ) -> None:
        """Start a timer again after it fired: it waits longer each time, up to a bound."""
        attempts = self.attempts.get(timer, -1) + 1
        self.attempts[timer] = attempts
        self.timers[timer] = None
        self.out.append(SetTimer(timer, backed_off(base, min(attempts, doublings_max), self.prng)))

    def stop_timer(self, timer: Timer) -> None:
        """Stop a timer."""
        self.timers.pop(timer, None)
        self.out.append(StopTimer(timer))

    def next_token(self) -> int:
        """Return a number for a read that is answered later."""
        self.token += 1
        return self.token
