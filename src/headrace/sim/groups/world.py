"""One seed, one world: nodes, disks, network, clients and faults over one agenda.

A run has two phases. In the first, faults strike until every request is answered or a limit is
reached; checkers watch every application, every frame and every tick. In the second, a core of
nodes is healed, nothing goes wrong in it any more, and it must converge: every request answered,
every group settled, and all its replicas equal byte for byte.
"""

from collections.abc import Callable

import msgspec

from headrace.base.prng import Prng
from headrace.ports.disk import DiskEffect, DiskEvent
from headrace.ports.machine import StateMachine
from headrace.ports.network import (
    NetworkEffect,
    NetworkEvent,
    RequestsArrived,
    SendFrame,
    SendReply,
    Ticked,
)
from headrace.sim.agenda import MILLISECOND, SECOND, Agenda, draw_delay
from headrace.sim.disk import Disk, DiskOptions
from headrace.sim.faults import Faults
from headrace.sim.groups.checkers import Checkers
from headrace.sim.groups.clients import CLIENT_ENDPOINT_MIN, Client, Joined
from headrace.sim.groups.convergence import choose_core, lacks_voters, why_not_converged
from headrace.sim.groups.node import Node
from headrace.sim.groups.options import Options
from headrace.sim.groups.system import Boot, GroupFace, Refused, Running, System, Wiped
from headrace.sim.machine import AppendMachine, WatchedMachine
from headrace.sim.network import Network, NetworkOptions
from headrace.sim.outcome import Outcome, Report, judge_probes
from headrace.sim.product import CLUSTER
from headrace.sim.trace import Trace
from headrace.sim.violation import SimViolationError
from headrace.wire.errors import CorruptError, DecodeError, RefusedError, RemoteError

TICK = 10 * MILLISECOND
WALL_START = 1_700_000_000 * SECOND

_LOOK = 50 * MILLISECOND
_TURN_MEAN = 40
_STALL_TICKS = 2
_LIVENESS_REQUESTS = 2  # of each client, so that the healed core shows that it works
# What broken code raises; anything else is a fault of the simulator's own.
_CRASHES = (
    AssertionError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    CorruptError,
    DecodeError,
    RefusedError,
    RemoteError,
)


