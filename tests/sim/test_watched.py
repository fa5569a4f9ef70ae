"""A watched machine tells what it does, and does what it did."""

from headrace.sim.machine import AppendMachine, encode_append
from headrace.sim.watched import WatchedMachine
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader


class Checked(AppendMachine):
    """Counts how often it checked itself."""

    checks = 0

    def check(self) -> None:
        self.checks += 1


class Told:
    def __init__(self, machine: AppendMachine) -> None:
        self.machine = machine
        self.told: list[object] = []

    def stamped(self, timestamp: int) -> None:
        self.told.append(timestamp)

    def before(self) -> int:
        return self.machine.next_offset

    def applied(self, header: PrepareHeader, body: bytes, reply: bytes, before: int) -> None:
        self.told.append((header, body, reply, before, self.machine.next_offset))

    def installed(self) -> None:
        self.told.append("installed")


def test_all_that_a_machine_does_is_told() -> None:
    inner = AppendMachine()
    told = Told(inner)
    machine = WatchedMachine(inner, told)
    header = PrepareHeader(op=1, operation=Operation.CREATE_STREAM)
    body = encode_append(b"k", b"v")
    assert machine.prepare(RequestHeader(), body, 7) == body
    reply = machine.apply(header, body)
    machine.install(machine.checkpoint())
    assert told.told == [7, (header, body, reply, 0, 1), "installed"]
    assert machine.export() == inner.export()


def test_a_machine_that_can_checks_itself() -> None:
    inner = Checked()
    WatchedMachine(inner, Told(inner)).check()
    assert inner.checks == 1
    plain = AppendMachine()
    WatchedMachine(plain, Told(plain)).check()
