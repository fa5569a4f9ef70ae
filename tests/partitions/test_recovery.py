"""Restarts: after a crash at any step the files become what the log says, and nothing is lost."""

from collections.abc import Callable

import pytest

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.base.prng import Prng
from headrace.partitions.gather import First, FromOffset
from headrace.ports.segments import (
    OpenSegments,
    RemoveSegments,
    SegmentEvent,
    SegmentFile,
    SegmentsSynced,
    SegmentWritten,
    SyncSegments,
    WriteSegment,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.requests import RequestHeader
from tests.partitions.fake_files import FakeFiles
from tests.partitions.stage import (
    CONSUMER,
    NAMESPACE,
    PLENTY,
    REVISION,
    START,
    Stage,
    make_options,
    offsets,
    producer_batch,
    rows,
)

OPTIONS = make_options(segment_bytes=1200, piece_bytes=600)


class CrashError(Exception):
    """The process ends here."""


class CrashingFiles(FakeFiles):
    """Ends the process before one effect, counted from the beginning."""

    crash_at: int | None = None

    def step(self) -> list[SegmentEvent]:
        if self.effects_done == self.crash_at:
            raise CrashError
        return super().step()


def live(stage: Stage) -> None:
    """A life with everything that touches files."""
    stage.machine.open()
    stage.settle()
    for number in range(4):
        stage.send(1 + number)
    stage.store()
    stage.checkpoint()
    for number in range(7):
        stage.send(1 + number % 3, 40 * number + 1)
        stage.machine.store()
        stage.settle()
    stage.store_offset(1, 12)
    stage.trim(12)
    stage.send(2)
    stage.store()
    stage.checkpoint()
    stage.lose(stage.machine.next_offset, stage.machine.next_offset + 10)
    stage.send(4)
    stage.machine.flush()
    stage.settle()
    stage.purge(1)
    stage.send(2)
    stage.store()
    stage.checkpoint()
    stage.send(3, 900)
    stage.store()
    stage.send(3, 900)
    stage.store()
    stage.send(1)
    stage.retain(stamp_max=stage.now)
    stage.store()
    stage.checkpoint()
    stage.send(1)
    stage.store()


def reference(stage: Stage) -> Stage:
    """The same ops, applied by a partition that never crashed."""
    other = Stage(stage.options)
    for header, body in stage.journal:
        other.apply(header, body)
    other.store()
    return other


def check_equal(stage: Stage) -> None:
    """Compare state, files, and what a consumer reads from them."""
    expected = reference(stage)
    assert stage.machine.fence is None
    stage.forget_memory()
    assert stage.machine.export() == expected.machine.export()
    assert stage.machine.state_hash() == expected.machine.state_hash()
    assert stage.table.encode() == expected.table.encode()
    for segment in stage.machine._log.segments:
        assert stage.files.logs[segment.file] == expected.files.logs[segment.file]
    offset = stage.machine.first_offset
    while offset < stage.machine.next_offset:
        polled = stage.poll(FromOffset(offset))
        assert rows(polled) == rows(expected.poll(FromOffset(offset)))
        if not polled.messages_count:
            break
        offset = polled.last_offset + 1


def crash(stage: Stage, how: str) -> None:
    files = stage.files
    assert isinstance(files, CrashingFiles)
    files.crash_at = None
    if how == "power":
        files.cut_power()
    else:
        files.kill()


def total_effects() -> int:
    stage = Stage(OPTIONS, CrashingFiles(), is_open=False)
    live(stage)
    assert stage.files.effects_done > 30
    return stage.files.effects_done


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_crash_before_any_effect_is_mended_by_the_journal(how: str, is_alone: bool) -> None:
    """PR4: every write, sync, index, removal and opening; nothing goes to quarantine (FM-11)."""
    for crash_at in range(total_effects()):
        files = CrashingFiles(Prng(crash_at))
        files.crash_at = crash_at
        stage = Stage(OPTIONS, files, is_open=False, is_alone=is_alone)
        with pytest.raises(CrashError):
            live(stage)
        crash(stage, how)
        stage.restart()
        stage.send(2)
        check_equal(stage)
        # Damage done by a recovery shows at the next one.
        stage.checkpoint()
        stage.restart()
        check_equal(stage)
        assert files.quarantined == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_second_crash_interrupts_the_recovery(how: str) -> None:
    """PR5."""
    for first in range(0, total_effects(), 3):
        for second in range(6):
            files = CrashingFiles(Prng(first))
            files.crash_at = first
            stage = Stage(OPTIONS, files, is_open=False, is_alone=second % 2 == 0)
            with pytest.raises(CrashError):
                live(stage)
            crash(stage, how)
            files.crash_at = files.effects_done + second
            try:
                stage.restart()
                stage.store()
                stage.checkpoint()
            except CrashError:
                crash(stage, how)
                stage.restart()
            files.crash_at = None
            check_equal(stage)
            assert files.quarantined == []


def test_a_torn_tail_is_cut_and_written_again() -> None:
    """DK6: whatever a write left behind the checkpointed length."""
    for cut in range(1, 900, 37):
        stage = Stage(OPTIONS)
        stage.send(2)
        stage.checkpoint()
        stage.send(2)
        stage.store()
        [file] = stage.files.logs
        whole = bytes(stage.files.logs[file])
        torn = bytearray(whole[:-cut]) if cut < 300 else bytearray(whole + bytes(cut))
        torn[-1] ^= 0xFF
        stage.files.logs[file] = max(torn, bytearray(whole[: len(whole) // 2 + 2200]), key=len)
        stage.restart()
        stage.store()
        assert stage.files.logs[file] == whole
        check_equal(stage)


def opened(stage: Stage) -> OpenSegments:
    stage.files.kill()
    stage._begin()
    stage.machine.install(stage.saved[1])
    stage.machine.open()
    [effect] = stage.machine.take_effects()
    assert isinstance(effect, OpenSegments)
    return effect


def test_nothing_is_written_before_the_files_are_cut() -> None:
    stage = Stage(OPTIONS)
    stage.send(2)
    stage.checkpoint()
    stage.send(2)
    effect = opened(stage)
    assert [extent.length for extent in effect.extents] == [
        SEGMENT_HEADER_BYTES + len(producer_batch(2))
    ]
    stage.apply(*stage.journal[-1])
    stage.machine.store()
    token = stage.machine.flush()
    assert stage.machine.take_effects() == []
    assert token is not None
    stage.files.waiting.append(effect)
    stage.settle()
    assert stage.machine.is_flushed(token)
    assert stage.machine.is_open
    check_equal(stage)


def damage_missing(files: FakeFiles, file: SegmentFile) -> None:
    del files.logs[file]


def damage_short(files: FakeFiles, file: SegmentFile) -> None:
    del files.logs[file][-1:]


def damage_header(files: FakeFiles, file: SegmentFile) -> None:
    files.logs[file][20] ^= 1


def damage_swapped(files: FakeFiles, file: SegmentFile) -> None:
    other = next(each for each in files.logs if each != file)
    files.logs[file] = bytearray(files.logs[other])


@pytest.mark.parametrize("damage", [damage_missing, damage_short, damage_header, damage_swapped])
def test_files_that_are_not_what_the_checkpoint_vouches_for_fence_the_partition(
    damage: Callable[[FakeFiles, SegmentFile], None],
) -> None:
    """Finding 12, DK11, DK14, DK17, P7: refused with words, nothing made or changed."""
    stage = Stage(OPTIONS)
    for _ in range(6):
        stage.send(3)
    stage.checkpoint()
    stage.send(3)
    file = SegmentFile(NAMESPACE, REVISION, 0, 0)
    damage(stage.files, file)
    before = {each: bytes(data) for each, data in stage.files.logs.items()}
    for _ in range(2):
        stage.restart()
        assert stage.machine.fence is not None
        assert "base_offset=0" in stage.machine.fence
        assert not stage.machine.is_open
        with pytest.raises(RefusedError) as error:
            stage.poll(First())
        assert error.value.code == Code.CANNOT_READ_MESSAGE
        with pytest.raises(RefusedError) as error:
            stage.send(1)
        assert error.value.code == Code.CANNOT_APPEND_MESSAGE
        stage.machine.store()
        stage.machine.on_checkpointed()
        assert stage.machine.take_effects() == []
        assert stage.files.logs == before
        assert stage.probes.counts["partition.open_failed"] == 1


# Space and errors.


def test_without_space_the_batches_wait_and_are_written_later() -> None:
    """DK4: reads go on, and no restart is needed."""
    stage = Stage(OPTIONS)
    stage.send(3)
    stage.files.is_full = True
    for _ in range(5):
        stage.send(3)
    token = stage.machine.flush()
    stage.settle()
    assert token is not None
    assert not stage.machine.is_flushed(token)
    waiting = stage.machine.writer.waiting_bytes
    assert waiting > 0
    assert stage.probes.counts["partition.no_space"] == 1
    stage.machine.store()
    assert stage.machine.take_effects() == []  # not at every turn
    assert offsets(stage.poll(First())) == list(range(18))
    stage.shared.tick(1000)
    stage.settle()
    assert stage.probes.counts["partition.no_space"] == 2
    stage.shared.tick(1001)
    assert stage.machine.take_effects() == []
    stage.files.is_full = False
    stage.machine.tick(1100)
    stage.settle()
    assert stage.machine.is_flushed(token)
    assert stage.machine.writer.waiting_bytes == 0
    check_equal(stage)


def test_what_was_dropped_while_there_was_no_space_is_not_written() -> None:
    stage = Stage(OPTIONS)
    stage.files.is_full = True
    for _ in range(5):
        stage.send(3)
    token = stage.machine.flush()
    stage.settle()
    stage.purge(1)
    assert stage.machine.writer.waiting_bytes == 0
    stage.files.is_full = False
    stage.shared.tick(1000)
    stage.settle()
    assert token is not None
    assert stage.machine.is_flushed(token)
    assert stage.files.logs == {}
    stage.checkpoint()
    assert stage.machine.fence is None
    stage.send(1)
    check_equal(stage)


def test_what_was_dropped_while_it_was_on_its_way_is_not_written_again() -> None:
    stage = Stage(OPTIONS)
    stage.send(3)
    stage.machine.store()
    [write] = stage.machine.take_effects()
    assert isinstance(write, WriteSegment)
    stage.purge(1)
    stage.send(1)
    stage.shared.step(SegmentWritten(write.token, is_done=False))
    stage.shared.tick(1)
    stage.store()
    assert [file.history_epoch for file in stage.files.logs] == [1]
    stage.checkpoint()
    check_equal(stage)


def test_a_round_that_lacked_space_in_part_is_written_again_whole() -> None:
    stage = Stage(OPTIONS)
    for _ in range(5):
        stage.send(3)
    stage.machine.store()
    first, *others = stage.machine.take_effects()
    assert isinstance(first, WriteSegment)
    stage.files.waiting.extend(others)
    for _ in others:
        for event in stage.files.step():
            stage.shared.step(event)
    held = stage.machine.tail_bytes
    stage.shared.tails.bytes_max = 0
    stage.shared.step(SegmentWritten(first.token, is_done=False))
    assert stage.machine.tail_bytes == held  # None of it may leave memory.
    stage.shared.tick(1)
    stage.settle()
    assert stage.machine.tail_bytes == 0
    check_equal(stage)


@pytest.mark.parametrize("when", ["write", "sync"])
def test_an_error_of_a_file_fences_its_partition(when: str) -> None:
    """Findings 1 and 2, DK1, DK2, O2.4: not tried again, not forgotten."""
    stage = Stage(OPTIONS)
    stage.send(3)
    if when == "sync":
        stage.store()
        stage.files.failing = "no sync"
    stage.files.failing = stage.files.failing or "no write"
    token = stage.machine.flush()
    stage.settle()
    assert token is not None
    assert stage.machine.fence == f"no {when}"
    stage.files.failing = None
    stage.machine.store()
    stage.machine.retry()
    stage.settle()
    assert not stage.machine.is_flushed(token)
    again = stage.machine.flush()
    assert again is not None
    assert not stage.machine.is_flushed(again)
    assert stage.machine.take_effects() == []
    with pytest.raises(RefusedError):
        stage.send(1)
    # Ops that others decided are still applied, and take no memory for files that are not written.
    held = stage.machine.tail_bytes
    other = Stage(OPTIONS)
    other.send(3)
    other.send(3)
    stage.apply(*other.journal[1])
    assert (stage.machine.next_offset, stage.machine.tail_bytes) == (6, held)
    assert stage.machine.writer.waiting_bytes == 0
    assert stage.probes.counts["partition.fenced"] == 1


def test_what_is_applied_behind_a_fence_is_lacking() -> None:
    """P7: all was durable when the file turned out damaged, and what comes after never will be."""
    stage = Stage(OPTIONS)
    stage.send(3)
    stage.checkpoint()
    [log] = stage.files.logs.values()
    log.clear()
    stage.restart()
    assert stage.machine.fence is not None
    assert not stage.machine.is_lacking
    other = Stage(OPTIONS)
    other.send(3)
    other.send(3)
    stage.apply(*other.journal[1])
    assert stage.machine.is_lacking


# Flushing and removing.


def test_a_flush_covers_what_was_applied_before_it() -> None:
    stage = Stage()
    assert stage.machine.flush() is None
    stage.send(3)
    stage.machine.store()
    [write] = stage.machine.take_effects()
    assert isinstance(write, WriteSegment)
    stage.send(3)
    token = stage.machine.flush()
    assert token is not None
    assert stage.machine.flush() == token
    assert stage.machine.take_effects() == []  # The first write has not returned yet.
    stage.files.waiting.append(write)
    for event in stage.files.step():
        stage.shared.step(event)
    [second] = stage.machine.take_effects()
    assert isinstance(second, WriteSegment)
    stage.files.waiting.append(second)
    for event in stage.files.step():
        stage.shared.step(event)
    [sync] = stage.machine.take_effects()
    assert isinstance(sync, SyncSegments)
    assert (sync.token, sync.files) == (token, (write.file,))
    assert second.file == write.file
    stage.send(3)
    later = stage.machine.flush()
    assert later != token
    stage.shared.step(SegmentsSynced(token))
    assert stage.machine.is_flushed(token)
    assert later is not None
    assert not stage.machine.is_flushed(later)
    stage.files.waiting.append(sync)
    stage.files.step()
    stage.settle()
    assert stage.machine.is_flushed(later)
    assert stage.machine.flush() is None


def test_one_call_stores_all_that_waits_in_rounds() -> None:
    stage = Stage(make_options(segment_bytes=PLENTY))
    for _ in range(5):
        stage.send(4, 1_000_000)
    stage.machine.store()
    effects = stage.machine.take_effects()
    assert len(effects) == 1
    stage.files.waiting.extend(effects)
    stage.settle()
    assert stage.machine.writer.waiting_bytes == 0
    assert len(stage.files.logs) == 1
    check_equal(stage)


def test_files_go_with_the_checkpoint_that_does_not_name_them() -> None:
    stage = Stage(OPTIONS)
    for _ in range(8):
        stage.send(3)
    stage.checkpoint()
    before = list(stage.files.logs)
    stage.trim(8)
    stage.settle()
    stage.machine.on_checkpointed()  # That was one from before the trim.
    assert stage.machine.take_effects() == []
    stage.machine.checkpoint()
    gone = before[:1]
    stage.purge(1)
    stage.machine.on_checkpointed()
    [effect] = stage.machine.take_effects()
    assert effect == RemoveSegments(tuple(gone))
    stage.checkpoint()
    assert sorted(stage.files.removed, key=lambda file: file.base_offset) == before[1:]


def test_a_removal_that_a_crash_prevented_happens_at_the_next_start() -> None:
    stage = Stage(OPTIONS)
    for _ in range(8):
        stage.send(3)
    stage.checkpoint()
    stage.trim(8)
    stage.saved = (stage.op, stage.machine.checkpoint(), stage.table.encode())
    stage.restart()
    assert all(file.base_offset > 0 for file in stage.files.logs)
    check_equal(stage)


def test_offsets_and_requests_survive_a_restart() -> None:
    stage = Stage(OPTIONS)
    stage.send(3, client=9, request=4)
    stage.store_offset(1, 2)
    stage.checkpoint()
    stage.send(3, client=9, request=5)
    stage.store_offset(1, 1)
    stage.restart()
    assert stage.machine.stored_offset(CONSUMER, 1) == 1
    request = RequestHeader(client=9, request=5, operation=Operation.SEND_MESSAGES)
    verdict, reply = stage.table.judge(request, producer_batch(3))
    assert verdict.name == "REPLAY"
    assert reply[-8:] == (3).to_bytes(8, "little")
    assert stage.machine.prepare(request, bytearray(producer_batch(1)), START * 2)
    assert stage.machine.prepared_offset == 7
