"""A state that comes from another replica: what is fetched, what is ours, what is refused."""

from itertools import pairwise

import msgspec
import pytest

from headrace.partitions.gather import First, FromOffset
from headrace.ports.machine import Artifact, StoredPiece
from headrace.wire.batches import split_batches
from headrace.wire.errors import Code, CorruptError, RefusedError
from headrace.wire.replica.artifacts import ArtifactKind
from tests.partitions.stage import CONSUMER, Stage, make_options, rows
from tests.partitions.transfers import exported, fetch, offered

OPTIONS = make_options(segment_bytes=2500, piece_bytes=1000)


def source(batches: int = 12) -> Stage:
    stage = Stage(OPTIONS)
    for number in range(batches):
        stage.send(1 + number % 3)
    stage.store_offset(1, 5)
    return stage


def check_same(stage: Stage, receiver: Stage) -> None:
    assert receiver.machine.export() == stage.machine.export()
    assert receiver.machine.state_hash() == stage.machine.state_hash()
    stage.store()
    receiver.store()
    for segment in stage.machine._log.segments:
        assert receiver.files.logs[segment.file] == stage.files.logs[segment.file]
    receiver.forget_memory()
    offset = stage.machine.first_offset
    while offset < stage.machine.next_offset:
        polled = stage.poll(FromOffset(offset))
        assert rows(receiver.poll(FromOffset(offset))) == rows(polled)
        offset = polled.last_offset + 1


def test_pieces_are_cut_at_batches_and_named_by_their_bytes() -> None:
    stage = source()
    pieces = stage.machine.export()
    stage.store()
    stored = [piece for piece in pieces if isinstance(piece, StoredPiece)]
    assert len(stored) > len(stage.files.logs) > 1
    for piece in stored:
        assert piece.kind == ArtifactKind.SEGMENT_LOG
        fetch(piece, stage)
    by_file: dict[int, int] = {}
    for piece in stored:
        assert piece.position == by_file.get(piece.file.base_offset, 4096)
        by_file[piece.file.base_offset] = piece.position + piece.length
    lengths = {file.base_offset: len(data) for file, data in stage.files.logs.items()}
    assert by_file == lengths
    # A piece ends with the first batch that reaches its size.
    inner = [a for a, b in pairwise(stored) if a.file == b.file]
    assert inner
    for piece in inner:
        *_, last = split_batches(fetch(piece, stage).data)
        assert piece.length - len(last) < 1000 <= piece.length


def test_a_new_replica_takes_everything() -> None:
    stage, receiver = source(), Stage(OPTIONS)
    receiver.machine.install(exported(stage))
    check_same(stage, receiver)
    assert receiver.machine.stored_offset(CONSUMER, 1) == 5
    # It is durable with the next checkpoint, and a restart finds it.
    receiver.journal = list(stage.journal)
    receiver.op = stage.op
    receiver.checkpoint()
    receiver.restart()
    check_same(stage, receiver)
    assert receiver.send(2) == stage.send(2)


def test_a_lagging_replica_keeps_the_pieces_that_it_has() -> None:
    stage, receiver = source(), Stage(OPTIONS)
    for header, body in stage.journal[:8]:
        receiver.apply(header, body)
    pieces = offered(stage, receiver)
    kept = [piece for piece in pieces if isinstance(piece, StoredPiece)]
    assert 2 <= len(kept) < len(pieces) - 1
    receiver.machine.install(pieces)
    check_same(stage, receiver)


def test_pieces_that_still_wait_for_their_file_are_kept_too() -> None:
    stage, receiver = source(), Stage(OPTIONS)
    receiver.files.is_full = True
    for header, body in stage.journal[:8]:
        receiver.apply(header, body)
    pieces = offered(stage, receiver)
    receiver.settle()
    receiver.machine.install(pieces)
    receiver.settle()
    receiver.files.is_full = False
    receiver.shared.tick(1000)
    receiver.settle()
    check_same(stage, receiver)


def test_what_the_state_no_longer_has_goes_with_the_next_checkpoint() -> None:
    stage = source(20)
    receiver = Stage(OPTIONS)
    for header, body in stage.journal[:8]:
        receiver.apply(header, body)
    receiver.checkpoint()
    stage.store_offset(1, stage.machine.current_offset)
    stage.trim(stage.machine.current_offset)
    old = list(receiver.files.logs)
    receiver.machine.install(offered(stage, receiver))
    receiver.settle()
    assert receiver.files.removed == []
    receiver.journal, receiver.op = list(stage.journal), stage.op
    receiver.checkpoint()
    assert receiver.files.removed == old
    check_same(stage, receiver)


def test_a_purge_travels_with_the_state() -> None:
    stage, receiver = source(), Stage(OPTIONS)
    for header, body in stage.journal:
        receiver.apply(header, body)
    stage.purge(1)
    stage.send(2)
    stage.lose(2, 9)
    stage.send(1)
    receiver.machine.install(offered(stage, receiver))
    check_same(stage, receiver)
    assert (receiver.machine.history_epoch, receiver.machine.purge_generation) == (1, 1)
    assert receiver.machine.lost_ranges == ((2, 9),)


