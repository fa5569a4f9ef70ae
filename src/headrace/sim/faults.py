"""Decides when something goes wrong, from a generator of its own.

Invariants: disks are damaged and wiped on nodes of the atlas only; where a group waits for no sync,
            power is cut on those nodes only, for a cut may shorten such a log.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from headrace.base.prng import Prng
from headrace.sim.agenda import SECOND, Agenda, draw_delay
from headrace.sim.network import Network
from headrace.wire.numbers import FrameKind

_HOUR = 3_600 * SECOND
_CLOCK_JUMPS = (-_HOUR, _HOUR, 87_600 * _HOUR, -200 * SECOND, 200 * SECOND)
_CUT_KINDS = (
    FrameKind.PREPARE,
    FrameKind.PREPARE_OK,
    FrameKind.NODE_HEARTBEAT,
    FrameKind.START_VIEW_CHANGE,
    FrameKind.DO_VIEW_CHANGE,
    FrameKind.START_VIEW,
    FrameKind.REQUEST_PREPARES,
    FrameKind.REPAIR_PREPARE,
    FrameKind.STATE_CHUNK,
    FrameKind.RECOVERY_REPORT,
)


class FaultOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Mean times between faults and lengths of them, in microseconds; a mean of 0 is never."""

    crash_mean: int = 0
    crash_all_mean: int = 0
    restart_mean: int = 300_000
    power: int = 50  # percent of crashes that are power cuts
    between_effects: int = 50  # percent of crashes that come between two effects of a step
    wipe: int = 0  # percent of restarts, in the atlas, that find an empty disk
    pause_mean: int = 0
    pause_length: int = 500_000
    partition_mean: int = 0
    partition_length: int = 1_000_000
    kind_mean: int = 0  # partition of one kind of frame
    clog_mean: int = 0
    clog_length: int = 500_000
    rot_mean: int = 0
    full_mean: int = 0
    full_length: int = 500_000
    clock_mean: int = 0
    depose_mean: int = 0  # a node that leads is cut off,
    depose_length: int = 0  # for so long at least
    part_kill_mean: int = 0  # one shard of a node of several is killed alone,
    part_pause_mean: int = 0  # or stands still,
    part_pause_length: int = 300_000
    lane_mean: int = 0  # or a lane between two is held, or takes nothing,
    lane_length: int = 100_000
    kill_at: int = 0  # one node is killed then, whatever else happens; 0 is never


class Victims(Protocol):
    """What faults may do to a world."""

    network: Network
    replica_count: int
    atlas: tuple[int, ...]
    is_power_for_all: bool

    def crash(self, node: int, *, is_power: bool) -> None:
        """Crash a node now."""

    def crash_between_effects(
        self, node: int, effects: int, *, is_power: bool, is_one: bool = False
    ) -> None:
        """Crash a node, or the part that carries them out, after that many effects."""

    def boot(self, node: int) -> None:
        """Start a node that is down."""

    def wipe(self, node: int) -> None:
        """Empty the disk of a node that is down."""

    def pause(self, node: int, part: int | None = None) -> None:
        """Stop a node, or one part of it, without ending it."""

    def part_count(self, node: int) -> int:
        """Return how many parts a node has."""

    def kill_part(self, node: int, part: int) -> None:
        """Kill one part of a node alone."""

    def disturb_lane(self, node: int, pair: tuple[int, int], until: int, *, is_full: bool) -> None:
        """Hold a lane between two parts of a node, or let it take nothing."""

    def resume(self, node: int) -> None:
        """Let it go on."""

    def rot(self, node: int) -> None:
        """Damage a disk."""

    def fill(self, node: int, *, is_full: bool) -> None:
        """Fill a disk, or free it."""

    def jump_clock(self, node: int, by: int) -> None:
        """Move a wall clock."""

    def is_up(self, node: int) -> bool:
        """Whether a node runs."""

    def leaders(self) -> list[int]:
        """Return the nodes that serve as primary of a group."""

    def count(self, event: str) -> None:
        """Count something that happened."""


