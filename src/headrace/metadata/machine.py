"""The state machine of the metadata group.

A request that cannot be granted is a committed op without effect whose reply says so, and a retry
gets the same reply (MD-8). Whether the user may is asked here, of the state at this op (MD-9).

Flow:       apply.
Invariants: equal ops in equal order give equal replies, equal snapshots and an equal hash.
"""

import struct
from collections.abc import Iterable, Sequence

from headrace.base.checksum import xxh3_64
from headrace.metadata.access import check_session
from headrace.metadata.applied import NOTED, Applied
from headrace.metadata.group_changes import leave_all
from headrace.metadata.invariants import check_state
from headrace.metadata.operations import CHANGES
from headrace.metadata.snapshot import Progress, read_snapshot, write_snapshot
from headrace.metadata.state import State
from headrace.metadata.target import (
    Target,
    TargetView,
)
from headrace.ports.machine import Artifact, Piece
from headrace.ports.network import Buffer
from headrace.wire.errors import Code, CorruptError, RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.replica.artifacts import ArtifactKind
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_rejection
from headrace.wire.requests import RequestHeader

# Hash so far, op, stamp, operation, user, then the client in two halves, then the body's hash.
_LINK = struct.Struct("<QQQBIQQQ")
_HALF = (1 << 64) - 1

# What the client table makes of an op; of the metadata, memberships at most change.
_OF_SESSIONS = (Operation.REGISTER, Operation.LOGOUT, Operation.DISCONNECT)


class MetadataMachine:
    """The metadata of a cluster; `state` is read-only, and `install` replaces the object."""

    def __init__(self) -> None:
        self.state = State()
        self._progress = Progress(op=0, chain=0)
        self._view = TargetView(self.state)
        self._applied: list[Applied] = []

    @property
    def revision(self) -> int:
        """Rises with every change of what the partitions must be (MD-3)."""
        return self.state.revision

    @property
    def op(self) -> int:
        """The last op that was applied."""
        return self._progress.op

    @property
    def timestamp(self) -> int:
        """The highest stamp of an applied op: committed time."""
        return self.state.timestamp

    def prepare(self, header: RequestHeader, body: Buffer, timestamp: int) -> Buffer:
        """Return the body unchanged: nothing of it depends on its place in the log.

        Raises:
            RefusedError: The session is of a user who is gone, and whose number is another's now.
        """
        if header.client != 0 and header.operation in CHANGES:
            check_session(self.state, header.user_id, began=header.session)
        return body

    def foresee(self, ops: Iterable[tuple[PrepareHeader, Buffer]]) -> None:
        """Do nothing, for nothing depends on ops that are not applied."""

    def admits(self, header: PrepareHeader, body: Buffer) -> bool:
        """Return whether an op is one of this group's, with a body of its operation."""
        if header.operation in _OF_SESSIONS:
            return True
        change = CHANGES.get(header.operation)
        return change is not None and change.reads(body)

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Apply one committed op; return the body of its reply.

        Raises:
            CorruptError: The body is none of its operation, or the state has a later op already;
                nothing has changed.
        """
        if header.op <= self._progress.op:
            raise CorruptError(f"op {header.op} for a state of op {self._progress.op}")
        reply = self._reply_to(header, body)
        self.state.timestamp = max(self.state.timestamp, header.timestamp)
        link = _LINK.pack(
            self._progress.chain,
            header.op,
            header.timestamp,
            header.operation,
            header.user_id,
            header.client & _HALF,
            header.client >> 64,
            xxh3_64(body),
        )
        self._progress = Progress(op=header.op, chain=xxh3_64(link + reply))
        return reply

    def take_applied(self) -> list[Applied]:
        """Return the ops about users and removals that were applied since the last call."""
        applied, self._applied = self._applied, []
        return applied

    def state_hash(self) -> int:
        """Return the hash of all ops and their replies; a snapshot includes it."""
        return self._progress.chain

    def export(self) -> tuple[Piece, ...]:
        """Return the snapshot, one piece."""
        return self.checkpoint()

    def checkpoint(self) -> tuple[Artifact, ...]:
        """Return the snapshot, one piece."""
        data = write_snapshot(self.state, self._progress)
        return (Artifact(ArtifactKind.METADATA_SNAPSHOT, self._progress.op, data),)

    def install(self, artifacts: Sequence[Piece]) -> None:
        """Replace the state by a snapshot.

        Raises:
            CorruptError: It is damaged, or not one snapshot; nothing has changed.
        """
        if len(artifacts) != 1 or artifacts[0].kind != ArtifactKind.METADATA_SNAPSHOT:
            raise CorruptError(f"{len(artifacts)} pieces, one metadata snapshot wanted")
        piece = artifacts[0]
        if not isinstance(piece, Artifact):
            raise CorruptError("a metadata snapshot does not lie in a segment")
        state, progress = read_snapshot(piece.data)
        if piece.frontier != progress.op:
            raise CorruptError(f"metadata snapshot of op {progress.op} named {piece.frontier}")
        self.state = state
        self._progress = progress
        self._view = TargetView(state)

    def target(self) -> Target:
        """Return what the partitions must be, and at which revision."""
        return self._view.target()

    def check(self) -> None:
        """Assert the relations of the state; too expensive for every op of a server."""
        check_state(self.state, self._progress.op)
        self._view.check()
        for applied in self._applied:
            assert applied.header.op <= self._progress.op, "only applied ops are noted"

    def _reply_to(self, header: PrepareHeader, body: Buffer) -> bytes:
        if header.operation in (Operation.DISCONNECT, Operation.LOGOUT):
            leave_all(self.state, header.client)
            return b""
        change = CHANGES.get(header.operation)
        if change is None:
            raise CorruptError(f"operation {header.operation} is not the metadata group's")
        refusal: Code | None = None
        try:
            reply = RESULT_OK + change.apply(self.state, header, body)
        except RefusedError as error:
            refusal = error.code
            reply = encode_rejection(refusal)
        if header.operation in NOTED:
            self._applied.append(Applied(header, bytes(body), refusal))
        return reply
