"""Histories of registers are judged one by one, up to their ends."""

import pytest

from headrace.sim.nodes import registers as under_test
from headrace.sim.nodes.linearizable import Call, Effect
from headrace.sim.nodes.registers import OFFSET, Registers
from headrace.sim.violation import SimViolationError

KEY = (OFFSET, "t0", "consumer 1", "0")
NAME = ("topic", "t0")


def tell(registers: Registers, key: tuple[str, ...], effect: Effect, value: int | None) -> None:
    invoked = registers.moment()
    registers.add(key, Call(invoked, registers.moment(), effect, value))


def test_registers_are_judged_apart() -> None:
    registers = Registers()
    tell(registers, KEY, Effect.SET, 5)
    tell(registers, NAME, Effect.MAKE, 9)
    tell(registers, KEY, Effect.GET, 5)
    tell(registers, NAME, Effect.GET, 9)
    assert registers.check() == 4


@pytest.mark.parametrize(("key", "code"), [(KEY, "H10"), (NAME, "H12")])
def test_a_history_that_cannot_be_is_told_with_its_calls(key: tuple[str, ...], code: str) -> None:
    registers = Registers()
    tell(registers, key, Effect.SET, 5)
    tell(registers, key, Effect.GET, 6)
    tell(registers, key, Effect.SET, 7)
    with pytest.raises(SimViolationError, match=code) as caught:
        registers.check()
    assert caught.value.facts["calls"] == ["1-2 set 5", "3-4 get 6"]


def test_a_purge_concerns_every_offset_of_its_topic_and_no_name() -> None:
    registers = Registers()
    for key in (KEY, NAME):
        tell(registers, key, Effect.SET, 5)
    invoked = registers.moment()
    registers.add_all((OFFSET, "t0"), Call(invoked, registers.moment(), Effect.CLEAR))
    tell(registers, NAME, Effect.GET, 5)
    tell(registers, KEY, Effect.GET, None)
    registers.check()
    tell(registers, KEY, Effect.GET, 5)
    with pytest.raises(SimViolationError, match="H10"):
        registers.check()


def test_what_comes_after_the_end_is_not_judged() -> None:
    registers = Registers()
    tell(registers, KEY, Effect.SET, 5)
    invoked = registers.moment()
    registers.end((OFFSET, "t0"))
    registers.add(KEY, Call(invoked, registers.moment(), Effect.SET, 6))
    tell(registers, KEY, Effect.GET, 77)
    registers.check()
    assert registers.calls_of(KEY) == [
        Call(1, 2, Effect.SET, 5),
        Call(3, None, Effect.SET, 6),
    ]


def test_what_could_not_be_judged_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    registers = Registers()
    tell(registers, KEY, Effect.SET, 5)
    monkeypatch.setattr(under_test, "STEPS_MAX", 0)
    with pytest.raises(SimViolationError, match="not judged"):
        registers.check()
