"""One simulated node: its disks and its folder, its shard while it runs, and what waits for it."""

from headrace.ports.network import (
    ConnectionClosed,
    ConnectionOpened,
    FramesArrived,
    RequestsArrived,
)
from headrace.shard.effects import ShardEvent
from headrace.shard.shard import Shard
from headrace.sim.disk import Disk
from headrace.sim.nodes.checkers import METADATA
from headrace.sim.nodes.folder import Folder
from headrace.sim.nodes.history import Incarnation
from headrace.vsr.replica import Replica
from headrace.vsr.state import Status

_TURN_REQUESTS_MAX = 64


class Host:
    """What the world knows of a node; the world alone changes it."""

    def __init__(self, index: int, disks: tuple[Disk, Disk], folder: Folder) -> None:
        self.index = index
        self.disks = disks
        self.folder = folder
        self.shard: Shard | None = None
        self.tick_length = 0
        self.life = 0
        self.incarnation = 0
        self.boot_identity = 1  # another one after every power cut
        self.booted_at = 0
        self.wall_skew = 0
        self.is_paused = False
        self.is_refused = False
        self.is_reading = True
        self.is_turn_planned = False
        self.effects_left = -1  # effects until the node crashes; below zero: it does not
        self.is_power_next = False
        self._completions: list[ShardEvent] = []
        self._frames: list[tuple[int, bytes]] = []
        self._connected: list[ConnectionOpened | ConnectionClosed | tuple[int, bytes]] = []

    @property
    def is_up(self) -> bool:
        """Whether it runs, paused or not."""
        return self.shard is not None

    def put(self, event: ShardEvent) -> None:
        """Let the answer of a disk, or of the keeper of secrets, wait for the next turn."""
        self._completions.append(event)

    def put_frame(self, source: int, frame: bytes) -> None:
        """Let a peer's frame wait for the next turn."""
        self._frames.append((source, frame))

    def put_connected(self, event: ConnectionOpened | ConnectionClosed | tuple[int, bytes]) -> None:
        """Let what a client did wait for the next turn."""
        self._connected.append(event)

    def take(self) -> list[ShardEvent]:
        """Give all that waits, as one turn of a loop would."""
        events: list[ShardEvent] = [*self._completions]
        if self._frames:
            events.append(FramesArrived(tuple(self._frames)))
        self._completions, self._frames = [], []
        if self.is_reading:
            events += _in_turns(self._connected)
            self._connected = []
        return events

    def clear(self) -> None:
        """Forget what waits."""
        self._completions, self._frames, self._connected = [], [], []

    def replicas(self) -> dict[Incarnation, Replica]:
        """Give the groups of a running node."""
        if self.shard is None:
            return {}
        desk = self.shard.desk
        found = {METADATA: desk.metadata_replica}
        for local in self.shard.keeper.locals.values():
            key = Incarnation(local.target.group, local.target.created_revision)
            found[key] = local.replica
        return found

    def may_vote(self) -> bool:
        """Whether it is up and votes in all its groups."""
        return self.shard is not None and all(map(is_voter, self.replicas().values()))


def _in_turns(
    waiting: list[ConnectionOpened | ConnectionClosed | tuple[int, bytes]],
) -> list[ShardEvent]:
    """Put requests that came together into one event, in their order among the others."""
    events: list[ShardEvent] = []
    frames: list[tuple[int, bytearray]] = []
    for each in (*waiting, None):
        if isinstance(each, tuple) and len(frames) < _TURN_REQUESTS_MAX:
            frames.append((each[0], bytearray(each[1])))
            continue
        if frames:
            events.append(RequestsArrived(tuple(frames)))
            frames = []
        if isinstance(each, tuple):
            frames.append((each[0], bytearray(each[1])))
        elif each is not None:
            events.append(each)
    return events


def is_voter(replica: Replica) -> bool:
    """Whether a replica may take part in an election."""
    state = replica.state
    is_damaged = any(
        entry.body is None and not entry.is_never_held
        for op, entry in state.log.entries.items()
        if op > state.commit_max
    )
    return not (state.is_suspect or state.is_wiped or is_damaged)


def is_settled(replica: Replica) -> bool:
    """Whether a replica is in the normal case and has applied all of its log."""
    return replica.status == Status.NORMAL and replica.commit_min == replica.op
