"""Whole nodes: shards with their journals, segments and clients, and what must hold of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import get_args

import msgspec

from headrace.base.connection_numbers import home_of
from headrace.base.placement import METADATA_SHARD
from headrace.base.prng import Prng
from headrace.metadata.target import PartitionTarget
from headrace.ports.audit import Audit
from headrace.ports.bus import MemberLost, ReleaseReply, SendToMember
from headrace.ports.credentials import HashPassword, MintToken, VerifyPassword
from headrace.ports.disk import DiskEvent, FromStore, OnStore
from headrace.ports.host import NodeOpened, TurnBegun, WantTurn
from headrace.ports.machine import StateMachine
from headrace.ports.network import (
    CloseConnection,
    ConnectionClosed,
    ConnectionLeft,
    ConnectionOpened,
    ConnectionTrusted,
    ReadConnections,
    SendFrame,
    SendToConnection,
)
from headrace.ports.segments import SegmentEffect
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.effects import ShardEvent
from headrace.shard.peer import PeerShard
from headrace.shard.shard import Shard
from headrace.shard.watch import Watch
from headrace.sim.agenda import draw_delay
from headrace.sim.astray import Astray
from headrace.sim.cluster import WALL_START, Cluster
from headrace.sim.disk import Disk, DiskOptions
from headrace.sim.folder import Folder, FolderOptions
from headrace.sim.lanes import Lanes
from headrace.sim.links import Links
from headrace.sim.nodes import audit, secrets, siblings
from headrace.sim.nodes.actions import Board
from headrace.sim.nodes.checkers import METADATA, Checkers
from headrace.sim.nodes.clients import ROOT, Client, Joined
from headrace.sim.nodes.ending import Ending, judge_registers
from headrace.sim.nodes.handovers import Handovers
from headrace.sim.nodes.history import Incarnation, Reign
from headrace.sim.nodes.options import NEVER_IDLE_TICKS, NodeOptions
from headrace.sim.nodes.presence import Place
from headrace.sim.nodes.product import Product, store_of
from headrace.sim.nodes.remains import check_known
from headrace.sim.nodes.running import (
    Host,
    HostPump,
    NodeRunning,
    ShardRunning,
    machines_of,
    replicas_of,
    shard_of,
)
from headrace.sim.nodes.siblings import Siblings
from headrace.sim.nodes.watcher import Watcher
from headrace.sim.software import Carriers, Refused, Wiped
from headrace.sim.violation import SimViolationError
from headrace.sim.watched import WatchedMachine
from headrace.sim.world import World
from headrace.storage import store as storage
from headrace.storage.config import journal_name
from headrace.storage.moments import find_older
from headrace.storage.store import Opened
from headrace.vsr.state import Status
from headrace.wire.bus.forwarded import FORWARDED_REQUEST
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation

_HASH_MEAN = 500
_TOLD_MEAN = 300  # until a shard hears from its supervisor
_STEPS_BETWEEN = 5  # so many steps after which it is asked whether a stage sleeps


class Nodes:
    """The workload; `world.Workload` explains each method."""

    liveness_requests = 3

    def __init__(self, options: NodeOptions) -> None:
        self.options = options
        self.board = Board(options.workload)
        self.clients: list[Client] = []
        self._steps = 0
        self._product = Product(options, (ROOT[0], secrets.hash_of(ROOT[1])))
        self.carriers: Carriers[NodeRunning] = {
            OnStore: _on_store,
            SendFrame: self._on_frame,
            SendToConnection: self._on_reply,
            ConnectionLeft: _on_nothing,
            ConnectionTrusted: _on_nothing,
            CloseConnection: self._on_close,
            ReadConnections: self._on_reading,
            VerifyPassword: self._on_secret,
            HashPassword: self._on_secret,
            MintToken: self._on_secret,
            Audit: _on_nothing,
            WantTurn: self._on_turn,
            SendToMember: self._on_member,
            ReleaseReply: self._on_release,
            **dict.fromkeys(get_args(SegmentEffect), _on_segment),
        }

    def join(self, cluster: Cluster[NodeRunning]) -> None:
        """Begin in a cluster that has no nodes yet."""
        self._cluster = cluster
        self.checkers = Checkers(
            self.options.sizes.clock_tolerance,
            lambda: cluster.agenda.now,
            is_waiting=self.options.sizes.consumers_idle_ticks >= NEVER_IDLE_TICKS,
        )

        self.siblings = Siblings(self.options, self.checkers)
        draws = Prng(self.options.seed).fork("shards")  # apart from other draws
        self.buses = [
            Lanes(
                self.options.lanes,
                draws.fork("lanes"),
                cluster.agenda,
                self.options.shard_count,
                Readers(cluster, node),
            )
            for node in range(self.options.replica_count)
        ]
        self._homes = draws.fork("homes")
        self.handovers = Handovers(
            draws.fork("handovers"),
            cluster.agenda,
            cluster.connected,
            self._close_link,
            self.options.lanes.handover_refused,
        )
        cluster.counted += [self.handovers.events, *(bus.events for bus in self.buses)]

    def _close_link(self, number: int) -> None:
        self.links.closed_by_node(number)

    def part_count(self, node: Host) -> int:
        """Return how many shards a node has."""
        return self.options.shard_count

    def parts(self, running: NodeRunning) -> Sequence[ShardRunning]:
        """Return the shards."""
        return running.shards

    def make_clients(self, prng: Prng) -> None:
        """Make the clients and their connections, once there are nodes."""
        cluster = self._cluster
        is_alone = self.options.shard_count == 1
        self.links = Links(
            self.options.links,
            prng.fork("links"),
            cluster.agenda,
            cluster.connected if is_alone else self.handovers.arrive,
            lambda _: self._homes.below(self.options.shard_count),
        )
        cluster.counted.append(self.links.events)
        draws = prng.fork("workload")
        targets = tuple(range(self.options.replica_count))
        joined = Joined(
            agenda=cluster.agenda,
            links=self.links,
            checkers=self.checkers,
            board=self.board,
            is_electing=self.is_electing,
            reign_of=self.reign_of,
            is_unreadable=self.is_unreadable,
            place_of=self.place_of,
            life_of=lambda node: cluster.nodes[node].life,
            shard_count_of=lambda node: len(cluster.nodes[node].pumps),
        )
        self.clients += [
            Client(index, draws.fork("client"), targets, joined)
            for index in range(self.options.workload.client_count)
        ]
        self.ending = Ending(self.options, self.clients, self.checkers)

    @property
    def applied_count(self) -> int:
        """How many ops were committed, as far as any node has applied them."""
        return self.checkers.applied_count

    @property
    def events(self) -> dict[str, int]:
        """What its clients and checkers counted."""
        return self.checkers.events

    # A node's life

    def equip(self, index: int, prng: Prng) -> tuple[tuple[Disk, ...], Folder]:
        """Return the disks of the stores of a node, and the folder of its segments."""
        cluster = self._cluster
        disk_options, folder_options = self.options.disk, self.options.folder
        if index not in cluster.atlas or cluster.replica_count == 1:
            disk_options = _without_damage(disk_options)
            folder_options = msgspec.structs.replace(folder_options, read_error=0)
        if index not in cluster.atlas:
            folder_options = _without_mix_up(folder_options)
        if not (cluster.is_power_for_all or index in cluster.atlas):
            disk_options = msgspec.structs.replace(disk_options, write_error=0)
        disks = [self._make_disk(index, store, disk_options, prng) for store in (0, 1)]
        folder_draws = prng.fork("folder")
        apart = Prng(self.options.seed).fork(f"disks {index}")  # from the draws of other seeds
        more = range(2, store_of(self.options.shard_count))
        disks += [self._make_disk(index, store, disk_options, apart) for store in more]
        folder = Folder(
            folder_options,
            folder_draws,
            cluster.agenda,
            [self._answer_to(index, shard) for shard in range(self.options.shard_count)],
            Astray(Prng(self.options.seed).fork(f"astray {index}")),  # apart from other draws
        )
        return tuple(disks), folder

    def _answer_to(self, index: int, shard: int) -> Callable[[object], None]:
        return lambda event: self._cluster.completed(index, event, shard)

    def _make_disk(self, index: int, store: int, options: DiskOptions, prng: Prng) -> Disk:
        cluster = self._cluster
        # A shard calls its own store by one number, wherever it is in the node.
        shard, known_as = max(0, store - DATA_STORE), min(store, DATA_STORE)

        def answer(event: DiskEvent) -> None:
            cluster.completed(index, FromStore(known_as, event), shard)

        def fail() -> None:
            cluster.crash(index, is_power=True)

        disk = Disk(options, prng.fork(f"store {store}"), cluster.agenda, answer, fail)
        disk.journal_name = journal_name
        return disk

    def format(self, node: Host) -> None:
        """Put the files of a new node on its disks."""
        files = self._product.format(node.index, node.incarnation)
        for disk, image in zip(node.disks, files, strict=True):
            disk.format(image)
        node.folder.wipe()

    def open(self, node: Host) -> NodeRunning | Wiped | Refused:
        """Start the shards of a node from its disks."""
        images = [disk.open() for disk in node.disks]
        opened = self._product.open_stores(node.index, node.boot_identity, node.life + 1, images)
        stores = [each for each in opened if isinstance(each, Opened)]
        if self.options.replica_count == 1:
            _check_moments(opened)
        if any(isinstance(each, storage.Wiped) for each in opened):
            return Wiped()
        if len(stores) < len(opened):
            return Refused(str(opened))
        seeds = [self._cluster.seeds.u64() for _ in stores]

        def make(shard: int, running: ShardRunning) -> Shard | PeerShard:
            place = (node.index, shard)
            return self._product.start(place, seeds, stores, self._watch(node, running))

        self.buses[node.index].clear()
        return NodeRunning(
            [
                ShardRunning(_stores_of(stores, shard), partial(make, shard))
                for shard in range(self.options.shard_count)
            ]
        )

    def _watch(self, host: Host, running: ShardRunning) -> Watch:
        def watch(target: PartitionTarget | None, machine: StateMachine) -> StateMachine:
            checkers = self.checkers
            key = METADATA if target is None else checkers.known(target, running.name_of(target))
            return WatchedMachine(
                machine, Watcher(checkers, host, running, key, machine, self.options)
            )

        return watch

    def booted(self, node: Host) -> None:
        """Take note of a new life."""
        if any(disk.is_damaged for disk in node.disks):
            self.checkers.promises.damaged(node.index)  # A disk rots while its node is down, too.
        self.checkers.promises.booted(node.index)

    def replaced(self, node: Host) -> None:
        """Take note that a node has new disks."""
        self.checkers.promises.wiped(node.index)

    def down(self, node: Host, *, is_power: bool, is_clean: bool) -> None:
        """Take note of what a power cut takes from groups that wait for no sync."""
        replicas = replicas_of(node)
        self.checkers.promises.removed(node.index, replicas)
        self.links.node_down(node.index)
        self.handovers.node_down(node.index)
        self.buses[node.index].clear()
        if not is_power or is_clean:
            return
        if self.options.replica_count == 1:
            self.checkers.lose_power_alone()
        for key in replicas:
            if self.checkers.histories[key].is_shortenable:
                self.checkers.promises.lost_tail(node.index, key)

    def part_down(self, pump: HostPump) -> None:
        """End what one shard has on its disks, lanes and connections."""
        node, shard = pump.node, pump.index
        stores = (0, store_of(0)) if shard == METADATA_SHARD else (store_of(shard),)
        for store in stores:
            node.disks[store].crash(is_power=False)
        node.folder.end_shard(shard)
        self.buses[node.index].end(shard)
        self.links.node_down(node.index, shard)
        if shard == METADATA_SHARD:
            self.handovers.node_down(node.index)

    def disturb_lane(self, node: Host, pair: tuple[int, int], until: int, *, is_full: bool) -> None:
        """Hold a lane between two shards until then, or let it take nothing."""
        bus = self.buses[node.index]
        disturb = bus.fill if is_full else bus.hold
        disturb(*pair, until)

    def rot(self, node: Host) -> bool:
        """Damage what a disk has long held: a journal's, or a segment."""
        schedule = self._cluster.schedule
        if schedule.below(100) < self.options.segment_rot:
            return node.folder.rot()
        return schedule.choice(node.disks).rot()

    def heal(self, node: Host, *, is_core: bool) -> None:
        """Let nothing go wrong on disks and connections any more."""
        cluster = self._cluster
        self.links.options = msgspec.structs.replace(self.links.options, breaks=0)
        node.folder.options = FolderOptions()
        for disk in node.disks:
            disk.options = DiskOptions()
        self.buses[node.index].heal()
        if is_core and node.folder.rotten and self.options.replica_count > 1:
            # Nothing repairs a segment in place yet: its disk is replaced, as an operator would.
            cluster.crash(node.index, is_power=False)
            cluster.wipe(node.index)
            cluster.count("world.replaced_rotten")
        elif is_core and node.folder.has_failed:
            # An error of a segment is gone with a restart, which writes it again.
            cluster.crash(node.index, is_power=False)
            cluster.count("world.restarted_fenced")

    # A node's turns

    def observe(self, pump: HostPump) -> None:
        """Look at a running node, after each tick of its first shard."""
        node = pump.node
        assert node.running is not None
        if pump.index != METADATA_SHARD:
            return
        replicas = node.running.replicas()
        fence = node.running.fence
        if fence is not None and not (node.folder.is_damaged or node.folder.has_failed):
            raise SimViolationError("P7", why="fenced, and sound", node=node.index, fence=fence)
        self._check_quarantine(node)
        check_known(node)
        if len(node.pumps) > 1:
            self.siblings.check(node)
        self.checkers.promises.removed(node.index, replicas)
        for key, replica in replicas.items():
            self.checkers.promises.observe(node.index, key, replica)

    def _check_quarantine(self, node: Host) -> None:
        """Check that only what a power cut may take from the log was found beyond its end."""
        for file in node.folder.quarantined:
            history = self.checkers.histories[Incarnation(file.namespace, file.created_revision)]
            if not (history.is_shortenable or node.folder.is_damaged):
                raise SimViolationError("P7", why="quarantine of what the log has", file=file)

    def stepped(self, pump: HostPump, event: object, effects: Sequence[object]) -> None:
        """Check now and then that no request waits for an answer that cannot come."""
        self._steps += 1
        if self._steps % _STEPS_BETWEEN == 0:
            shard_of(pump).shard.check_awake()
        if self.options.shard_count > 1:
            self._see_to_siblings(pump, event)

    def _see_to_siblings(self, pump: HostPump, event: object) -> None:
        """Do what the supervisor and the acceptor of a node of several shards do."""
        running, index = pump.node.running, pump.node.index
        assert running is not None
        if pump.index == METADATA_SHARD and isinstance(event, ConnectionOpened):
            self.handovers.accepted(index, event)
        if not running.is_opened and all(each.shard.is_open for each in running.shards):
            running.is_opened = True
            for sibling in pump.node.pumps:
                delay = draw_delay(self._cluster.schedule, _TOLD_MEAN)
                told = (sibling, pump.node.life)
                self._cluster.agenda.after(delay, self._tell_opened, told)

    def _tell_opened(self, argument: tuple[HostPump, int]) -> None:
        pump, life = argument
        if pump.node.life == life and not pump.is_ended:
            self._cluster.completed(pump.node.index, NodeOpened(), pump.index)

    def _on_frame(self, pump: HostPump, effect: SendFrame) -> None:
        node = pump.node
        self.checkers.promises.sent(node.index, effect.frame, shard_of(pump).replicas())
        self._cluster.network.send(node.index, effect.replica, effect.frame, pump.index)

    def _on_member(self, pump: HostPump, effect: SendToMember) -> None:
        self._note_choice(effect)
        refused = self.buses[pump.node.index].send(pump.index, effect)
        if refused is not None:
            self._cluster.completed(pump.node.index, refused, pump.index)

    def _note_choice(self, effect: SendToMember) -> None:
        """Take note of the incarnation that a home has chosen for a message."""
        head = effect.parts[0]
        if head[KIND_OFFSET] == FrameKind.FORWARDED_REQUEST:
            envelope = FORWARDED_REQUEST.decode(head)
            if envelope.operation == Operation.SEND_MESSAGES:
                chosen = Incarnation(envelope.group, envelope.origin)
                self.checkers.choices.forwarded(envelope.client, envelope.request, chosen)

    def _on_release(self, pump: HostPump, effect: ReleaseReply) -> None:
        self.buses[pump.node.index].release(pump.index, effect)

    def _on_reply(self, pump: HostPump, effect: SendToConnection) -> None:
        self.links.reply(effect.connection, b"".join(effect.parts))

    def _on_close(self, pump: HostPump, effect: CloseConnection) -> None:
        self._cluster.count("world.connection_closed")
        self.links.closed_by_node(effect.connection)
        closed = ConnectionClosed(effect.connection)
        self._cluster.connected(pump.node.index, closed, pump.index)

    def _on_turn(self, pump: HostPump, _: WantTurn) -> None:
        self._cluster.completed(pump.node.index, TurnBegun(), pump.index)

    def _on_reading(self, pump: HostPump, effect: ReadConnections) -> None:
        pump.is_reading = effect.is_reading
        is_stopped = not effect.is_reading
        self._cluster.count("world.reading_stopped" if is_stopped else "world.reading_resumed")
        self._cluster.plan_turn(pump)

    def _on_secret(self, pump: HostPump, effect: secrets.SecretEffect) -> None:
        delay = draw_delay(self._cluster.schedule, _HASH_MEAN)
        ready = (pump, pump.node.life, secrets.answer(effect))
        self._cluster.agenda.after(delay, self._secret_ready, ready)

    def _secret_ready(self, argument: tuple[HostPump, int, ShardEvent]) -> None:
        pump, life, event = argument
        if pump.node.life == life and not pump.is_ended:
            self._cluster.completed(pump.node.index, event, pump.index)

    # What clients may know of the nodes

    def reign_of(self, node: int, name: str) -> tuple[int, Reign] | None:
        """Return the life of a node and what it serves under a name: the oldest, if two."""
        host = self._cluster.nodes[node]
        found = [
            Reign(key.origin, machine.history_epoch)
            for key, machine in machines_of(host).items()
            if self.checkers.histories[key].name == name
        ]
        return (host.life, min(found)) if found else None

    def place_of(self, node: int, connection: int) -> Place:
        """Return where a connection to a node lives, if it arrives in this life of the node."""
        return Place(node, self._cluster.nodes[node].life, home_of(connection))

    def is_unreadable(self, node: int, name: str, since: int) -> bool:
        """Whether a node may lawfully fail to read a partition that it was asked for since then.

        Its files are damaged, or one was read wrongly meanwhile; a mixed up index is no excuse.
        """
        folder = self._cluster.nodes[node].folder
        keys = [key for key, history in self.checkers.histories.items() if history.name == name]
        return self.options.has_segment_errors or any(
            key in folder.harmed_at or folder.misread_at.get(key, -1) >= since for key in keys
        )

    def is_electing(self) -> bool:
        """Whether some replica has left a view and is in no other one yet."""
        return any(
            replica.status == Status.VIEW_CHANGE
            for host in self._cluster.nodes
            for replica in replicas_of(host).values()
        )

    # The phases of a run

    def look(self) -> None:
        """Let clients know the time."""
        self.board.wall = WALL_START + self._cluster.agenda.now

    def why_not_settled(self, core: Sequence[Host]) -> str:
        """Return which shards lack metadata or segments, or have still to answer; or nothing."""
        return (
            audit.why_not_open(core)
            or siblings.why_not_level(core)
            or audit.why_not_stored(core, self.checkers)
        )

    def may_halt(self, core: Sequence[Host]) -> str:
        """Return the mark of a node that is alone and refuses a damaged partition."""
        running = core[0].running
        is_fenced = running is not None and running.fence is not None
        return "world.halted_fenced" if self.options.replica_count == 1 and is_fenced else ""

    def finish(self, world: World[NodeRunning], core: Sequence[Host]) -> str:
        """Read everything, stop and start the core, and read everything again."""
        return self.ending.finish(world, core)

    def judge(self) -> None:
        """Check what clients were told of offsets and names, and given of groups."""
        judge_registers(self.clients, self.checkers)