class World:
    """A whole cluster and what surrounds it."""

    def __init__(
        self,
        options: Options,
        system: System,
        tell: Callable[[str], None] | None = None,
        machine: Callable[[], StateMachine] = AppendMachine,
    ) -> None:
        prng = Prng(options.seed)
        self.options = options
        self.replica_count = options.replica_count
        self.atlas = options.atlas
        self.is_power_for_all = not options.replicated_groups
        self.agenda = Agenda()
        self.trace = Trace(tell)
        self.checkers = Checkers()
        self.network = Network(
            options.network, prng.fork("network"), self.agenda, options.replica_count
        )
        self._system = system
        self._machine = machine
        self._schedule = prng.fork("schedule")
        self._seeds = prng.fork("seeds")
        self._events: dict[str, int] = {}
        self._probes: dict[str, int] = {}
        self._canary = options.canary
        self._clients_by_id: dict[int, Client] = {}
        self.nodes = [self._make_node(index, prng) for index in range(options.replica_count)]
        self.clients = self._make_clients(prng.fork("workload"))
        self._faults = Faults(options.faults, prng.fork("faults"), self.agenda, self)

    def _make_node(self, index: int, prng: Prng) -> Node:
        disk_options = self.options.disk
        if index not in self.atlas:
            disk_options = _without_damage(disk_options)
        if not (self.is_power_for_all or index in self.atlas):
            disk_options = _without_write_errors(disk_options)
        draws = prng.fork("disk")
        disk = Disk(
            disk_options,
            draws,
            self.agenda,
            lambda event: self._completed(index, event),
            lambda: self.crash(index, is_power=True),
        )
        disk.journal_name = self._system.journal_name
        node = Node(index, disk, TICK + draws.between(-400, 400))
        node.wall_skew = draws.between(-3_600, 3_600) * SECOND
        disk.format(self._system.format(index, 0))
        self.network.attach(index, lambda source, frame: self._arrived(index, source, frame))
        return node

    def _make_clients(self, prng: Prng) -> list[Client]:
        options = self.options.workload
        joined = Joined(
            cluster=CLUSTER,
            targets=tuple(range(self.replica_count)),
            agenda=self.agenda,
            network=self.network,
            checkers=self.checkers,
            reuses=Prng(self.options.seed).fork("reuse"),
            registered=self._clients_by_id.__setitem__,
        )
        return [
            Client(index, options, prng.fork("client"), self.options.groups, joined)
            for index in range(options.client_count)
        ]

    # Running

    def run(self) -> Report:
        """Run both phases; tell what came of it."""
        try:
            for node in self.nodes:
                self.boot(node.index)
            return self._report(*self._run_phases())
        except SimViolationError as violation:
            return self._report(Outcome.VIOLATION, str(violation))
        except _CRASHES as error:
            return self._report(Outcome.VIOLATION, f"crashed: {_where(error)}")

    def _run_phases(self) -> tuple[Outcome, str]:
        safety_limit = self.options.safety_limit
        while self.agenda.now < safety_limit and not self._is_enough():
            if not self._run_until(self.agenda.now + _LOOK):
                return Outcome.LIVENESS, "event budget spent: livelock"
        indices = self._heal()
        core = [self.nodes[index] for index in indices]
        limit = self.agenda.now + self.options.liveness_limit
        reason = "nothing ran"
        while self.agenda.now < limit:
            if not self._run_until(self.agenda.now + _LOOK):
                reason = f"event budget spent: livelock; {reason}"
                break
            reason = why_not_converged(self.clients, core)
            if not reason:
                return self._compare(indices)
        return self._judge_halt(core, f"core {indices}: {reason}")

    def _judge_halt(self, core: list[Node], reason: str) -> tuple[Outcome, str]:
        """Decide whether a core that does not converge had to."""
        if self.options.is_atlas_broken:
            self.count("world.halted_safely")
            return Outcome.PASS, f"halted: {reason}"
        if lacks_voters(core, self.replica_count):
            self.count("world.halted_without_voters")
            return Outcome.PASS, f"halted without voters: {reason}"
        return Outcome.LIVENESS, reason

    def _is_enough(self) -> bool:
        """Whether all is answered; as long as nothing went wrong, clients are given more to ask."""
        if not all(client.is_done for client in self.clients):
            return False
        if self._fault_count():
            return True
        for client in self.clients:
            client.grant(_LIVENESS_REQUESTS)
        return False

    def _run_until(self, until: int) -> bool:
        """Run up to that time; return whether the budget of events lasted."""
        agenda, trace, events_max = self.agenda, self.trace, self.options.events_max
        agenda.after(until - agenda.now, _nothing, None)
        while agenda.now < until:
            agenda.run_next()
            if trace.count > events_max:
                return False
        return True

    def _compare(self, core: list[int]) -> tuple[Outcome, str]:
        """Check that all replicas of the core are equal, and that nothing was lost."""
        first = self.nodes[core[0]]
        for group in self.options.groups:
            face = _face(first, group)
            known = self.checkers.applied_up_to(group)
            if face.commit_min < known and not self.options.is_atlas_broken:
                raise SimViolationError("H1", group=group, commit=face.commit_min, applied=known)
            for index in core[1:]:
                other = self.nodes[index]
                if first.machines[group].export() != other.machines[group].export():
                    raise SimViolationError("R2", why="export", group=group, nodes=(core[0], index))
                if face.table() != _face(other, group).table():
                    raise SimViolationError(
                        "R2", why="client table", group=group, nodes=(core[0], index)
                    )
        if self.checkers.applied_count == 0 or not self._fault_count():
            return Outcome.EMPTY, "nothing was committed, or nothing went wrong"
        return Outcome.PASS, ""

    def _heal(self) -> list[int]:
        """Choose the core and let nothing go wrong in it; nodes outside stay down."""
        self._faults.end()
        self.network.heal(NetworkOptions(delay_min=100, delay_mean=300, is_ordered=True))
        core = choose_core(self.nodes, self.atlas, self._schedule)
        self.trace.add(self.agenda.now, -1, f"healed, core {core}")
        for node in self.nodes:
            node.effects_left = -1
            node.disk.is_full = False
            node.disk.options = _without_write_errors(_without_damage(node.disk.options))
            if node.index not in core:
                self.crash(node.index, is_power=False)
            elif node.is_paused:
                self.resume(node.index)
            if node.index in core and node.running is None:
                self.boot(node.index)
        self.network.isolate(core)
        for client in self.clients:
            client.targets = tuple(core)
            client.grant(_LIVENESS_REQUESTS)
        return core

    # A node's turns

    def _tick(self, argument: tuple[Node, int]) -> None:
        node, life = argument
        if node.life != life:
            return
        self.agenda.after(node.tick_length, self._tick, argument)
        if node.is_paused:
            return
        running = node.running
        assert running is not None
        self._tell_time(node)
        if node.life == life:
            self.checkers.observe(node.index, running.faces().items(), node.machines)

    def _tell_time(self, node: Node) -> None:
        node.told_ticks = node.ticks_at(self.agenda.now)
        self._step(node, Ticked(node.told_ticks, self._wall(node)))

    def _wall(self, node: Node) -> int:
        return max(0, WALL_START + node.wall_skew + self.agenda.now)

    def _plan_turn(self, node: Node) -> None:
        if not (node.is_turn_planned or node.is_paused):
            node.is_turn_planned = True
            delay = draw_delay(self._schedule, _TURN_MEAN)
            self.agenda.after(delay, self._turn, (node, node.life))

    def _turn(self, argument: tuple[Node, int]) -> None:
        node, life = argument
        if node.life != life:
            return
        node.is_turn_planned = False
        if node.is_paused:
            return
        if node.ticks_at(self.agenda.now) - node.told_ticks >= _STALL_TICKS:
            self._tell_time(node)  # As the loop of a real node does, before requests.
            if node.life != life:
                return
        for event in node.inbox.take(self._wall(node)):
            self._step(node, event)
            if node.life != life:
                return

    def _step(self, node: Node, event: DiskEvent | NetworkEvent) -> None:
        running = node.running
        assert running is not None
        self.trace.add(self.agenda.now, node.index, event)
        effects = running.step(event)
        if type(event) is RequestsArrived:
            replies = [(each.client, each.frame) for each in effects if type(each) is SendReply]
            self.checkers.took([bytes(frame) for _, frame in event.frames], replies)
        self._carry_out(node, effects)

    def _carry_out(self, node: Node, effects: list[DiskEffect | NetworkEffect]) -> None:
        """Do what a step asks for, in order; the node may crash between any two."""
        now, trace, index = self.agenda.now, self.trace, node.index
        life = node.life
        assert node.running is not None
        faces = node.running.faces()
        for effect in effects:
            if node.effects_left >= 0:
                node.effects_left -= 1
                if node.effects_left < 0:
                    self.count("world.crashed_between_effects")
                    self.crash(index, is_power=node.is_power_next)
                    return
            trace.add(now, index, effect)
            if type(effect) is SendFrame:
                self.checkers.sent(index, effect.frame, faces)
                self.network.send(index, effect.replica, effect.frame)
            elif type(effect) is SendReply:
                client = self._clients_by_id.get(effect.client)
                if client is None:
                    raise SimViolationError("R6", why="reply to nobody", client=effect.client)
                self.network.send(index, client.endpoint, effect.frame)
            else:
                node.disk.submit(effect)  # type: ignore[arg-type]  # mypy cannot narrow by `type is`
            assert node.life == life

    def _completed(self, index: int, event: DiskEvent) -> None:
        node = self.nodes[index]
        node.inbox.put(event)
        self._plan_turn(node)

    def _arrived(self, index: int, source: int, frame: bytes) -> None:
        node = self.nodes[index]
        if node.running is None:
            return
        if source < CLIENT_ENDPOINT_MIN:
            node.inbox.put_frame(source, frame)
        else:
            node.inbox.put_connected((0, frame))
        self._plan_turn(node)

    # A node's life

    def boot(self, index: int) -> None:
        """Start a node from what its disk holds."""
        node = self.nodes[index]
        if node.running is not None or node.is_refused:
            return
        node.life += 1
        opened = self._open(node)
        if isinstance(opened, Wiped):
            self._replace_disk(node)
            opened = self._open(node)
        if isinstance(opened, Refused | Wiped):
            self._refuse(node, opened)
            return
        node.running = opened
        node.booted_at = self.agenda.now
        node.told_ticks = 0
        node.is_paused = node.is_turn_planned = False
        self.count("world.booted")
        self.trace.add(self.agenda.now, index, f"boot {node.life}")
        effects = opened.start()
        if node.disk.is_damaged:
            self.checkers.damaged(index)  # A disk rots while its node is down, too.
        self.checkers.booted(index, opened.faces().items())
        self.agenda.after(node.tick_length, self._tick, (node, node.life))
        self._carry_out(node, effects)

    def _open(self, node: Node) -> Running | Wiped | Refused:
        files = node.disk.open()
        node.machines = {}
        return self._system.open(
            Boot(
                node=node.index,
                files=files,
                boot_identity=node.boot_identity,
                seed=self._seeds.u64(),
                machines=lambda group: self._watch(node, group),
            )
        )

    def _replace_disk(self, node: Node) -> None:
        """Format a disk that holds nothing usable; only damage may have brought it there."""
        if node.index not in self.atlas:
            raise SimViolationError("P7", why="a sound disk seems empty", node=node.index)
        self.count("world.replaced")
        self.trace.add(self.agenda.now, node.index, "disk replaced")
        self.checkers.forget(node.index, self.options.groups, is_wiped=True)
        node.incarnation += 1
        node.disk.format(self._system.format(node.index, node.incarnation))

    def _refuse(self, node: Node, refused: Refused | Wiped) -> None:
        self.count("world.refused")
        self.trace.add(self.agenda.now, node.index, f"refused: {refused}")
        if not self.options.is_atlas_broken:
            raise SimViolationError("P7", why="refused to start", node=node.index, reason=refused)
        node.is_refused = True

    def _watch(self, node: Node, group: int) -> StateMachine:
        index, checkers = node.index, self.checkers
        checkers.made(index, group)
        life = node.life

        def applied(header: object, body: bytes, reply: bytes, state_hash: int) -> None:
            assert node.life == life, "a machine of an earlier life was used"
            if self._canary and checkers.applied_count > 20:
                self._canary = False
                reply = bytes(len(reply))
            checkers.applied(index, header, body, reply, state_hash)  # type: ignore[arg-type]

        machine = WatchedMachine(self._machine(), applied, lambda: checkers.installed(index, group))
        node.machines[group] = machine
        return machine

    # What faults may do

    def is_up(self, node: int) -> bool:
        """Whether a node runs, paused or not."""
        return self.nodes[node].running is not None

    def leaders(self) -> list[int]:
        """Return the nodes that serve as primary of a group."""
        return [
            node.index
            for node in self.nodes
            if node.running is not None
            and any(face.is_serving for face in node.running.faces().values())
        ]

    def crash(self, node: int, *, is_power: bool) -> None:
        """End a node's life; unsent output and unsynced writes are gone."""
        crashed = self.nodes[node]
        if crashed.running is None:
            return
        self.count("world.power_cut" if is_power else "world.killed")
        self.trace.add(self.agenda.now, node, "power cut" if is_power else "killed")
        self._collect(crashed)
        crashed.running = None
        crashed.life += 1
        crashed.effects_left = -1
        crashed.inbox.clear()
        crashed.disk.crash(is_power=is_power)
        if is_power:
            crashed.boot_identity += 1
            self.checkers.forget(node, self.options.replicated_groups, is_wiped=False)
        self._faults.node_down(node)

    def crash_between_effects(self, node: int, effects: int, *, is_power: bool) -> None:
        """Crash a node once it has carried out that many effects."""
        self.nodes[node].effects_left = effects
        self.nodes[node].is_power_next = is_power

    def wipe(self, node: int) -> None:
        """Empty the disk of a node that is down."""
        wiped = self.nodes[node]
        assert node in self.atlas
        if wiped.running is None and not wiped.is_refused:
            self.count("world.wiped")
            self.trace.add(self.agenda.now, node, "disk wiped")
            wiped.disk.wipe()

    def pause(self, node: int) -> None:
        """Stop a node without ending it; its clock goes on."""
        self.count("world.paused")
        self.trace.add(self.agenda.now, node, "paused")
        self.nodes[node].is_paused = True

    def resume(self, node: int) -> None:
        """Let a paused node go on with all that waits."""
        resumed = self.nodes[node]
        if resumed.running is not None and resumed.is_paused:
            resumed.is_paused = False
            self.trace.add(self.agenda.now, node, "resumed")
            self._plan_turn(resumed)

    def rot(self, node: int) -> None:
        """Damage what a disk has long held."""
        assert node in self.atlas
        if self.nodes[node].disk.rot():
            self.trace.add(self.agenda.now, node, "disk rots")

    def fill(self, node: int, *, is_full: bool) -> None:
        """Take the free space of a disk, or give it back."""
        self.trace.add(self.agenda.now, node, "disk full" if is_full else "disk freed")
        self.nodes[node].disk.is_full = is_full

    def jump_clock(self, node: int, by: int) -> None:
        """Move a node's wall clock."""
        self.count("world.clock_jumped")
        self.nodes[node].wall_skew += by

    # The report

    def _collect(self, node: Node) -> None:
        if node.running is not None:
            for name, count in node.running.probes.counts.items():
                self._probes[name] = self._probes.get(name, 0) + count

    def _fault_count(self) -> int:
        return sum(self._all_events().values()) - self._events.get("world.booted", 0)

    def _all_events(self) -> dict[str, int]:
        events = dict(self._events)
        for part in (self.network.events, *(node.disk.events for node in self.nodes)):
            for name, count in part.items():
                events[name] = events.get(name, 0) + count
        return events

    def _report(self, outcome: Outcome, reason: str) -> Report:
        for node in self.nodes:
            self._collect(node)
        outcome, reason = judge_probes(outcome, reason, self._probes)
        events = self._all_events()
        for client in self.clients:
            for name, count in client.events.items():
                events[name] = events.get(name, 0) + count
        return Report(
            seed=self.options.seed,
            outcome=outcome,
            reason=reason,
            trace_hash=self.trace.digest,
            steps=self.trace.count,
            committed=self.checkers.applied_count,
            virtual_micros=self.agenda.now,
            events=events,
            probes=self._probes,
            last=tuple(self.trace.last()),
        )

    def count(self, event: str) -> None:
        """Count something that happened."""
        self._events[event] = self._events.get(event, 0) + 1


def _face(node: Node, group: int) -> GroupFace:
    assert node.running is not None
    return node.running.faces()[group]


def _nothing(_: None) -> None:
    """Mark a moment at which the loop looks around."""


def _without_damage(options: DiskOptions) -> DiskOptions:
    return msgspec.structs.replace(options, lost=0, misdirected=0, read_error=0)


def _without_write_errors(options: DiskOptions) -> DiskOptions:
    return msgspec.structs.replace(options, write_error=0)


def _where(error: BaseException) -> str:
    """Name the innermost places of an error, so that a seed can be told from another."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return f"{type(error).__name__}: {error} in " + " < ".join(reversed(places[-5:]))
