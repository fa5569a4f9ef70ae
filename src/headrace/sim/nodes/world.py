"""One seed, one world of whole nodes: a cluster, its clients, and faults.

A run has four phases. In the first, clients ask and faults strike. In the second, a core of nodes
is healed and must settle: every request answered, all replicas level. In the third, replicas are
compared byte for byte and a client reads everything that was ever committed and is retained. In the
fourth, the core is stopped cleanly, loses its power, starts again, and is read once more.
"""

from collections.abc import Callable

import msgspec

from headrace.base.prng import Prng
from headrace.sim.agenda import MILLISECOND, SECOND, Agenda
from headrace.sim.faults import Faults
from headrace.sim.network import NetworkOptions
from headrace.sim.nodes import audit
from headrace.sim.nodes.actions import Board
from headrace.sim.nodes.clients import Client, Joined
from headrace.sim.nodes.cluster import WALL_START, Cluster
from headrace.sim.nodes.host import Host
from headrace.sim.nodes.options import NodeOptions
from headrace.sim.outcome import Outcome, Report, judge_probes
from headrace.sim.trace import Trace
from headrace.sim.violation import SimViolationError
from headrace.vsr.quorum import quorums_of
from headrace.wire.errors import CorruptError, DecodeError, RefusedError, RemoteError

_LOOK = 50 * MILLISECOND
_LIVENESS_REQUESTS = 3  # of each client, so that the healed core shows that it works
_READING_LIMIT = 30 * SECOND
_STOP_LIMIT = 20 * SECOND
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


