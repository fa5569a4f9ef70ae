"""One simulated node: its disks and its folder, its software while it runs, and its pumps."""

from typing import Any, Generic, TypeVar

from headrace.sim.disk import Disk
from headrace.sim.folder import Folder
from headrace.sim.inbox import Inbox

R = TypeVar("R")  # the software of a node, while it runs

_TURN_MEAN = 40
_SHARD_LABEL = 100  # nodes are fewer, so that one number tells a shard of a node


class Pump(Generic[R]):
    """One process of a node: what waits for it, and when it takes its turns."""

    def __init__(self, node: "Node[R]", index: int) -> None:
        self.node = node
        self.index = index
        self.label = node.index + _SHARD_LABEL * index
        self.inbox: Inbox[Any] = Inbox()
        self.tick_length = 0  # no two clocks run alike
        self.turn_mean = _TURN_MEAN
        self.told_ticks = 0  # since the start, as its software was told last
        self.is_paused = False
        self.is_ended = False  # killed alone, until the whole node is started again
        self.is_reading = True
        self.is_turn_planned = False

    def ticks_at(self, now: int) -> int:
        """Return the ticks of its clock in this life."""
        return (now - self.node.booted_at) // self.tick_length

    def begin(self) -> None:
        """Be as at the start of a life."""
        self.told_ticks = 0
        self.is_paused = self.is_turn_planned = self.is_ended = False
        self.is_reading = True


class Node(Generic[R]):
    """What the cluster knows of a node; the cluster alone changes it."""

    def __init__(self, index: int, disks: tuple[Disk, ...], folder: Folder) -> None:
        self.index = index
        self.disks = disks
        self.folder = folder
        self.running: R | None = None
        self.pumps: tuple[Pump[R], ...] = ()  # one for each part of its software
        self.wall_skew = 0
        self.life = 0
        self.incarnation = 0
        self.boot_identity = 1  # another one after every power cut
        self.booted_at = 0
        self.is_refused = False
        self.effects_left = -1  # effects until the node crashes; below zero: it does not
        self.is_power_next = False
        self.is_one_next = False  # whether only the pump crashes that carries them out

    @property
    def media(self) -> tuple[Disk | Folder, ...]:
        """All that keeps bytes."""
        return (*self.disks, self.folder)

    @property
    def is_running_whole(self) -> bool:
        """Whether it runs, and no part of it was killed alone."""
        return self.running is not None and not any(pump.is_ended for pump in self.pumps)

    @property
    def is_paused(self) -> bool:
        """Whether all its pumps stand still."""
        return all(pump.is_paused for pump in self.pumps)
