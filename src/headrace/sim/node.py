"""One simulated node: its disks and its folder, its software while it runs, what waits for it."""

from typing import Any, Generic, TypeVar

from headrace.sim.disk import Disk
from headrace.sim.folder import Folder
from headrace.sim.inbox import Inbox

R = TypeVar("R")  # the software of a node, while it runs


class Node(Generic[R]):
    """What the cluster knows of a node; the cluster alone changes it."""

    def __init__(self, index: int, disks: tuple[Disk, ...], folder: Folder) -> None:
        self.index = index
        self.disks = disks
        self.folder = folder
        self.running: R | None = None
        self.inbox: Inbox[Any] = Inbox()
        self.tick_length = 0  # no two clocks run alike
        self.wall_skew = 0
        self.life = 0
        self.incarnation = 0
        self.boot_identity = 1  # another one after every power cut
        self.booted_at = 0
        self.told_ticks = 0  # since then, as its software was told last
        self.is_paused = False
        self.is_refused = False
        self.is_reading = True
        self.is_turn_planned = False
        self.effects_left = -1  # effects until the node crashes; below zero: it does not
        self.is_power_next = False

    @property
    def media(self) -> tuple[Disk | Folder, ...]:
        """All that keeps bytes."""
        return (*self.disks, self.folder)

    def ticks_at(self, now: int) -> int:
        """Return the ticks of its clock in this life."""
        return (now - self.booted_at) // self.tick_length
