"""The nodes of a simulation: their turns, their effects, their lives, and what strikes them.

Nodes take turns: what arrived since the last turn goes in, effects come out and are carried out one
by one. A crash can fall between any two effects of one step.
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
from headrace.sim.node import Node
from headrace.sim.options import RunOptions
from headrace.sim.software import R, Refused, Software, Wiped
from headrace.sim.trace import Trace
from headrace.sim.violation import SimViolationError

TICK = 10 * MILLISECOND
WALL_START = 1_700_000_000 * SECOND

_TURN_MEAN = 40
_STALL_TICKS = 2


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
        node.tick_length = TICK + draws.between(-400, 400)
        node.wall_skew = draws.between(-3_600, 3_600) * SECOND
        self._software.format(node)
        self.counted += [medium.events for medium in node.media]
        self.network.attach(index, lambda source, frame: self._arrived(index, source, frame))
        return node

    # A node's turns

    def _tick(self, argument: tuple[Node[R], int]) -> None:
        node, life = argument
        if node.life != life:
            return
        self.agenda.after(node.tick_length, self._tick, argument)
        if node.is_paused:
            return
        self._tell_time(node)
        if node.life == life:
            self._software.observe(node)

    def _tell_time(self, node: Node[R]) -> None:
        node.told_ticks = node.ticks_at(self.agenda.now)
        self._step(node, Ticked(node.told_ticks, self._wall(node)))

    def _wall(self, node: Node[R]) -> int:
        return max(0, WALL_START + node.wall_skew + self.agenda.now)

    def plan_turn(self, node: Node[R]) -> None:
        """Let a node take a turn soon."""
        if not (node.is_turn_planned or node.is_paused):
            node.is_turn_planned = True
            delay = draw_delay(self.schedule, _TURN_MEAN)
            self.agenda.after(delay, self._turn, (node, node.life))

    def _turn(self, argument: tuple[Node[R], int]) -> None:
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
        for event in node.inbox.take(self._wall(node), is_reading=node.is_reading):
            self._step(node, event)
            if node.life != life:
                return

    def _step(self, node: Node[R], event: Any) -> None:  # noqa: ANN401  # the software's own kinds
        running = node.running
        assert running is not None
        self.trace.add(self.agenda.now, node.index, event)
        effects = running.step(event)
        self._checks.check(running.components())
        self._software.stepped(node, event, effects)
        self._carry_out(node, effects)

    def _carry_out(self, node: Node[R], effects: Sequence[Any]) -> None:
        """Do what a step asks for, in order; the node may crash between any two."""
        now, trace, index, life = self.agenda.now, self.trace, node.index, node.life
        carriers = self._software.carriers
        for effect in effects:
            if node.effects_left >= 0:
                node.effects_left -= 1
                if node.effects_left < 0:
                    self.count("world.crashed_between_effects")
                    self.crash(index, is_power=node.is_power_next)
                    return
            trace.add(now, index, effect)
            carriers[type(effect)](node, effect)
            assert node.life == life

    def completed(self, index: int, event: object) -> None:
        """Let the answer to an effect wait for the node's next turn."""
        node = self.nodes[index]
        node.inbox.put(event)
        self.plan_turn(node)

    def _arrived(self, index: int, source: int, frame: bytes) -> None:
        node = self.nodes[index]
        if node.running is None:
            return
        if source < self.replica_count:
            node.inbox.put_frame(source, frame)
        else:
            node.inbox.put_connected((0, frame))
        self.plan_turn(node)

    def connected(self, index: int, event: Connected) -> bool:
        """Let what a client did wait for the node's next turn; return whether the node is up."""
        node = self.nodes[index]
        if node.running is not None:
            node.inbox.put_connected(event)
            self.plan_turn(node)
        return node.running is not None

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
        booted.told_ticks = 0
        booted.is_paused = booted.is_turn_planned = False
        booted.is_reading = True
        self.count("world.booted")
        self.trace.add(self.agenda.now, node, f"boot {booted.life}")
        effects = opened.start()
        self._software.booted(booted)
        self.agenda.after(booted.tick_length, self._tick, (booted, booted.life))
        self._carry_out(booted, effects)

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
        if not is_core:
            self.crash(node.index, is_power=False)
        elif node.is_paused:
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
        crashed.inbox.clear()
        for medium in crashed.media:
            medium.crash(is_power=is_power)
        if is_power:
            crashed.boot_identity += 1
        self.on_down(node)

    def crash_between_effects(self, node: int, effects: int, *, is_power: bool) -> None:
        """Crash a node once it has carried out that many effects."""
        self.nodes[node].effects_left = effects
        self.nodes[node].is_power_next = is_power

    def wipe(self, node: int) -> None:
        """Empty the disks of a node that is down."""
        wiped = self.nodes[node]
        assert node in self.atlas
        if wiped.running is None and not wiped.is_refused:
            self.count("world.wiped")
            self.trace.add(self.agenda.now, node, "disk wiped")
            for medium in wiped.media:
                medium.wipe()

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
            self.plan_turn(resumed)

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
