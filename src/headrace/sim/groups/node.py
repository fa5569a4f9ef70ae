"""One simulated node: its disk, its software while it runs, and what waits for its next turn."""

from typing import TYPE_CHECKING

from headrace.ports.disk import DiskEvent
from headrace.ports.network import FramesArrived, NetworkEvent, RequestsArrived
from headrace.sim.disk import Disk

if TYPE_CHECKING:
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
        self.wall_skew = 0
        self.is_paused = False
        self.is_refused = False
        self.is_turn_planned = False
        self.effects_left = -1  # effects until the node crashes; below zero: it does not
        self.is_power_next = False
        self._completions: list[DiskEvent] = []
        self._frames: list[tuple[int, bytes]] = []
        self._requests: list[bytes] = []

    def put_completion(self, event: DiskEvent) -> None:
        """Let a disk event wait for the next turn."""
        self._completions.append(event)

    def put_frame(self, source: int, frame: bytes) -> None:
        """Let a peer's frame wait for the next turn."""
        self._frames.append((source, frame))

    def put_request(self, frame: bytes) -> None:
        """Let a client's frame wait for the next turn."""
        self._requests.append(frame)

    def take(self) -> list[DiskEvent | NetworkEvent]:
        """Give all that waits, one event a kind of frame, as one turn of a loop would."""
        events: list[DiskEvent | NetworkEvent] = [*self._completions]
        if self._frames:
            events.append(FramesArrived(tuple(self._frames)))
        if self._requests:
            events.append(RequestsArrived(tuple((0, frame) for frame in self._requests)))
        self.clear()
        return events

    def clear(self) -> None:
        """Forget what waits."""
        self._completions, self._frames, self._requests = [], [], []
