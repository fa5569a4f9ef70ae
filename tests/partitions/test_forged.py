"""States, tables and ops whose checksums are right and whose content a partition never makes.

They come from a peer with a bug, or from a file that another program wrote. Each is refused, and
nothing has changed.
"""

import pytest

from headrace.base.checksum import xxh3_64
from headrace.partitions.index import decode_index
from headrace.partitions.snapshot import decode_snapshot
from headrace.ports.machine import Artifact
from headrace.wire.errors import CorruptError
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader
from tests.partitions.stage import NAMESPACE, Stage, make_options, producer_batch
from tests.partitions.test_formats import FILE, Built, full
from tests.partitions.transfers import exported


def resealed(data: bytes, *changes: tuple[int, bytes], extra: bytes = b"") -> bytes:
    """Return bytes with changes at places, more bytes at their end, and their checksum."""
    covered = bytearray(data[:-8])
    for at, new in changes:
        covered[at : at + len(new)] = new
    covered += extra
    return bytes(covered) + xxh3_64(covered).to_bytes(8, "little")


def raised(data: bytes, at: int) -> tuple[int, bytes]:
    """Return the change that adds one to a number of 8 bytes."""
    return at, (int.from_bytes(data[at : at + 8], "little") + 1).to_bytes(8, "little")


def test_a_state_that_nobody_writes_is_refused() -> None:
    stage = full()
    [artifact] = stage.machine.checkpoint()
    data = artifact.data
    assert decode_snapshot(resealed(data), stage.options).marks
    with pytest.raises(CorruptError, match="version 3, known up to 2"):
        decode_snapshot(resealed(data, (8, bytes([3]))), stage.options)
    with pytest.raises(CorruptError, match="4 bytes left over"):
        decode_snapshot(resealed(data, extra=bytes(4)), stage.options)
    with pytest.raises(CorruptError, match="consumer of kind 9"):
        decode_snapshot(resealed(data, (len(data) - 8 - 16, bytes([9]))), stage.options)


def test_a_request_table_that_nobody_writes_is_refused() -> None:
    stage = Stage()
    stage.send(client=7, request=1)
    data = stage.table.encode()
    for changes, extra, text in (
        ([(0, b"HRDEDUP2")], b"", "begins with b'HRDEDUP2'"),
        ([(8, bytes([2]))], b"", "version 2"),
        ([(12, bytes([2]))], data[32:-8], "2 clients with bytes left, or one twice"),
        ([], bytes(3), "1 clients with bytes left"),
        ([(80, bytes([17]))], b"", "17 answers, limit 16"),
        ([(32, bytes(16))], b"", "client 0"),
        ([raised(data, 88)], b"", "an answer to 2, which is not applied"),
        ([raised(data, 104)], b"", "an answer of op 2 behind op 0, up to op 1"),
        ([(104, bytes(8))], b"", "an answer of op 0 behind op 0"),
    ):
        with pytest.raises(CorruptError, match=text):
            stage.table.install(resealed(data, *changes, extra=extra), stage.op)
    assert stage.table.encode() == data
    stage.table.install(resealed(data), stage.op)
    assert stage.table.encode() == data


def test_an_index_that_nobody_writes_is_refused() -> None:
    built = Built([(5, 80_000, 1)] * 8)
    data = built.encode()
    with pytest.raises(CorruptError, match="index of 0 entries"):
        built.decode(resealed(data, (12, bytes(4))))
    with pytest.raises(CorruptError, match="entries in"):
        built.decode(resealed(data, extra=bytes(32)))
    with pytest.raises(CorruptError, match="version 9"):
        built.decode(resealed(data, (8, bytes([9]))))
    elsewhere = Built([(5, 100_000, 1)] * 3 + [(5, 85_000, 1)] * 4).segment.pieces
    with pytest.raises(CorruptError, match="do not begin where the pieces do"):
        decode_index(
            data,
            FILE,
            elsewhere,
            length=built.segment.length,
            digest=built.segment.digest,
        )


def test_a_state_with_the_batches_of_another_partition_is_refused() -> None:
    """The state names pieces by their bytes, so these fit it; the batches say whose they are."""
    other = make_options(namespace=type(NAMESPACE)(NAMESPACE + 1))
    stage = Stage(other)
    stage.send(3)
    *pieces, state = exported(stage)
    told = resealed(state.data, (16, NAMESPACE.to_bytes(8, "little")))
    refuse_install([*pieces, Artifact(state.kind, state.frontier, told)], "batch of offset 0")


def test_a_state_with_fewer_messages_than_it_says_is_refused() -> None:
    stage = Stage()
    stage.send(3)
    *pieces, state = exported(stage)
    told = resealed(state.data, raised(state.data, 56), raised(state.data, 104))
    refuse_install(
        [*pieces, Artifact(state.kind, state.frontier, told)], "ends at offset 3, 4 wanted"
    )


def refuse_install(pieces: list[Artifact], text: str) -> None:
    receiver = Stage()
    before = receiver.machine.export()
    with pytest.raises(CorruptError, match=text):
        receiver.machine.install(pieces)
    assert receiver.machine.export() == before


def test_a_batch_that_does_not_follow_is_not_applied() -> None:
    """A primary ordered it without knowing what it orders."""
    late, early = Stage(), Stage()
    late.now += 1_000_000
    late.send(3)
    early.send(3)
    following = early.order(Operation.SEND_MESSAGES, bytearray(producer_batch()))
    with pytest.raises(CorruptError, match="batch of offset 3 where 0 follows"):
        Stage().apply(*following)
    with pytest.raises(CorruptError, match="batch of time"):
        late.apply(*following)
    assert late.machine.next_offset == 3
    early.apply(*following)
    assert early.machine.next_offset == 6


def test_an_op_of_the_metadata_is_none_of_a_partition() -> None:
    header = PrepareHeader(op=1, operation=Operation.CREATE_STREAM, group=NAMESPACE)
    assert not Stage().machine.admits(header, b"")
