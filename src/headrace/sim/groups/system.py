"""What a simulated node runs: a shard over a disk image, or something that stands in for one."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headrace.ports.disk import DiskEffect, DiskEvent
from headrace.ports.machine import StateMachine
from headrace.ports.network import NetworkEffect, NetworkEvent
from headrace.ports.probes import Probes
from headrace.sim.groups.checkers import ReplicaFace

Machines = Callable[[int], StateMachine]


class GroupFace(ReplicaFace, Protocol):
    """What the world asks of a group's replica, beyond what the checkers do."""

    @property
    def is_settled(self) -> bool:
        """Whether its status is normal."""

    @property
    def is_serving(self) -> bool:
        """Whether it is a primary that takes requests."""

    @property
    def is_voter(self) -> bool:
        """Whether it is neither suspect nor wiped and not yet recovered."""

    @property
    def is_wiped(self) -> bool:
        """Whether its disk was replaced and it has not recovered yet."""

    def table(self) -> bytes:
        """Give the client table."""


class Running(Protocol):
    """A node's software, started."""

    @property
    def probes(self) -> Probes:
        """The marks it has reached."""

    def start(self) -> list[DiskEffect | NetworkEffect]:
        """Give what is to be done first."""

    def step(self, event: DiskEvent | NetworkEvent) -> list[DiskEffect | NetworkEffect]:
        """Take one event; give what must now happen, in order."""

    def faces(self) -> Mapping[int, GroupFace]:
        """Give its groups."""


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is started with."""

    node: int
    files: dict[str, bytes]
    boot_identity: int
    seed: int
    machines: Machines


class Wiped(msgspec.Struct, frozen=True):
    """The disk holds nothing of this node."""


class Refused(msgspec.Struct, frozen=True):
    """The disk holds something that must not be used."""

    reason: str


class System(Protocol):
    """How nodes are made."""

    def format(self, node: int, incarnation: int) -> dict[str, bytes]:
        """Give the files of a new node."""

    def open(self, boot: Boot) -> Running | Wiped | Refused:
        """Start a node from its disk."""

    def journal_name(self, file: int) -> str:
        """Give the name of a journal file."""
