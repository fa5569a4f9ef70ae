"""The contract between consensus and a state machine (O1.3).

It is fixed here with the first machine and stays the same for all that come.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from headrace.wire.replica_headers import PrepareHeader


class Artifact(msgspec.Struct, frozen=True):
    """A piece of a machine's state, named by its kind and by where it begins.

    A machine cuts its state so that what did not change since stays the same piece: a receiver
    that holds a piece of the same kind, frontier, length and checksum does not fetch it again.
    """

    kind: int
    frontier: int
    data: bytes


class StateMachine(Protocol):
    """A deterministic machine: equal ops in equal order give equal replies and equal state."""

    def apply(self, header: PrepareHeader, body: bytes) -> bytes:
        """Apply one committed op; give the body of its reply, result section included.

        Whatever a reply depends on is changed here and nowhere else. Bytes that no client could
        have sent are our own bug; a request that cannot be granted is a reply that says so.
        """

    def state_hash(self) -> int:
        """Give a hash of all that replicas must agree on."""

    def export(self) -> tuple[Artifact, ...]:
        """Give the whole state for another replica."""

    def install(self, artifacts: Sequence[Artifact]) -> None:
        """Replace the whole state by one that was exported, or by a checkpoint of our own."""

    def checkpoint(self) -> tuple[Artifact, ...]:
        """Give what the checkpoint must hold so that `install` brings this state back."""
