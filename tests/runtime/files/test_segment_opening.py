"""Opening the files of a partition whose log is whole: nothing that it lacks is lost (FM-11)."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.partitions.writer import header_block
from headrace.ports.segments import (
    ListPartitions,
    LogEnd,
    OpenSegments,
    PartitionsListed,
    QuarantinePartition,
    SegmentExtent,
    SegmentFile,
    SegmentsOpened,
    SegmentWritten,
)
from tests.partitions.stage import NAMESPACE, REVISION, Stage
from tests.runtime.files.test_segments import Bench

FILE = SegmentFile(NAMESPACE, REVISION, 0, 0)
NEXT = SegmentFile(NAMESPACE, REVISION, 0, 6)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "partitions")
    yield made
    made.files.close()


@pytest.fixture(scope="module")
def batches() -> list[bytes]:
    """Give three batches of three messages each, from offset 0 on."""
    stage = Stage()
    for _ in range(3):
        stage.send(3)
    return [body for _, body in stage.journal]


def open_whole(
    bench: Bench, length: int, *, next_offset: int, lost_until: int = 0, first_offset: int = 0
) -> list[str]:
    extent = SegmentExtent(FILE, length)
    end = LogEnd(
        history_epoch=0,
        first_offset=first_offset,
        next_offset=next_offset,
        lost_until=lost_until,
        segments=(extent,),
        dropped=(),
    )
    event = bench.ask(lambda token: OpenSegments(token, NAMESPACE, REVISION, (extent,), end))
    assert isinstance(event, SegmentsOpened)
    return [fault.sentence for fault in event.faults]


def kept(bench: Bench) -> dict[str, bytes]:
    """Give what lies in quarantine."""
    folder = bench.folder.parent / "quarantine"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def image(bench: Bench) -> dict[str, bytes]:
    return {
        str(path.relative_to(bench.folder)): path.read_bytes()
        for path in sorted(bench.folder.rglob("*"))
        if path.is_file()
    }


def test_what_the_journal_has_is_left_where_it_is(bench: Bench, batches: list[bytes]) -> None:
    """A plain kill: the checkpoint is short, the log after the replay is not."""
    bench.make(FILE, b"".join(batches))
    before = image(bench)
    whole = len(bench.path().read_bytes())
    vouched = SegmentExtent(FILE, 4096 + len(batches[0]))
    end = LogEnd(
        history_epoch=0,
        first_offset=0,
        next_offset=9,
        lost_until=0,
        segments=(SegmentExtent(FILE, whole),),
        dropped=(),
    )
    event = bench.ask(lambda token: OpenSegments(token, NAMESPACE, REVISION, (vouched,), end))
    assert event == SegmentsOpened(bench.token, ())
    assert image(bench) == before
    bench.write(FILE, 4096 + len(batches[0]), *batches[1:])
    assert image(bench) == before
    assert (kept(bench), bench.complaints) == ({}, [])


@pytest.mark.parametrize("lost_until", [0, 5])
def test_messages_beyond_the_log_are_a_fault_and_nothing_is_touched(
    bench: Bench, batches: list[bytes], lost_until: int
) -> None:
    """DK16: an older journal beside a newer segment."""
    bench.make(FILE, b"".join(batches[:2]))
    bench.make(NEXT, batches[2])
    before = image(bench)
    length = 4096 + len(batches[0])
    [remains, newer] = open_whole(bench, length, next_offset=3, lost_until=lost_until)
    assert "messages from offset 3 on, and the log ends at 3" in remains
    assert f"cut the file to {length} bytes" in remains
    assert "messages from offset 6 of history 0 on" in newer
    assert "restore the whole data folder from one copy" in newer
    assert image(bench) == before
    assert kept(bench) == {}


def test_messages_that_went_with_the_power_are_kept_and_the_log_goes_on(
    bench: Bench, batches: list[bytes]
) -> None:
    """FM-7: their offsets are not given out again, and the range is told as lost."""
    bench.make(FILE, b"".join(batches[:2]))
    bench.make(NEXT, batches[2])
    length = 4096 + len(batches[0])
    assert open_whole(bench, length, next_offset=3, lost_until=65_536) == []
    assert image(bench) == {"3/2/5-77/0/00000000000000000000.log": header_block(FILE) + batches[0]}
    found = kept(bench)
    assert found["1/00000000000000000006.log"] == header_block(NEXT) + batches[2]
    assert found[f"2/00000000000000000000.log.{length}"] == batches[1]
    assert b"partitions/3/2/5-77/0/00000000000000000006.log, whole" in found["1/REASON"]
    assert b"went with the power" in found["2/REASON"]
    assert len(bench.complaints) == 2
    assert bench.files.quarantine.kept_count == 2
    assert bench.files.quarantine.kept_bytes == 4096 + len(batches[1]) + len(batches[2])


def test_what_is_no_message_is_kept_and_zeros_are_nothing(
    bench: Bench, batches: list[bytes]
) -> None:
    strange = SegmentFile(NAMESPACE, REVISION, 0, 700)
    length = 4096 + len(batches[0])
    bench.make(FILE, batches[0] + b"spare")
    bench.path(strange).write_bytes(b"strange")
    bench.path(strange).with_suffix(".index").write_bytes(b"index")
    assert open_whole(bench, length, next_offset=3) == []
    assert kept(bench) | {"1/REASON": b"", "2/REASON": b""} == {
        "1/00000000000000000700.log": b"strange",
        f"2/00000000000000000000.log.{length}": b"spare",
        "1/REASON": b"",
        "2/REASON": b"",
    }
    bench.path().write_bytes(header_block(FILE) + batches[0] + bytes(5000))
    assert open_whole(bench, length, next_offset=3) == []
    assert image(bench) == {"3/2/5-77/0/00000000000000000000.log": header_block(FILE) + batches[0]}
    assert bench.files.quarantine.kept_count == 2


def test_what_the_log_dropped_goes(bench: Bench, batches: list[bytes]) -> None:
    """FM-11: an op of the log is what may delete."""
    bench.make(FILE, batches[0])
    bench.make(NEXT, batches[2])
    length = 4096 + len(batches[0])
    assert open_whole(bench, length, next_offset=20, first_offset=9) == []
    assert list(image(bench)) == ["3/2/5-77/0/00000000000000000000.log"]
    assert kept(bench) == {}


def test_a_write_keeps_other_bytes_that_it_would_destroy(bench: Bench) -> None:
    bench.make(FILE, b"others" * 100)
    bench.files.close()
    again = Bench(bench.folder)
    with again.files:
        assert again.write(FILE, 4096, b"others" * 50) == SegmentWritten(1, is_done=True)
        assert kept(again) == {}
        assert again.write(FILE, 4396, b"journal's") == SegmentWritten(2, is_done=True)
    found = kept(again)
    assert found["1/00000000000000000000.log.4396"] == (b"others" * 50)[:9]
    assert b"other bytes than the journal has" in found["1/REASON"]
    assert len(again.complaints) == 1


def test_without_space_for_the_evidence_nothing_is_destroyed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.make(FILE, b"others")
    real = os.open

    def full(path: object, flags: int, *rest: int, **named: int) -> int:
        if "quarantine" in str(path) and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "no space")
        return real(path, flags, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", full)
    assert bench.write(FILE, 4096, b"mine") == SegmentWritten(2, is_done=False)
    assert bench.path().read_bytes() == header_block(FILE) + b"others"
    assert list((bench.folder.parent / "quarantine").iterdir()) == []
    monkeypatch.undo()
    assert bench.write(FILE, 4096, b"mine") == SegmentWritten(3, is_done=True)
    assert kept(bench)["1/00000000000000000000.log.4096"] == b"othe"


def test_partitions_are_listed_and_moved(bench: Bench, tmp_path: Path) -> None:
    other = SegmentFile(NAMESPACE + 1, 9, 0, 0)
    bench.make()
    bench.make(other)
    for name in ("x/1/2-3", "1/x/2-3", "1/2/3", "1/2/3-x", "1/5000/3-4", "01/2/3-4"):
        (bench.folder / name).mkdir(parents=True)
    (bench.folder / "7").symlink_to(tmp_path)
    event = bench.ask(ListPartitions)
    assert event == PartitionsListed(bench.token, ((NAMESPACE, REVISION), (NAMESPACE + 1, 9)))
    bench.files.submit(QuarantinePartition(NAMESPACE + 1, 9, "nobody's"))
    bench.settle()
    assert not bench.path(other).exists()
    assert bench.path().exists()
    found = kept(bench)
    assert found["1/6-9/0/00000000000000000000.log"].startswith(b"HRSEGMT1")
    assert found["1/REASON"].endswith(b"nobody's\n")
    bench.files.submit(QuarantinePartition(NAMESPACE + 1, 9, "nobody's"))
    bench.settle()
    assert "cannot be moved to quarantine" in bench.complaints[-1]
    assert list(kept(bench)) == list(found)


@pytest.mark.parametrize("name", ["9" * 20, "\N{ARABIC-INDIC DIGIT ONE}" * 20])
def test_a_file_whose_name_no_offset_has_is_left_alone(
    bench: Bench, batches: list[bytes], name: str
) -> None:
    """A name is a byte from a disk: nothing may be asserted about it."""
    bench.make(FILE, batches[0])
    for suffix in ("log", "index"):
        bench.path().with_name(f"{name}.{suffix}").write_bytes(b"whatever this is")
    before = image(bench)
    assert open_whole(bench, 4096 + len(batches[0]), next_offset=3) == []
    assert image(bench) == before
    assert (kept(bench), bench.complaints) == ({}, [])