class NodeWorld:
    """A whole cluster and what surrounds it."""

    def __init__(self, options: NodeOptions, tell: Callable[[str], None] | None = None) -> None:
        prng = Prng(options.seed)
        self.options = options
        self.agenda = Agenda()
        self.trace = Trace(tell)
        self.cluster = Cluster(options, prng, self.agenda, self.trace, self._node_down)
        self._board = Board(options.workload)
        self.clients = self._make_clients(prng.fork("workload"))
        self._faults = Faults(options.faults, prng.fork("faults"), self.agenda, self.cluster)

    def _node_down(self, node: int) -> None:
        self._faults.node_down(node)

    def _make_clients(self, prng: Prng) -> list[Client]:
        targets = tuple(range(self.options.replica_count))
        joined = Joined(
            agenda=self.agenda,
            links=self.cluster.links,
            checkers=self.cluster.checkers,
            board=self._board,
            is_electing=self.cluster.is_electing,
            reign_of=self.cluster.reign_of,
            is_unreadable=self.cluster.is_unreadable,
        )
        return [
            Client(index, prng.fork("client"), targets, joined)
            for index in range(self.options.workload.client_count)
        ]

    # Running

    def run(self) -> Report:
        """Run all phases; tell what came of it."""
        try:
            for host in self.cluster.hosts:
                self.cluster.boot(host.index)
            outcome, reason = self._run_phases()
            self._judge_registers()
            return self._report(outcome, reason)
        except SimViolationError as violation:
            return self._report(Outcome.VIOLATION, str(violation))
        except _CRASHES as error:
            return self._report(Outcome.VIOLATION, f"crashed: {_where(error)}")

    def _judge_registers(self) -> None:
        """Check what clients were told of offsets and names, and given of groups."""
        checkers = self.cluster.checkers
        witness = checkers.witness
        for client in self.clients:
            asked = client.outstanding
            if asked is not None and not asked.is_replay:
                for _ in range(1 + asked.open_count):
                    witness.unanswered(asked.action, asked.invoked)
        checkers.count("register.calls", witness.registers.check())
        checkers.count("register.read_met_change", witness.registers.meetings())
        checkers.count("group.served", checkers.ownership.check())

    def _run_phases(self) -> tuple[Outcome, str]:
        while self.agenda.now < self.options.safety_limit and not self._is_enough():
            if not self._run_until(self.agenda.now + _LOOK):
                return Outcome.LIVENESS, "event budget spent: livelock"
        core = self._heal()
        reason = self._settle(core, self.options.liveness_limit)
        if reason:
            return self._judge_halt(core, reason)
        is_empty = self.cluster.checkers.applied_count == 0 or not self.cluster.fault_count
        reason = self._read_all(core)
        if not reason and not (self.options.replica_count == 1 and self.options.atlas):
            reason = self._stop_and_start(core) or self._read_all(core)
        if reason:
            return Outcome.LIVENESS, reason
        if is_empty:
            return Outcome.EMPTY, "nothing was committed, or nothing went wrong"
        return Outcome.PASS, ""

    def _read_all(self, core: list[Host]) -> str:
        """Compare the nodes, and have a client read everything; say why that does not end."""
        audit.compare(core, self.cluster.checkers)
        self.clients[0].follow(
            audit.reading(core, self.cluster.checkers, self.options.sizes.piece_bytes)
        )
        reason = self._settle(core, _READING_LIMIT)
        return reason and f"reading: {reason}"

    def _stop_and_start(self, core: list[Host]) -> str:
        """Stop the core cleanly, cut its power and start it: nothing may be gone (PR11)."""
        for host in core:
            self.cluster.stop(host.index)
        until = self.agenda.now + _STOP_LIMIT
        while not all(host.shard is not None and host.shard.is_stopped for host in core):
            if self.agenda.now > until or not self._run_until(self.agenda.now + _LOOK):
                return "stop: not all nodes have stopped"
        for host in core:
            self.cluster.crash(host.index, is_power=True, is_clean=True)
        for host in core:
            self.cluster.boot(host.index)
        for client in self.clients:
            client.grant(1)
        reason = self._settle(core, self.options.liveness_limit)
        return reason and f"after the stop: {reason}"

    def _settle(self, core: list[Host], limit: int) -> str:
        """Run until the core is level and everything is in its segment; say why not."""
        until = self.agenda.now + limit
        reason = "nothing ran"
        while self.agenda.now < until:
            if not self._run_until(self.agenda.now + _LOOK):
                return f"event budget spent: livelock; {reason}"
            reason = audit.why_not_settled(self.clients, core)
            if not reason:
                reason = audit.why_not_stored(core, self.cluster.checkers)
            if not reason:
                return ""
        return f"core {[host.index for host in core]}: {reason}"

    def _judge_halt(self, core: list[Host], reason: str) -> tuple[Outcome, str]:
        if self.options.replica_count == 1 and core[0].fence is not None:
            self.cluster.count("world.halted_fenced")
            return Outcome.PASS, f"halted, fenced: {reason}"
        election = quorums_of(self.options.replica_count).view_change
        if audit.lacks_voters(core, election):
            self.cluster.count("world.halted_without_voters")
            return Outcome.PASS, f"halted without voters: {reason}"
        return Outcome.LIVENESS, reason

    def _is_enough(self) -> bool:
        """Whether all is answered; as long as nothing went wrong, clients are given more to ask."""
        if not all(client.is_done for client in self.clients):
            return False
        if self.cluster.fault_count:
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
        self._board.wall = WALL_START + agenda.now
        return True

    def _heal(self) -> list[Host]:
        """Choose the core and let nothing go wrong in it; nodes outside stay down."""
        self._faults.end()
        self.cluster.network.heal(NetworkOptions(delay_min=100, delay_mean=300, is_ordered=True))
        self.cluster.links.options = msgspec.structs.replace(self.cluster.links.options, breaks=0)
        core = self._choose_core()
        self.trace.add(self.agenda.now, -1, f"healed, core {core}")
        for host in self.cluster.hosts:
            self.cluster.heal_host(host, is_core=host.index in core)
        self.cluster.network.isolate(core)
        for client in self.clients:
            client.targets = tuple(core)
            client.grant(_LIVENESS_REQUESTS)
        return [self.cluster.hosts[index] for index in core]

    def _choose_core(self) -> list[int]:
        """Give the nodes that are healed: half the time no more than an election needs."""
        everyone = [host.index for host in self.cluster.hosts]
        quorum = quorums_of(self.options.replica_count).view_change
        sound = [
            host.index
            for host in self.cluster.hosts
            if host.index not in self.options.atlas and host.may_vote()
        ]
        if (
            self.options.replica_count < 3
            or len(sound) < quorum
            or self.cluster.schedule.chance(1, 2)
        ):
            return everyone
        self.cluster.schedule.shuffle(sound)
        return sorted(sound[:quorum])

    # The report

    def _report(self, outcome: Outcome, reason: str) -> Report:
        cluster = self.cluster
        for host in cluster.hosts:
            cluster.collect(host)
        outcome, reason = judge_probes(outcome, reason, cluster.probes)
        return Report(
            seed=self.options.seed,
            outcome=outcome,
            reason=reason,
            trace_hash=self.trace.digest,
            steps=self.trace.count,
            committed=cluster.checkers.applied_count,
            virtual_micros=self.agenda.now,
            events={**cluster.events(), **cluster.checkers.events},
            probes=cluster.probes,
            last=tuple(self.trace.last()),
        )


def _nothing(_: None) -> None:
    """Mark a moment at which the loop looks around."""


def _where(error: BaseException) -> str:
    """Name the innermost places of an error, so that a seed can be told from another."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return f"{type(error).__name__}: {error} in " + " < ".join(reversed(places[-6:]))
