"""Tells the checkers of whole nodes what one machine does."""

from headrace.metadata.machine import MetadataMachine
from headrace.partitions.machine import PartitionMachine
from headrace.ports.machine import StateMachine
from headrace.sim.nodes.checkers import Checkers
from headrace.sim.nodes.history import Applied, Incarnation, facts_of
from headrace.sim.nodes.options import NodeOptions
from headrace.sim.nodes.running import Host, ShardRunning, owners_of, partitions_of, purges_of
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader

_Before = tuple[tuple[object, ...], int | None]  # what the machine shows, and its request table


class Watcher:
    """Of one machine in one life of a node."""

    def __init__(
        self,
        checkers: Checkers,
        host: Host,
        running: ShardRunning,
        key: Incarnation,
        machine: StateMachine,
        options: NodeOptions,
    ) -> None:
        self._checkers = checkers
        self._host = host
        self._life = host.life
        self._running = running
        self._key = key
        self._machine = machine
        self._partition = machine if isinstance(machine, PartitionMachine) else None
        self._is_canary = options.canary

    def stamped(self, timestamp: int) -> None:
        """Take note of the stamp of a request that was prepared."""
        self._checkers.ages.stamped(timestamp)

    def before(self) -> _Before:
        """Look at the machine before an op; what was installed shows here."""
        facts = () if self._partition is None else facts_of(self._partition)
        return (self._machine.state_hash(), *facts), self._running.table_of(self._key)

    def applied(self, header: PrepareHeader, body: bytes, reply: bytes, before: _Before) -> None:
        """Check one application, and who owns what after one of metadata."""
        assert self._host.life == self._life, "a machine of an earlier life was used"
        checkers, machine = self._checkers, self._machine
        applied = Applied(header, body, reply, *before, machine.state_hash())
        if self._is_canary and checkers.applied_count > 20 and reply:
            applied = applied._replace(state_hash=applied.state_hash ^ 1, reply=b"\xff" * 24)
        is_first = checkers.applied(self._host.index, self._key, applied, self._partition)
        if is_first and isinstance(machine, MetadataMachine):
            moment = checkers.witness.registers.moment()
            checkers.ownership.assigned(header.op, moment, owners_of(machine.state))
            checkers.presence.changed(header.op, partitions_of(machine.state))
            if header.operation == Operation.PURGE_TOPIC:
                checkers.purges.decided(header.op, purges_of(machine.state))

    def installed(self) -> None:
        """Need not know: what the machine then is shows before its next op."""
