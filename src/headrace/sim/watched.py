"""A machine that reports what it applied, and the state before."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from headrace.ports.machine import Artifact, Piece, StateMachine
from headrace.ports.network import Buffer
from headrace.sim.checks import check_all
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader


class Watcher(Protocol):
    """The receiver of the reports."""

    def stamped(self, timestamp: int) -> None:
        """Take note of the stamp of a request that was prepared."""

    def before(self) -> Any:  # noqa: ANN401  # whatever `applied` is given back
        """Look at the machine before an op."""

    def applied(self, header: PrepareHeader, body: bytes, reply: bytes, before: Any) -> None:  # noqa: ANN401
        """Take note of an op, and of what was seen before it."""

    def installed(self) -> None:
        """Take note that the state was replaced."""


class WatchedMachine:
    """Stands between consensus and a machine."""

    def __init__(self, machine: StateMachine, watcher: Watcher) -> None:
        self._machine = machine
        self._watcher = watcher

    def prepare(self, header: RequestHeader, body: Buffer, timestamp: int) -> Buffer:
        """Pass it on, and report the stamp."""
        prepared = self._machine.prepare(header, body, timestamp)
        self._watcher.stamped(timestamp)
        return prepared

    def foresee(self, ops: Iterable[tuple[PrepareHeader, Buffer]]) -> None:
        """Pass it on."""
        self._machine.foresee(ops)

    def admits(self, header: PrepareHeader, body: Buffer) -> bool:
        """Pass it on."""
        return self._machine.admits(header, body)

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Apply, and report it."""
        before = self._watcher.before()
        reply = self._machine.apply(header, body)
        self._watcher.applied(header, bytes(body), reply, before)
        return reply

    def state_hash(self) -> int:
        """Pass it on."""
        return self._machine.state_hash()

    def export(self) -> tuple[Piece, ...]:
        """Pass it on."""
        return self._machine.export()

    def install(self, artifacts: Sequence[Piece]) -> None:
        """Install, and report that ops were skipped."""
        self._machine.install(artifacts)
        self._watcher.installed()

    def checkpoint(self) -> tuple[Artifact, ...]:
        """Pass it on."""
        return self._machine.checkpoint()

    def check(self) -> None:
        """Have the machine check itself, if it can."""
        check_all((self._machine,))
