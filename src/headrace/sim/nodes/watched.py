"""A machine that tells what it applied, and what it was before."""

from collections.abc import Callable, Iterable, Sequence

from headrace.partitions.machine import PartitionMachine
from headrace.ports.machine import Artifact, Piece, StateMachine
from headrace.ports.network import Buffer
from headrace.sim.nodes.history import Applied, facts_of
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader


class WatchedMachine:
    """Stands between consensus and a machine."""

    def __init__(
        self,
        machine: StateMachine,
        table: Callable[[], int | None],
        tell: Callable[[Applied, PartitionMachine | None], None],
        stamped: Callable[[int], None],
    ) -> None:
        self._machine = machine
        self._partition = machine if isinstance(machine, PartitionMachine) else None
        self._table = table
        self._tell = tell
        self._stamped = stamped

    def prepare(self, header: RequestHeader, body: Buffer, timestamp: int) -> Buffer:
        """Ask the machine, and tell of the stamp."""
        prepared = self._machine.prepare(header, body, timestamp)
        self._stamped(timestamp)
        return prepared

    def foresee(self, ops: Iterable[tuple[PrepareHeader, Buffer]]) -> None:
        """Tell the machine."""
        self._machine.foresee(ops)

    def admits(self, header: PrepareHeader, body: Buffer) -> bool:
        """Ask the machine."""
        return self._machine.admits(header, body)

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Apply, and tell."""
        machine, partition = self._machine, self._partition
        facts = () if partition is None else facts_of(partition)
        before, table = (machine.state_hash(), *facts), self._table()
        reply = machine.apply(header, body)
        applied = Applied(header, bytes(body), reply, before, table, machine.state_hash())
        self._tell(applied, partition)
        return reply

    def state_hash(self) -> int:
        """Ask the machine."""
        return self._machine.state_hash()

    def export(self) -> tuple[Piece, ...]:
        """Ask the machine."""
        return self._machine.export()

    def install(self, artifacts: Sequence[Piece]) -> None:
        """Tell the machine; what it then is shows before its next op."""
        self._machine.install(artifacts)

    def checkpoint(self) -> tuple[Artifact, ...]:
        """Ask the machine."""
        return self._machine.checkpoint()
