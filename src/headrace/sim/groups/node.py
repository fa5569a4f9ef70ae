"""One simulated node: its disk, and its software while it runs."""

from typing import TYPE_CHECKING

from headrace.sim.disk import Disk
from headrace.sim.inbox import Inbox

if TYPE_CHECKING:
    from headrace.ports.disk import DiskEvent
    from headrace.ports.machine import StateMachine
    from headrace.sim.groups.system import Running


class Node:
    """What the world knows of a node; the world alone changes it."""

    def __init__(self, index: int, disk: Disk, tick_length: int) -> None:
        self.index = index
        self.disk = disk
        self.tick_length = tick_length  # no two clocks run alike
        self.running: Running | None = None
        self.machines: dict[int, StateMachine] = {}
        self.life = 0
        self.incarnation = 0
        self.boot_identity = 1  # another one after every power cut
        self.booted_at = 0
        self.told_ticks = 0  # since then, as its software was told last
        self.wall_skew = 0
        self.is_paused = False
        self.is_refused = False
        self.is_turn_planned = False
        self.effects_left = -1  # effects until the node crashes; below zero: it does not
        self.is_power_next = False
        self.inbox: Inbox[DiskEvent] = Inbox()

    def ticks_at(self, now: int) -> int:
        """Return the ticks of its clock in this life."""
        return (now - self.booted_at) // self.tick_length
