"""What a node of groups alone runs: a plane on a disk image, or something that stands in."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headrace.ports.machine import StateMachine
from headrace.sim.software import GroupFace, Part, Refused, Running, Wiped

Machines = Callable[[int], StateMachine]


class TableFace(GroupFace, Protocol):
    """The replica of a group, with its client table."""

    def table(self) -> bytes:
        """Return the client table."""


class PlaneRunning(Running, Part, Protocol):
    """A node's software, started."""

    def faces(self) -> Mapping[int, TableFace]:
        """Return its groups."""


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is started with."""

    node: int
    files: dict[str, bytes]
    boot_identity: int
    seed: int
    machines: Machines


class System(Protocol):
    """How nodes are made."""

    def format(self, node: int, incarnation: int) -> dict[str, bytes]:
        """Return the files of a new node."""

    def open(self, boot: Boot) -> PlaneRunning | Wiped | Refused:
        """Start a node from its disk."""

    def journal_name(self, file: int) -> str:
        """Return the name of a journal file."""