def _check_moments(opened: Sequence[Opened | storage.Wiped | storage.Refused]) -> None:
    """Check that no store of a node that is alone is older than what the other knows of it."""
    moments = {
        str(store): each.moment for store, each in enumerate(opened) if isinstance(each, Opened)
    }
    if moments and (older := find_older(moments)) is not None:
        raise SimViolationError("DK16", why=older[1])


def _stores_of(stores: Sequence[Opened], shard: int) -> list[Opened]:
    own = stores[store_of(shard)]
    return [stores[0], own] if shard == METADATA_SHARD else [own]


def _on_store(pump: HostPump, effect: OnStore) -> None:
    store = effect.store if effect.store == METADATA_STORE else store_of(pump.index)
    pump.node.disks[store].submit(effect.effect)


def _on_segment(pump: HostPump, effect: SegmentEffect) -> None:
    pump.node.folder.submit(effect, pump.index)


def _on_nothing(pump: HostPump, effect: object) -> None:
    """Carry out what changes nothing here."""


class Readers:
    """The shards of one node, as its lanes see them."""

    def __init__(self, cluster: Cluster[NodeRunning], node: int) -> None:
        self._cluster = cluster
        self._node = node

    def _pump(self, shard: int) -> HostPump:
        return self._cluster.nodes[self._node].pumps[shard]

    def is_reading(self, shard: int) -> bool:
        """Whether a shard takes what its lanes bring."""
        return not self._pump(shard).is_paused

    def take_frame(self, shard: int, sender: int, frame: bytes, *, is_reply: bool) -> None:
        """Let a frame wait for the shard's next turn."""
        pump = self._pump(shard)
        if not pump.is_ended:
            pump.inbox.put_from_lane(sender, frame, is_reply=is_reply)
            self._cluster.plan_turn(pump)

    def take_lost(self, shard: int, lost: MemberLost) -> None:
        """Let a shard learn that a sibling is gone."""
        pump = self._pump(shard)
        if not pump.is_ended:
            pump.inbox.put_lost(lost)
            self._cluster.plan_turn(pump)


def _without_damage(options: DiskOptions) -> DiskOptions:
    return msgspec.structs.replace(options, lost=0, misdirected=0, read_error=0)


def _without_mix_up(options: FolderOptions) -> FolderOptions:
    return msgspec.structs.replace(
        options, read_astray=0, write_astray=0, index_astray=0, misplaced=0
    )


def make_world(
    options: NodeOptions, tell: Callable[[str], None] | None = None
) -> World[NodeRunning]:
    """Return a world of whole nodes of the code that ships."""
    return World(options, Nodes(options), tell)
