"""The nodes of a simulation: their turns, their effects, their lives, and what strikes them.

A node has one pump for each part of its software that runs by itself. Pumps take turns: what
arrived since the last turn goes in, effects come out and are carried out one by one. A crash can
fall between any two effects of one step.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from headrace.base.prng import Prng
from headrace.ports.network import Ticked
from headrace.sim.agenda import MILLISECOND, SECOND, Agenda, draw_delay
from headrace.sim.checks import Checks
from headrace.sim.inbox import Connected
from headrace.sim.network import Network
from headrace.sim.node import Node, Pump
from headrace.sim.options import RunOptions
from headrace.sim.software import R, Refused, Software, Wiped
from headrace.sim.trace import Trace
from headrace.sim.violation import SimViolationError

TICK = 10 * MILLISECOND
WALL_START = 1_700_000_000 * SECOND

_STALL_TICKS = 2
_TURN_MEANS = (40, 40, 40, 3_000)  # of parts of a node that has several
_NOTICED_MEAN = 20 * MILLISECOND  # until a supervisor has noticed that a part of a node is gone


class Cluster(Generic[R]):
    """All nodes, and the network between them; `on_down` is told of every node that ends."""

    def __init__(
        self, options: RunOptions, prng: Prng, agenda: Agenda, trace: Trace, software: Software[R]
    ) -> None:
        self.options = options
        self.replica_count = options.replica_count
        self.atlas = options.atlas
        self.is_power_for_all = options.is_power_for_all
        self.agenda = agenda
        self.trace = trace
        self.network = Network(options.network, prng.fork("network"), agenda, options.replica_count)
        self.schedule = prng.fork("schedule")
        self.seeds = prng.fork("seeds")
        self.probes: Counter[str] = Counter()
        self.on_down: Callable[[int], None] = _nobody
        self.nodes: list[Node[R]] = []
        self.counted: list[Mapping[str, int]] = [self.network.events]
        self._software = software
        self._events: Counter[str] = Counter()
        self._checks = Checks(options.seed)

    def make_nodes(self, prng: Prng) -> None:
        """Make all nodes, each with an empty disk."""
        self.nodes = [self._make_node(index, prng) for index in range(self.replica_count)]

    def _make_node(self, index: int, prng: Prng) -> Node[R]:
        draws = prng.fork("disk")
        node: Node[R] = Node(index, *self._software.equip(index, draws))
        self._make_pumps(node, draws)
        node.wall_skew = draws.between(-3_600, 3_600) * SECOND
        self._software.format(node)
        self.counted += [medium.events for medium in node.media]
        self.network.attach(
            index, lambda source, frame, part: self._arrived(index, source, frame, part)
        )
        return node

    def _make_pumps(self, node: Node[R], draws: Prng) -> None:
        count = self._software.part_count(node)
        node.pumps = tuple(Pump(node, part) for part in range(count))
        node.pumps[0].tick_length = TICK + draws.between(-400, 400)
        more = Prng(self.options.seed).fork(f"pumps of {node.index}")  # apart from other draws
        for pump in node.pumps[1:]:
            pump.tick_length = TICK + more.between(-400, 400)
        if count > 1:
            for pump in node.pumps:
                pump.turn_mean = more.choice(_TURN_MEANS)

    # A node's turns

    def _tick(self, argument: tuple[Pump[R], int]) -> None:
        pump, life = argument
        if pump.node.life != life or pump.is_ended:
            return
        self.agenda.after(pump.tick_length, self._tick, argument)
        if pump.is_paused:
            return
        self._tell_time(pump)
        if pump.node.life == life and not pump.is_ended:
            self._software.observe(pump)

    def _tell_time(self, pump: Pump[R]) -> None:
        pump.told_ticks = pump.ticks_at(self.agenda.now)
        self._step(pump, Ticked(pump.told_ticks, self._wall(pump.node)))

    def _wall(self, node: Node[R]) -> int:
        return max(0, WALL_START + node.wall_skew + self.agenda.now)

    def plan_turn(self, pump: Pump[R]) -> None:
        """Let a pump take a turn soon."""
        if not (pump.is_turn_planned or pump.is_paused):
            pump.is_turn_planned = True
            delay = draw_delay(self.schedule, pump.turn_mean)
            self.agenda.after(delay, self._turn, (pump, pump.node.life))

    def _turn(self, argument: tuple[Pump[R], int]) -> None:
        pump, life = argument
        node = pump.node
        if node.life != life or pump.is_ended:
            return
        pump.is_turn_planned = False
        if pump.is_paused:
            return
        if pump.ticks_at(self.agenda.now) - pump.told_ticks >= _STALL_TICKS:
            self._tell_time(pump)  # As the loop of a real node does, before requests.
            if node.life != life or pump.is_ended:
                return
        for event in pump.inbox.take(self._wall(node), is_reading=pump.is_reading):
            self._step(pump, event)
            if node.life != life or pump.is_ended:
                return

    def _step(self, pump: Pump[R], event: Any) -> None:  # noqa: ANN401  # the software's own kinds
        running = pump.node.running
        assert running is not None
        self.trace.add(self.agenda.now, pump.label, event)
        part = self._software.parts(running)[pump.index]
        effects = part.step(event)
        self._checks.check(part.components())
        self._software.stepped(pump, event, effects)
        self._carry_out(pump, effects)

    def _carry_out(self, pump: Pump[R], effects: Sequence[Any]) -> None:
        """Do what a step asks for, in order; the node may crash between any two."""
        now, trace, label, node = self.agenda.now, self.trace, pump.label, pump.node
        carriers, life = self._software.carriers, node.life
        for effect in effects:
            if node.effects_left >= 0:
                node.effects_left -= 1
                if node.effects_left < 0:
                    self.count("world.crashed_between_effects")
                    self._crash_at(pump)
                    return
            trace.add(now, label, effect)
            carriers[type(effect)](pump, effect)
            assert node.life == life

    def _crash_at(self, pump: Pump[R]) -> None:
        node = pump.node
        if node.is_one_next and len(node.pumps) > 1:
            self.kill_part(node.index, pump.index)
        else:
            self.crash(node.index, is_power=node.is_power_next)

    def completed(self, index: int, event: object, part: int = 0) -> None:
        """Let the answer to an effect wait for the next turn of a pump."""
        pump = self.nodes[index].pumps[part]
        pump.inbox.put(event)
        self.plan_turn(pump)

    def _arrived(self, index: int, source: int, frame: bytes, part: int) -> None:
        node = self.nodes[index]
        pump = node.pumps[part]
        if node.running is None or pump.is_ended:
            return
        if source < self.replica_count:
            pump.inbox.put_frame(source, frame)
        else:
            pump.inbox.put_connected((0, frame))
        self.plan_turn(pump)

    def connected(self, index: int, event: Connected, part: int = 0) -> bool:
        """Let what a client did wait for the next turn of a pump; return whether it is up."""
        node = self.nodes[index]
        pump = node.pumps[part]
        is_up = node.running is not None and not pump.is_ended
        if is_up:
            pump.inbox.put_connected(event)
            self.plan_turn(pump)
        return is_up

    # A node's life

    def boot(self, node: int) -> None:
        """Start a node from what its disks hold."""
        booted = self.nodes[node]
        if booted.running is not None or booted.is_refused:
            return
        booted.life += 1
        opened = self._software.open(booted)
        if isinstance(opened, Wiped):
            self._replace_disk(booted)
            opened = self._software.open(booted)
        if isinstance(opened, Refused | Wiped):
            self._refuse(booted, opened)
            return
        booted.running = opened
        booted.booted_at = self.agenda.now
        for pump in booted.pumps:
            pump.begin()
        self.count("world.booted")
        self.trace.add(self.agenda.now, node, f"boot {booted.life}")
        started = [part.start() for part in self._software.parts(opened)]
        self._software.booted(booted)
        life = booted.life
        for pump, effects in zip(booted.pumps, started, strict=True):
            if booted.life == life and not pump.is_ended:
                self.agenda.after(pump.tick_length, self._tick, (pump, life))
                self._carry_out(pump, effects)

    def _replace_disk(self, node: Node[R]) -> None:
        """Format disks that hold nothing usable; only damage may have brought them there."""
        if node.index not in self.atlas:
            raise SimViolationError("P7", why="a sound disk seems empty", node=node.index)
        self.count("world.replaced")
        self.trace.add(self.agenda.now, node.index, "disk replaced")
        self._software.replaced(node)
        node.incarnation += 1
        self._software.format(node)

    def _refuse(self, node: Node[R], refused: Refused | Wiped) -> None:
        self.count("world.refused")
        self.trace.add(self.agenda.now, node.index, f"refused: {refused}")
        if not self.options.is_atlas_broken:
            raise SimViolationError("P7", why="refused to start", node=node.index, reason=refused)
        node.is_refused = True

    def heal(self, node: Node[R], *, is_core: bool) -> None:
        """Let nothing go wrong on a node any more; one outside of the core stays down."""
        node.effects_left = -1
        for medium in node.media:
            medium.is_full = False
        self._software.heal(node, is_core=is_core)
        if not is_core or any(pump.is_ended for pump in node.pumps):
            self.crash(node.index, is_power=False)
        else:
            self.resume(node.index)
        if is_core and node.running is None:
            self.boot(node.index)

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

    def crash(self, node: int, *, is_power: bool, is_clean: bool = False) -> None:
        """End a node's life; unsent output and unsynced writes are gone.

        After a clean stop there are none that count.
        """
        crashed = self.nodes[node]
        if crashed.running is None:
            return
        self.count("world.power_cut" if is_power else "world.killed")
        self.trace.add(self.agenda.now, node, "power cut" if is_power else "killed")
        self.collect(crashed)
        self._software.down(crashed, is_power=is_power, is_clean=is_clean)
        crashed.running = None
        crashed.life += 1
        crashed.effects_left = -1
        for pump in crashed.pumps:
            pump.inbox.clear()
        for medium in crashed.media:
            medium.crash(is_power=is_power)
        if is_power:
            crashed.boot_identity += 1
        self.on_down(node)

    def crash_between_effects(
        self, node: int, effects: int, *, is_power: bool, is_one: bool = False
    ) -> None:
        """Crash a node, or one part of it, once it has carried out that many effects."""
        self.nodes[node].effects_left = effects
        self.nodes[node].is_power_next = is_power
        self.nodes[node].is_one_next = is_one

    def kill_part(self, node: int, part: int) -> None:
        """End one part of a node alone: the others go on until its supervisor has noticed."""
        killed = self.nodes[node]
        pump = killed.pumps[part]
        if killed.running is None or pump.is_ended:
            return
        self.count("world.part_killed")
        self.trace.add(self.agenda.now, pump.label, "killed alone")
        pump.is_ended = True
        pump.inbox.clear()
        self._software.part_down(pump)
        delay = draw_delay(self.schedule, _NOTICED_MEAN)
        self.agenda.after(delay, self._notice, (killed, killed.life))

    def part_count(self, node: int) -> int:
        """Return how many parts a node has."""
        return len(self.nodes[node].pumps)

    def disturb_lane(self, node: int, pair: tuple[int, int], until: int, *, is_full: bool) -> None:
        """Hold a lane between two parts of a node until then, or let it take nothing."""
        self.trace.add(self.agenda.now, node, f"lane {pair} {'full' if is_full else 'held'}")
        self._software.disturb_lane(self.nodes[node], pair, until, is_full=is_full)

    def _notice(self, argument: tuple[Node[R], int]) -> None:
        node, life = argument
        if node.life == life:
            self.crash(node.index, is_power=False)

    def wipe(self, node: int) -> None:
        """Empty the disks of a node that is down."""
        wiped = self.nodes[node]
        assert node in self.atlas
        if wiped.running is None and not wiped.is_refused:
            self.count("world.wiped")
            self.trace.add(self.agenda.now, node, "disk wiped")
            for medium in wiped.media:
                medium.wipe()

    def pause(self, node: int, part: int | None = None) -> None:
        """Stop a node, or one part of it, without ending it; its clock goes on."""
        self.count("world.paused" if part is None else "world.part_paused")
        pumps = self.nodes[node].pumps if part is None else self.nodes[node].pumps[part : part + 1]
        self.trace.add(self.agenda.now, node if part is None else pumps[0].label, "paused")
        for pump in pumps:
            pump.is_paused = True

    def resume(self, node: int) -> None:
        """Let all paused parts of a node go on with all that waits."""
        resumed = self.nodes[node]
        if resumed.running is None:
            return
        for pump in resumed.pumps:
            if pump.is_paused and not pump.is_ended:
                pump.is_paused = False
                self.trace.add(self.agenda.now, pump.label, "resumed")
                self.plan_turn(pump)

    def rot(self, node: int) -> None:
        """Damage what a disk has long held."""
        assert node in self.atlas
        if self._software.rot(self.nodes[node]):
            self.trace.add(self.agenda.now, node, "disk rots")

    def fill(self, node: int, *, is_full: bool) -> None:
        """Take the free space of a disk, or give it back."""
        self.trace.add(self.agenda.now, node, "disk full" if is_full else "disk freed")
        for medium in self.nodes[node].media:
            medium.is_full = is_full

    def jump_clock(self, node: int, by: int) -> None:
        """Move a node's wall clock."""
        self.count("world.clock_jumped")
        self.nodes[node].wall_skew += by

    # What happened

    def count(self, event: str) -> None:
        """Count something that happened."""
        self._events[event] += 1

    def collect(self, node: Node[R]) -> None:
        """Take over the marks that a node has reached in this life."""
        if node.running is not None:
            self.probes.update(node.running.probes)

    def events(self) -> Counter[str]:
        """Return all that happened, counted."""
        events = Counter(self._events)
        for part in self.counted:
            events.update(part)
        return events

    @property
    def fault_count(self) -> int:
        """How much went wrong."""
        return self.events().total() - self._events["world.booted"]


def _nobody(_: int) -> None:
    """Be told of nodes that end before there are faults."""
