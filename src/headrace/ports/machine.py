"""The contract between consensus and a state machine (O1.3).

`apply`, `state_hash`, `export`, `install` and `checkpoint` were fixed with the first machine. What
the primary must do before it seals an op (O3.1) came with the partitions: `prepare`, which makes
the final body, and `foresee`, which tells a new primary's machine of the ops that it adopted.
`admits` came with the links between nodes: an op from a peer is checked before it is journaled.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Protocol, TypeAlias

import msgspec

from headrace.ports.network import Buffer
from headrace.ports.segments import SegmentFile
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader


class Artifact(msgspec.Struct, frozen=True):
    """A piece of a machine's state, named by its kind and by where it begins.

    A machine cuts its state so that what did not change since stays the same piece: a receiver
    that holds a piece of the same kind, frontier, length and checksum does not fetch it again.
    """

    kind: int
    frontier: int
    data: bytes


class StoredPiece(msgspec.Struct, frozen=True):
    """An artifact that lies in a segment file: sent from there, and never whole in memory."""

    kind: int
    frontier: int
    length: int
    checksum: int  # as `wire.replica.artifacts.artifact_checksum` computes it of the bytes
    file: SegmentFile
    position: int


Piece: TypeAlias = Artifact | StoredPiece


class StateMachine(Protocol):
    """A deterministic machine: equal ops in equal order give equal replies and equal state."""

    def prepare(self, header: RequestHeader, body: Buffer, timestamp: int) -> Buffer:
        """Return the body that is sealed into the log, on the primary, in the order of ops.

        It may depend on ops that are prepared and not applied yet, never on time or chance.

        Raises:
            RefusedError: The request is malformed; nothing has changed.
        """

    def foresee(self, ops: Iterable[tuple[PrepareHeader, Buffer]]) -> None:
        """Forget what was prepared; these ops, in order, are prepared and not applied yet."""

    def admits(self, header: PrepareHeader, body: Buffer) -> bool:
        """Return whether an op from a peer is one of this machine's, with a body of its operation.

        The body is the one that the header names. Nothing of the state is asked.
        """

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Apply one committed op; return the body of its reply, result section included.

        Whatever a reply depends on is changed here and nowhere else. A request that cannot be
        granted is a reply that says so.

        Raises:
            CorruptError: The op contradicts the state, so some primary has ordered what it must
                not; nothing has changed.
        """

    def state_hash(self) -> int:
        """Return a hash of all that replicas must agree on."""

    def export(self) -> tuple[Piece, ...]:
        """Return the whole state for another replica."""

    def install(self, artifacts: Sequence[Piece]) -> None:
        """Replace the whole state by one that was exported, or by a checkpoint of our own.

        Raises:
            CorruptError: The state is not one that was exported; nothing has changed.
        """

    def checkpoint(self) -> tuple[Artifact, ...]:
        """Return what the checkpoint must hold so that `install` restores this state."""


class Verdict(IntEnum):
    """What is to be done with a request."""

    NEW = 0
    REPLAY = 1  # answered before: the same answer again
    ALREADY_APPLIED = 2  # answered before, but the answer is gone
    NO_SESSION = 3
    FENCED = 4  # a later login of the same client id holds the session
    UNMINTED = 5  # a session number that no login was ever given
    REUSED = 6  # a number that stood for another request
    ANEW = 7  # a new request, though its number stands for an applied one


class RequestTable(Protocol):
    """Which requests a group has applied, and what it answered: each is applied at most once.

    Changed by applying committed ops only; part of the checkpoint and of every transfer.
    """

    is_lockstep: bool  # whether a client has one request in flight at most

    def judge(self, header: RequestHeader, body: Buffer) -> tuple[Verdict, bytes]:
        """Return the verdict on a request; for a replay, with the whole reply frame."""

    def record(self, header: PrepareHeader, body: Buffer, reply: bytes) -> None:
        """Keep the reply frame of an applied request."""

    def is_applied(self, header: RequestHeader | PrepareHeader) -> bool:
        """Whether the number of a request, or of an op, was applied before.

        Not that of one which is new though its number is used.
        """

    def check(self, commit: int) -> None:
        """Assert what holds when all ops up to this one are applied; for tests and simulator."""

    def encode(self) -> bytes:
        """Write the table; equal tables give equal bytes."""

    def install(self, data: bytes, commit: int) -> None:
        """Replace the table by one that was written when all ops up to `commit` were applied.

        Raises:
            CorruptError: The bytes are damaged, or contradict each other; nothing has changed.
        """
