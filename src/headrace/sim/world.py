"""One seed, one world: nodes, disks, network, clients and faults over one agenda.

A run has phases. In the first, clients ask and faults strike until every request is answered or a
limit is reached; checkers watch every application, every frame and every tick. In the second, a
core of nodes is healed, nothing goes wrong in it any more, and it must settle: every request
answered, every group level. Then the workload judges what the core holds.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol

from headrace.base.prng import Prng
from headrace.sim.agenda import MILLISECOND, Agenda
from headrace.sim.cluster import Cluster
from headrace.sim.convergence import choose_core, lacks_voters, states, why_not_level
from headrace.sim.faults import Faults
from headrace.sim.network import NetworkOptions
from headrace.sim.node import Node
from headrace.sim.options import RunOptions
from headrace.sim.outcome import Outcome, Report, judge_probes
from headrace.sim.software import R, Software
from headrace.sim.trace import Trace
from headrace.sim.violation import SimViolationError
from headrace.wire.errors import CorruptError, DecodeError, RefusedError, RemoteError

_LOOK = 50 * MILLISECOND
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


class Client(Protocol):
    """What a run asks of a client."""

    targets: tuple[int, ...]

    @property
    def is_done(self) -> bool:
        """Whether everything asked for was answered."""

    @property
    def waits_for(self) -> str:
        """What it waits for, in a few words."""

    def grant(self, requests: int) -> None:
        """Let the client ask so often from now on, whatever it still meant to do."""


class Workload(Software[R], Protocol[R]):
    """Everything in which one simulation differs from another."""

    @property
    def clients(self) -> Sequence[Client]:
        """All clients."""

    @property
    def liveness_requests(self) -> int:
        """How often each client asks a healed core, so that it shows that it works."""

    @property
    def applied_count(self) -> int:
        """How many ops were committed, as far as any node has applied them."""

    @property
    def events(self) -> dict[str, int]:
        """What its clients and checkers counted."""

    def join(self, cluster: Cluster[R]) -> None:
        """Begin in a cluster that has no nodes yet."""

    def make_clients(self, prng: Prng) -> None:
        """Make the clients, once there are nodes."""

    def look(self) -> None:
        """Do what is due at every look of the loop."""

    def why_not_settled(self, core: Sequence[Node[R]]) -> str:
        """Return what a level core still lacks, or nothing."""

    def may_halt(self, core: Sequence[Node[R]]) -> str:
        """Return the mark of a reason for which this core need not settle, or nothing."""

    def finish(self, world: "World[R]", core: Sequence[Node[R]]) -> str:
        """Check what a settled core holds; return why that does not end, or nothing."""

    def judge(self) -> None:
        """Check all that clients were told, at the end of the run."""


class World(Generic[R]):
    """A whole cluster and what surrounds it."""

    def __init__(
        self,
        options: RunOptions,
        workload: Workload[R],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        prng = Prng(options.seed)
        self.options = options
        self.workload = workload
        self.agenda = Agenda()
        self.trace = Trace(tell)
        self.cluster = Cluster(options, prng, self.agenda, self.trace, workload)
        workload.join(self.cluster)
        self.cluster.make_nodes(prng)
        workload.make_clients(prng)
        self._faults = Faults(options.faults, prng.fork("faults"), self.agenda, self.cluster)
        self.cluster.on_down = self._faults.node_down

    def run(self) -> Report:
        """Run all phases; return what came of it."""
        try:
            for node in self.cluster.nodes:
                self.cluster.boot(node.index)
            outcome, reason = self._run_phases()
            self.workload.judge()
            return self._report(outcome, reason)
        except SimViolationError as violation:
            return self._report(Outcome.VIOLATION, str(violation))
        except _CRASHES as error:
            return self._report(Outcome.VIOLATION, f"crashed: {_where(error)}")

    def _run_phases(self) -> tuple[Outcome, str]:
        while self.agenda.now < self.options.safety_limit and not self._is_enough():
            if not self.run_until(self.agenda.now + _LOOK):
                return Outcome.LIVENESS, "event budget spent: livelock"
        core = self._heal()
        reason = self.settle(core, self.options.liveness_limit)
        if reason:
            return self._judge_halt(core, reason)
        is_empty = self.workload.applied_count == 0 or not self.cluster.fault_count
        reason = self.workload.finish(self, core)
        if reason:
            return Outcome.LIVENESS, reason
        if is_empty:
            return Outcome.EMPTY, "nothing was committed, or nothing went wrong"
        return Outcome.PASS, ""

    def _is_enough(self) -> bool:
        """Whether all is answered; as long as nothing went wrong, clients are given more to ask."""
        if not all(client.is_done for client in self.workload.clients):
            return False
        if self.cluster.fault_count:
            return True
        for client in self.workload.clients:
            client.grant(self.workload.liveness_requests)
        return False

    def run_until(self, until: int) -> bool:
        """Run up to that time; return whether the budget of events lasted."""
        agenda, trace, events_max = self.agenda, self.trace, self.options.events_max
        agenda.after(until - agenda.now, _nothing, None)
        while agenda.now < until:
            agenda.run_next()
            if trace.count > events_max:
                return False
        self.workload.look()
        return True

    def run_while(self, is_wanted: Callable[[], bool], limit: int) -> bool:
        """Run as long as that holds; return whether it ended within the limit."""
        until = self.agenda.now + limit
        while is_wanted():
            if self.agenda.now > until or not self.run_until(self.agenda.now + _LOOK):
                return False
        return True

    def settle(self, core: Sequence[Node[R]], limit: int) -> str:
        """Run until the core is level and lacks nothing; return why it is not."""
        until = self.agenda.now + limit
        reason = "nothing ran"
        while self.agenda.now < until:
            if not self.run_until(self.agenda.now + _LOOK):
                reason = f"event budget spent: livelock; {reason}"
                break
            reason = self._why_not_settled(core)
            if not reason:
                return ""
        return f"core {[node.index for node in core]}: {reason}"

    def _why_not_settled(self, core: Sequence[Node[R]]) -> str:
        waiting = [client.waits_for for client in self.workload.clients if not client.is_done]
        if waiting:
            return f"{len(waiting)} clients wait, one for {waiting[0]}; {states(core)}"
        return why_not_level(core) or self.workload.why_not_settled(core)

    def _judge_halt(self, core: Sequence[Node[R]], reason: str) -> tuple[Outcome, str]:
        """Decide whether a core that does not settle had to."""
        mark = self.workload.may_halt(core)
        if not mark and lacks_voters(core, self.options.replica_count):
            mark = "world.halted_without_voters"
        if not mark:
            return Outcome.LIVENESS, reason
        self.cluster.count(mark)
        return Outcome.PASS, f"{mark}: {reason}"

    def _heal(self) -> list[Node[R]]:
        """Choose the core and let nothing go wrong in it; nodes outside stay down."""
        self._faults.end()
        cluster = self.cluster
        cluster.network.heal(NetworkOptions(delay_min=100, delay_mean=300, is_ordered=True))
        core = choose_core(cluster.nodes, cluster.atlas, cluster.schedule)
        self.trace.add(self.agenda.now, -1, f"healed, core {core}")
        for node in cluster.nodes:
            cluster.heal(node, is_core=node.index in core)
        cluster.network.isolate(core)
        for client in self.workload.clients:
            client.targets = tuple(core)
            client.grant(self.workload.liveness_requests)
        return [cluster.nodes[index] for index in core]

    def _report(self, outcome: Outcome, reason: str) -> Report:
        cluster = self.cluster
        for node in cluster.nodes:
            cluster.collect(node)
        outcome, reason = judge_probes(outcome, reason, cluster.probes)
        return Report(
            seed=self.options.seed,
            outcome=outcome,
            reason=reason,
            trace_hash=self.trace.digest,
            steps=self.trace.count,
            committed=self.workload.applied_count,
            virtual_micros=self.agenda.now,
            events={**cluster.events(), **self.workload.events},
            probes=dict(cluster.probes),
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