def test_a_state_that_would_rewind_is_refused() -> None:
    """PT-25."""
    early = source(6)
    receiver = Stage(OPTIONS)
    late = source(12)
    for header, body in late.journal:
        receiver.apply(header, body)
    before = receiver.machine.export()
    with pytest.raises(CorruptError, match="ours are"):
        receiver.machine.install(exported(early))
    receiver.purge(1)
    with pytest.raises(CorruptError, match="ours are"):
        receiver.machine.install(exported(late))
    assert receiver.machine.history_epoch == 1
    assert before != receiver.machine.export()


def test_a_state_before_our_last_purge_is_refused_however_long_it_is() -> None:
    """PT-25: both have begun one new history, and ours by a later purge."""
    stage, receiver = source(), source(2)
    stage.purge(3)
    stage.send(5)
    receiver.purge(4)
    with pytest.raises(CorruptError, match="ours are"):
        receiver.machine.install(offered(stage, receiver))
    assert receiver.machine.purge_generation == 4


def test_a_wrong_piece_is_refused_and_nothing_changes() -> None:
    """PT-24, DK10: a flip anywhere in a piece; a piece too few, too many, or another's."""
    stage, receiver = source(4), Stage(OPTIONS)
    receiver.send(1)
    good = exported(stage)
    before = receiver.machine.export()
    receiver.settle()

    def refused(pieces: list[Artifact]) -> None:
        with pytest.raises(CorruptError):
            receiver.machine.install(pieces)
        assert receiver.machine.export() == before
        assert receiver.machine.take_effects() == []

    for position in range(0, len(good[0].data), 5):
        data = bytearray(good[0].data)
        data[position] ^= 4
        refused([msgspec.structs.replace(good[0], data=bytes(data)), *good[1:]])
    state = good[-1]
    for position in range(len(state.data)):
        data = bytearray(state.data)
        data[position] ^= 4
        refused([*good[:-1], msgspec.structs.replace(state, data=bytes(data))])
    refused(good[1:])
    refused(good[:-1])
    refused([state])  # A checkpoint of our own comes before the files are open.
    refused([*good, state])
    refused([good[0], *good[:-1], Artifact(ArtifactKind.METADATA_SNAPSHOT, 0, b""), state])
    other = Stage(OPTIONS)
    other.send(2, 300)
    refused([exported(other)[0], *good])


def test_a_piece_of_ours_must_lie_where_the_state_has_it() -> None:
    stage, receiver = source(), Stage(OPTIONS)
    for header, body in stage.journal[:8]:
        receiver.apply(header, body)
    pieces = offered(stage, receiver)
    first = pieces[0]
    assert isinstance(first, StoredPiece)
    moved = msgspec.structs.replace(first, position=first.position + 1)
    with pytest.raises(CorruptError):
        receiver.machine.install([moved, *pieces[1:]])
    stranger = Stage(OPTIONS)
    with pytest.raises(CorruptError):  # A piece that it does not have at all.
        stranger.machine.install(pieces)


def test_a_state_of_another_partition_is_refused() -> None:
    stage = source()
    other = make_options(namespace=type(OPTIONS.namespace)(OPTIONS.namespace + 1))
    with pytest.raises(CorruptError):
        Stage(other).machine.install(exported(stage))
    fresh = Stage(other, is_open=False)
    with pytest.raises(CorruptError):
        fresh.machine.install(stage.machine.checkpoint())


def test_an_installed_state_is_served_while_it_is_written() -> None:
    stage, receiver = source(), Stage(OPTIONS)
    receiver.send(1)
    receiver.store()
    receiver.machine.poll(1, First(), count=1, bytes_max=1)
    receiver.machine.install(exported(stage))
    receiver.machine.store()
    assert rows(receiver.poll(First())) == rows(stage.poll(First()))


def test_what_waits_for_space_is_not_read_from_its_file_after_an_install() -> None:
    """All of the state is held already; the memory that held it is gone with the old state."""
    stage, receiver = source(), Stage(OPTIONS)
    for number in range(6):
        receiver.send(1 + number % 3)
    receiver.store()
    receiver.files.is_full = True
    for number in range(6, 12):
        receiver.send(1 + number % 3)
    receiver.machine.store()
    receiver.settle()
    receiver.store_offset(1, 5)
    receiver.machine.install(offered(stage, receiver))
    with pytest.raises(RefusedError) as refused:
        receiver.poll(First())
    assert refused.value.code == Code.TRANSIENT_NOT_ACCEPTED
    receiver.files.is_full = False
    receiver.machine.tick(1000)
    receiver.settle()
    assert rows(receiver.poll(First())) == rows(stage.poll(First()))
