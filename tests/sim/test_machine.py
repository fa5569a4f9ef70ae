"""The append machine: replies, pieces, transfer of state."""

import pytest

from headrace.ports.machine import Artifact
from headrace.sim.machine import RECORDS, AppendMachine, encode_append
from headrace.wire.errors import Code
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_rejection


def append(machine: AppendMachine, number: int) -> bytes:
    header = PrepareHeader(op=number + 1, operation=Operation.CREATE_STREAM)
    return machine.apply(header, encode_append(b"key-%d" % (number % 3), b"v" * (number * 7 % 90)))


def filled(count: int) -> AppendMachine:
    machine = AppendMachine()
    for number in range(count):
        append(machine, number)
    return machine


def test_offsets_rise_from_zero() -> None:
    machine = AppendMachine()
    replies = [append(machine, number) for number in range(5)]
    assert replies == [RESULT_OK + number.to_bytes(8, "little") for number in range(5)]


def test_what_is_no_append_changes_nothing() -> None:
    machine = filled(3)
    before = machine.export()
    header = PrepareHeader(op=4, operation=Operation.CREATE_STREAM)
    assert machine.apply(header, b"\xff\xff") == encode_rejection(Code.INVALID_FORMAT)
    assert machine.apply(PrepareHeader(op=5, operation=Operation.DELETE_STREAM), b"") == RESULT_OK
    assert machine.export() == before


def test_full_pieces_never_change() -> None:
    machine = filled(60)
    before = [piece for piece in machine.export() if piece.kind == RECORDS]
    assert len(before) >= 4
    for number in range(60, 90):
        append(machine, number)
    assert machine.export()[: len(before) - 1] == tuple(before[:-1])


@pytest.mark.parametrize("count", [0, 1, 40, 90])
def test_an_installed_state_goes_on_as_the_original(count: int) -> None:
    machine, other = filled(count), filled(7)
    other.install(machine.export())
    assert other.export() == machine.export()
    for number in range(count, count + 20):
        assert append(other, number) == append(machine, number)
    assert other.state_hash() == machine.state_hash()
    assert other.export() == machine.checkpoint()


def test_pieces_with_a_gap_or_without_their_table_are_no_state() -> None:
    pieces = filled(60).export()
    for wrong in (pieces[1:], pieces[:1] + pieces[2:], pieces[:-1], pieces[:2] + pieces[-1:]):
        with pytest.raises(AssertionError):
            AppendMachine().install(wrong)
    cut = Artifact(pieces[0].kind, pieces[0].frontier, pieces[0].data + b"\0" * 14)
    with pytest.raises(AssertionError):
        AppendMachine().install((cut, *pieces[1:]))


def test_a_wrong_key_table_shows_in_the_hash() -> None:
    machine, other = filled(9), filled(9)
    other._keys[b"key-0"] = 1
    append(machine, 9)
    append(other, 9)
    assert machine.state_hash() != other.state_hash()
