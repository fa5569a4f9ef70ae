"""Groups alone: planes of replicas on one disk each, clients that append, and what must hold."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

import msgspec

from headrace.base.prng import Prng
from headrace.ports.disk import DiskEffect
from headrace.ports.machine import StateMachine
from headrace.ports.network import RequestsArrived, SendFrame, SendReply
from headrace.sim.astray import Astray
from headrace.sim.cluster import Cluster
from headrace.sim.disk import Disk, DiskOptions
from headrace.sim.folder import Folder, FolderOptions
from headrace.sim.groups.checkers import Checkers
from headrace.sim.groups.clients import Client, Joined
from headrace.sim.groups.options import Options
from headrace.sim.groups.product import Product
from headrace.sim.groups.system import Boot, PlaneRunning, System
from headrace.sim.machine import AppendMachine
from headrace.sim.node import Node, Pump
from headrace.sim.product import CLUSTER
from headrace.sim.software import Carriers, Part, Refused, Wiped
from headrace.sim.violation import SimViolationError
from headrace.sim.watched import WatchedMachine
from headrace.sim.world import World
from headrace.wire.replica.prepares import PrepareHeader

Host = Node[PlaneRunning]
HostPump = Pump[PlaneRunning]


class Groups:
    """The workload; `world.Workload` explains each method."""

    liveness_requests = 2

    def __init__(
        self,
        options: Options,
        system: System,
        machine: Callable[[], StateMachine] = AppendMachine,
    ) -> None:
        self.options = options
        self.checkers = Checkers()
        self.clients: list[Client] = []
        self._system = system
        self._machine = machine
        self._machines: dict[int, dict[int, StateMachine]] = {}  # by node and group
        self._is_canary = options.canary
        self._clients_by_id: dict[int, Client] = {}
        self.carriers: Carriers[PlaneRunning] = {
            SendFrame: self._on_frame,
            SendReply: self._on_reply,
            **dict.fromkeys(get_args(DiskEffect), _on_disk),
        }

    def join(self, cluster: Cluster[PlaneRunning]) -> None:
        """Begin in a cluster that has no nodes yet."""
        self._cluster = cluster

    def make_clients(self, prng: Prng) -> None:
        """Make the clients, once there are nodes."""
        options = self.options.workload
        draws = prng.fork("workload")
        joined = Joined(
            cluster=CLUSTER,
            targets=tuple(range(self.options.replica_count)),
            agenda=self._cluster.agenda,
            network=self._cluster.network,
            checkers=self.checkers,
            reuses=Prng(self.options.seed).fork("reuse"),
            registered=self._clients_by_id.__setitem__,
        )
        self.clients += [
            Client(index, options, draws.fork("client"), self.options.groups, joined)
            for index in range(options.client_count)
        ]

    @property
    def applied_count(self) -> int:
        """How many ops were committed, as far as any node has applied them."""
        return self.checkers.applied_count

    @property
    def events(self) -> dict[str, int]:
        """What its clients counted."""
        events: Counter[str] = Counter()
        for client in self.clients:
            events.update(client.events)
        return events

    def part_count(self, node: Host) -> int:
        """Return 1: a plane is one part."""
        return 1

    def parts(self, running: PlaneRunning) -> Sequence[Part]:
        """Return the plane."""
        return (running,)

    # A node's life

    def equip(self, index: int, prng: Prng) -> tuple[tuple[Disk, ...], Folder]:
        """Return the one disk of a node, and a folder that nothing is put into."""
        cluster = self._cluster
        options = self.options.disk
        if index not in cluster.atlas:
            options = _without_damage(options)
        if not (cluster.is_power_for_all or index in cluster.atlas):
            options = msgspec.structs.replace(options, write_error=0)
        disk = Disk(
            options,
            prng,
            cluster.agenda,
            lambda event: cluster.completed(index, event),
            lambda: cluster.crash(index, is_power=True),
        )
        disk.journal_name = self._system.journal_name
        unused = Prng(0)
        folder = Folder(
            FolderOptions(),
            unused,
            cluster.agenda,
            (lambda event: cluster.completed(index, event),),
            Astray(unused),
        )
        return (disk,), folder

    def format(self, node: Host) -> None:
        """Put the files of a new node on its disk."""
        node.disks[0].format(self._system.format(node.index, node.incarnation))

    def open(self, node: Host) -> PlaneRunning | Wiped | Refused:
        """Start a plane from its disk."""
        self._machines[node.index] = {}
        return self._system.open(
            Boot(
                node=node.index,
                files=node.disks[0].open(),
                boot_identity=node.boot_identity,
                seed=self._cluster.seeds.u64(),
                machines=lambda group: self._watch(node, group),
            )
        )

    def _watch(self, node: Host, group: int) -> StateMachine:
        self.checkers.made(node.index, group)
        machine = self._machine()
        watched = WatchedMachine(machine, _Watcher(self, node, group, machine))
        self._machines[node.index][group] = watched
        return watched

    def spoil(self, reply: bytes) -> bytes:
        """Return a reply as checkers are told it: once changed, if they are to be proven."""
        if not (self._is_canary and self.checkers.applied_count > 20):
            return reply
        self._is_canary = False
        return bytes(len(reply))

    def booted(self, node: Host) -> None:
        """Check what a node knows at the start of a life."""
        assert node.running is not None
        if node.disks[0].is_damaged:
            self.checkers.promises.damaged(node.index)  # A disk rots while its node is down, too.
        self.checkers.booted(node.index, node.running.faces().items())

    def replaced(self, node: Host) -> None:
        """Take note that a node has a new disk."""
        self.checkers.promises.wiped(node.index)

    def down(self, node: Host, *, is_power: bool, is_clean: bool) -> None:
        """Take note that a power cut may have taken the end of logs that wait for no sync."""
        assert not is_clean, "planes do not stop cleanly"
        for group in self.options.replicated_groups if is_power else ():
            self.checkers.promises.lost_tail(node.index, group)

    def part_down(self, pump: HostPump) -> None:
        """Do nothing: what has one part ends as a whole."""

    def disturb_lane(self, node: Host, pair: tuple[int, int], until: int, *, is_full: bool) -> None:
        """Do nothing: what has one part has no lanes."""

    def rot(self, node: Host) -> bool:
        """Damage what the disk has long held."""
        return node.disks[0].rot()

    def heal(self, node: Host, *, is_core: bool) -> None:
        """Let nothing go wrong on a disk any more."""
        disk = node.disks[0]
        disk.options = msgspec.structs.replace(_without_damage(disk.options), write_error=0)

    # A node's turns

    def observe(self, pump: HostPump) -> None:
        """Look at a running node, after each of its ticks."""
        node = pump.node
        assert node.running is not None
        machines = self._machines[node.index]
        self.checkers.observe(node.index, node.running.faces().items(), machines)

    def stepped(self, pump: HostPump, event: object, effects: Sequence[object]) -> None:
        """Check what a node answers at once."""
        if type(event) is RequestsArrived:
            replies = [(each.client, each.frame) for each in effects if type(each) is SendReply]
            self.checkers.took([bytes(frame) for _, frame in event.frames], replies)

    def _on_frame(self, pump: HostPump, effect: SendFrame) -> None:
        node = pump.node
        assert node.running is not None
        self.checkers.promises.sent(node.index, effect.frame, node.running.faces())
        self._cluster.network.send(node.index, effect.replica, effect.frame)

    def _on_reply(self, pump: HostPump, effect: SendReply) -> None:
        client = self._clients_by_id.get(effect.client)
        if client is None:
            raise SimViolationError("R6", why="reply to nobody", client=effect.client)
        self._cluster.network.send(pump.node.index, client.endpoint, effect.frame)

    # The phases of a run

    def look(self) -> None:
        """Do nothing."""

    def why_not_settled(self, core: Sequence[Host]) -> str:
        """Return nothing: a level core lacks nothing else."""
        return ""

    def may_halt(self, core: Sequence[Host]) -> str:
        """Return the mark of a broken atlas: the same op may be damaged everywhere."""
        return "world.halted_safely" if self.options.is_atlas_broken else ""

    def finish(self, world: World[PlaneRunning], core: Sequence[Host]) -> str:
        """Check that all replicas of the core are equal, and that nothing was lost."""
        for group in self.options.groups:
            known = self.checkers.applied_up_to(group)
            self._compare(group, core)
            assert core[0].running is not None
            commit = core[0].running.faces()[group].commit_min
            if commit < known and not self.options.is_atlas_broken:
                raise SimViolationError("H1", group=group, commit=commit, applied=known)
        return ""

    def _compare(self, group: int, core: Sequence[Host]) -> None:
        first = core[0]
        for other in core[1:]:
            assert first.running is not None
            assert other.running is not None
            facts = {"group": group, "nodes": (first.index, other.index)}
            machines = [self._machines[node.index][group] for node in (first, other)]
            if machines[0].export() != machines[1].export():
                raise SimViolationError("R2", why="export", **facts)
            tables = [node.running.faces()[group].table() for node in (first, other)]  # type: ignore[union-attr]
            if tables[0] != tables[1]:
                raise SimViolationError("R2", why="client table", **facts)

    def judge(self) -> None:
        """Do nothing: answers are checked as they come."""


class _Watcher:
    """Tells the checkers what one machine does."""

    def __init__(self, groups: Groups, node: Host, group: int, machine: StateMachine) -> None:
        self._groups = groups
        self._node = node
        self._life = node.life
        self._group = group
        self._machine = machine

    def stamped(self, timestamp: int) -> None:
        """Need not know: stamps are checked as they are applied."""

    def before(self) -> None:
        """Need not know: a state that was installed is checked by itself."""

    def applied(self, header: PrepareHeader, body: bytes, reply: bytes, before: None) -> None:
        """Check one application."""
        assert self._node.life == self._life, "a machine of an earlier life was used"
        groups = self._groups
        state_hash = self._machine.state_hash()
        groups.checkers.applied(self._node.index, header, body, groups.spoil(reply), state_hash)

    def installed(self) -> None:
        """Have the state compared at the next look."""
        self._groups.checkers.installed(self._node.index, self._group)


def _on_disk(pump: HostPump, effect: DiskEffect) -> None:
    pump.node.disks[0].submit(effect)


def _without_damage(options: DiskOptions) -> DiskOptions:
    return msgspec.structs.replace(options, lost=0, misdirected=0, read_error=0)


def make_world(options: Options, tell: Callable[[str], None] | None = None) -> World[PlaneRunning]:
    """Return a world of planes of the code that ships."""
    return World(options, Groups(options, Product(options)), tell)
