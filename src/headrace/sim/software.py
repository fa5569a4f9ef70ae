"""What a simulated node runs, and how a workload makes and watches it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from headrace.base.prng import Prng
from headrace.sim.disk import Disk
from headrace.sim.folder import Folder
from headrace.sim.node import Node, Pump


class GroupFace(Protocol):
    """What is asked of the replica of a group on a running node."""

    @property
    def view(self) -> int:
        """The view it is in, or moves to."""

    @property
    def log_view(self) -> int:
        """The view that its log is of."""

    @property
    def op(self) -> int:
        """The head of its log."""

    @property
    def whole_op(self) -> int:
        """The last op up to which it has applied every op, or holds its body."""

    @property
    def commit_min(self) -> int:
        """What it has applied."""

    @property
    def commit_max(self) -> int:
        """What it knows to be committed."""

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


class Part(Protocol):
    """What of a node's software runs by itself: one core with one pump."""

    def start(self) -> Sequence[Any]:
        """Return what is to be done first."""

    def step(self, event: Any) -> Sequence[Any]:  # noqa: ANN401  # its own kinds of events
        """Take one event; return what must now happen, in order."""

    def components(self) -> Iterable[object]:
        """Return the parts that may check themselves (see `checks`)."""


class Running(Protocol):
    """A node's software, started."""

    @property
    def probes(self) -> Mapping[str, int]:
        """The marks it has reached."""

    @property
    def may_vote(self) -> bool:
        """Whether it votes in all its groups."""

    def faces(self) -> Mapping[Any, GroupFace]:
        """Return its groups."""


class Wiped(msgspec.Struct, frozen=True):
    """The disk holds nothing of this node."""


class Refused(msgspec.Struct, frozen=True):
    """The disk holds something that must not be used."""

    reason: str


R = TypeVar("R", bound=Running)
Carriers = Mapping[type, Callable[[Pump[R], Any], None]]


class Software(Protocol[R]):
    """The nodes of a workload: how they are made, and what is looked at while they run."""

    @property
    def carriers(self) -> Carriers[R]:
        """What carries out each kind of effect."""

    def part_count(self, node: Node[R]) -> int:
        """Return how many parts the software of a node has."""

    def parts(self, running: R) -> Sequence[Part]:
        """Return them, each for the pump with its number."""

    # A node's life

    def equip(self, index: int, prng: Prng) -> tuple[tuple[Disk, ...], Folder]:
        """Return the disks and the folder of a node."""

    def format(self, node: Node[R]) -> None:
        """Put the files of a new node on its disks."""

    def open(self, node: Node[R]) -> R | Wiped | Refused:
        """Start the software of a node from its disks."""

    def booted(self, node: Node[R]) -> None:
        """Check what a node knows at the start of a life."""

    def replaced(self, node: Node[R]) -> None:
        """Take note that a node has a new disk."""

    def down(self, node: Node[R], *, is_power: bool, is_clean: bool) -> None:
        """Take note that the life of a running node ends now."""

    def part_down(self, pump: Pump[R]) -> None:
        """End what one part of a running node has on its disks and connections."""

    def disturb_lane(
        self, node: Node[R], pair: tuple[int, int], until: int, *, is_full: bool
    ) -> None:
        """Hold a lane between two parts of a node until then, or let it take nothing."""

    def rot(self, node: Node[R]) -> bool:
        """Damage what a disk has long held; return whether there was anything."""

    def heal(self, node: Node[R], *, is_core: bool) -> None:
        """Let nothing go wrong on the disks and connections of a node any more."""

    # A node's turns

    def observe(self, pump: Pump[R]) -> None:
        """Look at a running node, after each tick of one of its pumps."""

    def stepped(self, pump: Pump[R], event: object, effects: Sequence[object]) -> None:
        """Look at one step, before its effects are carried out."""
