"""The last phases of a run of whole nodes.

Replicas are compared byte for byte and a client reads everything that was ever committed and is
retained. Then the core is stopped cleanly, loses its power, starts again, and is read once more.
"""

from collections.abc import Sequence

from headrace.ports.host import StopWanted
from headrace.sim.agenda import SECOND
from headrace.sim.nodes import audit
from headrace.sim.nodes.checkers import Checkers
from headrace.sim.nodes.clients import Client
from headrace.sim.nodes.options import NodeOptions
from headrace.sim.nodes.running import Host, NodeRunning
from headrace.sim.world import World

_READING_LIMIT = 30 * SECOND
_STOP_LIMIT = 20 * SECOND


class Ending:
    """What is done with a core that has settled."""

    def __init__(self, options: NodeOptions, clients: Sequence[Client], checkers: Checkers) -> None:
        self._options = options
        self._clients = clients
        self._checkers = checkers

    def finish(self, world: World[NodeRunning], core: Sequence[Host]) -> str:
        """Do all of it; return why it does not end, or nothing."""
        reason = self.read_all(world, core)
        if reason or (self._options.replica_count == 1 and self._options.atlas):
            return reason
        return self._stop_and_start(world, core) or self.read_all(world, core)

    def read_all(self, world: World[NodeRunning], core: Sequence[Host]) -> str:
        """Compare the nodes, and have a client read everything; return why that does not end."""
        audit.compare(core, self._checkers)
        script = audit.reading(core, self._checkers, self._options.sizes.piece_bytes)
        self._clients[0].follow(script)
        reason = world.settle(core, _READING_LIMIT)
        return reason and f"reading: {reason}"

    def _stop_and_start(self, world: World[NodeRunning], core: Sequence[Host]) -> str:
        """Stop the core cleanly, cut its power and start it: nothing may be gone (PR11)."""
        cluster = world.cluster
        for host in core:
            world.trace.add(world.agenda.now, host.index, "stop wanted")
            for pump in host.pumps:
                cluster.completed(host.index, StopWanted(), pump.index)
        if not world.run_while(lambda: not all(map(_is_stopped, core)), _STOP_LIMIT):
            return "stop: not all nodes have stopped"
        for host in core:
            cluster.crash(host.index, is_power=True, is_clean=True)
        for host in core:
            cluster.boot(host.index)
        for client in self._clients:
            client.grant(1)
        reason = world.settle(core, self._options.liveness_limit)
        return reason and f"after the stop: {reason}"


def judge_registers(clients: Sequence[Client], checkers: Checkers) -> None:
    """Check what clients were told of offsets and names, and given of groups."""
    witness = checkers.witness
    for client in clients:
        asked = client.outstanding
        if asked is not None and not asked.is_replay:
            for _ in range(1 + asked.open_count):
                witness.unanswered(asked.action, asked.invoked)
    checkers.count("register.calls", witness.registers.check())
    checkers.count("register.read_met_change", witness.registers.meetings())
    checkers.count("group.served", checkers.ownership.check())


def _is_stopped(host: Host) -> bool:
    return host.running is not None and all(
        running.shard.is_stopped for running in host.running.shards
    )