class Faults:
    """Plans every kind of fault that the options name; ends when told."""

    def __init__(self, options: FaultOptions, prng: Prng, agenda: Agenda, victims: Victims) -> None:
        self._options = options
        self._agenda = agenda
        self._victims = victims
        self._is_over = False
        self._restarting: dict[int, None] = {}
        self._draws: dict[str, Prng] = {}
        for name, mean, strike in (
            ("crash", options.crash_mean, self._crash),
            ("crash_all", options.crash_all_mean, self._crash_all),
            ("pause", options.pause_mean, self._pause),
            ("partition", options.partition_mean, self._partition),
            ("kind", options.kind_mean, self._cut_kind),
            ("clog", options.clog_mean, self._clog),
            ("rot", options.rot_mean, self._rot),
            ("full", options.full_mean, self._fill),
            ("clock", options.clock_mean, self._jump_clock),
        ):
            draws = self._draws[name] = prng.fork(name)
            if mean:
                self._plan((draws, mean, strike))
        self._restarts = prng.fork("restart")
        if options.kill_at:
            agenda.after(options.kill_at, self._kill, prng.fork("kill"))
        if options.depose_mean:
            self._plan_deposing(prng.fork("depose"))
        for name, mean, strike in (  # behind all others, whose draws they do not change
            ("part_kill", options.part_kill_mean, self._kill_part),
            ("part_pause", options.part_pause_mean, self._pause_part),
            ("lane", options.lane_mean, self._disturb_lane),
        ):
            if mean:
                self._plan((prng.fork(name), mean, strike))

    def end(self) -> None:
        """Let nothing more go wrong."""
        self._is_over = True

    def node_down(self, node: int) -> None:
        """Plan the restart of a node that crashed, for whatever reason."""
        if node not in self._restarting and not self._is_over:
            self._restarting[node] = None
            delay = draw_delay(self._restarts, self._options.restart_mean)
            self._agenda.after(delay, self._restart, node)

    def _plan(self, argument: tuple[Prng, int, Callable[[Prng], None]]) -> None:
        self._agenda.after(draw_delay(argument[0], argument[1]), self._strike, argument)

    def _strike(self, argument: tuple[Prng, int, Callable[[Prng], None]]) -> None:
        if not self._is_over:
            argument[2](argument[0])
            self._plan(argument)

    def _draw_node(self, prng: Prng) -> int:
        return prng.below(self._victims.replica_count)

    def _is_power(self, prng: Prng, node: int) -> bool:
        wanted = prng.below(100) < self._options.power
        return wanted and (self._victims.is_power_for_all or node in self._victims.atlas)

    def _crash(self, prng: Prng) -> None:
        node = self._draw_node(prng)
        is_power = self._is_power(prng, node)
        if prng.below(100) < self._options.between_effects:
            effects = prng.below(12)
            self._victims.crash_between_effects(node, effects, is_power=is_power)
        else:
            self._victims.crash(node, is_power=is_power)

    def _kill(self, prng: Prng) -> None:
        if not self._is_over:
            self._victims.crash(self._draw_node(prng), is_power=False)

    def _crash_all(self, prng: Prng) -> None:
        is_power = prng.below(100) < self._options.power and self._victims.is_power_for_all
        for node in range(self._victims.replica_count):
            self._victims.crash(node, is_power=is_power)

    def _restart(self, node: int) -> None:
        self._restarting.pop(node, None)
        if self._is_over:
            return
        if node in self._victims.atlas and self._restarts.below(100) < self._options.wipe:
            self._victims.wipe(node)
        self._victims.boot(node)
        self._victims.network.replay(node)

    def _pause(self, prng: Prng) -> None:
        node = self._draw_node(prng)
        if self._victims.is_up(node):
            self._victims.pause(node)
            length = draw_delay(prng, self._options.pause_length)
            self._agenda.after(length, self._victims.resume, node)

    def _draw_part(self, prng: Prng) -> tuple[int, int]:
        node = self._draw_node(prng)
        return node, prng.below(self._victims.part_count(node))

    def _kill_part(self, prng: Prng) -> None:
        node, part = self._draw_part(prng)
        if prng.below(100) < self._options.between_effects:
            effects = prng.below(12)
            self._victims.crash_between_effects(node, effects, is_power=False, is_one=True)
        else:
            self._victims.kill_part(node, part)

    def _pause_part(self, prng: Prng) -> None:
        node, part = self._draw_part(prng)
        if self._victims.is_up(node):
            self._victims.pause(node, part)
            length = draw_delay(prng, self._options.part_pause_length)
            self._agenda.after(length, self._victims.resume, node)

    def _disturb_lane(self, prng: Prng) -> None:
        node, sender = self._draw_part(prng)
        if prng.chance(1, 2):
            sender = 0  # It feeds all others.
        count = self._victims.part_count(node)
        pair = (sender, (sender + prng.between(1, count - 1)) % count)
        until = self._agenda.now + draw_delay(prng, self._options.lane_length)
        self._victims.disturb_lane(node, pair, until, is_full=prng.chance(1, 2))

    def _partition(self, prng: Prng) -> None:
        count = self._victims.replica_count
        nodes = list(range(count))
        prng.shuffle(nodes)
        sizes = (1, count // 2, prng.below(count) + 1)
        side = nodes[: prng.choice(sizes)]
        rest = [node for node in nodes if node not in side]
        links = [(a, b) for a in side for b in rest]
        if prng.chance(1, 2):  # Symmetric; else only one side hears the other (NW3).
            links += [(b, a) for a, b in links]
        elif prng.chance(1, 2):
            links = [(b, a) for a, b in links]
        self._victims.network.cut(links)
        self._agenda.after(draw_delay(prng, self._options.partition_length), self._heal, None)

    def _heal(self, _: None) -> None:
        self._victims.network.heal()

    def _cut_kind(self, prng: Prng) -> None:
        self._victims.network.cut_kind(prng.choice(_CUT_KINDS))
        self._agenda.after(draw_delay(prng, self._options.partition_length), self._heal, None)

    def _clog(self, prng: Prng) -> None:
        link = (self._draw_node(prng), self._draw_node(prng))
        until = self._agenda.now + draw_delay(prng, self._options.clog_length)
        self._victims.network.clog(link, until)

    def _rot(self, prng: Prng) -> None:
        if self._victims.atlas:
            self._victims.rot(prng.choice(self._victims.atlas))

    def _fill(self, prng: Prng) -> None:
        node = self._draw_node(prng)
        self._victims.fill(node, is_full=True)
        self._agenda.after(draw_delay(prng, self._options.full_length), self._free, node)

    def _free(self, node: int) -> None:
        self._victims.fill(node, is_full=False)

    def _jump_clock(self, prng: Prng) -> None:
        self._victims.jump_clock(self._draw_node(prng), prng.choice(_CLOCK_JUMPS))

    def _plan_deposing(self, prng: Prng) -> None:
        self._agenda.after(draw_delay(prng, self._options.depose_mean), self._depose, prng)

    def _depose(self, prng: Prng) -> None:
        """Cut off a node that leads, long enough that the others go on without it.

        Clients still reach such a node. It must not tell them as current what the others have
        changed by then (O6.2), and by chance alone hardly any run comes to that.
        """
        if self._is_over:
            return
        leaders = self._victims.leaders()
        if leaders:
            self._victims.count("world.deposed")
            self._victims.network.isolate([prng.choice(leaders)])
        length = self._options.depose_length
        self._agenda.after(prng.between(length, 2 * length), self._end_deposing, prng)

    def _end_deposing(self, prng: Prng) -> None:
        if not self._is_over:
            self._victims.network.heal()
            self._plan_deposing(prng)
