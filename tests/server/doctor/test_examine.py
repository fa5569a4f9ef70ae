"""The doctor names what is wrong, says what a start would do, and changes nothing."""

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from headrace.runtime.files.quarantine import Quarantine
from headrace.server.doctor.examine import DoctorError, examine
from headrace.server.doctor.report import FileReport, Lost, Report, Verdict
from headrace.server.folders import format_folder, hold_folder
from headrace.server.generations import change_shard_count
from headrace.storage.config import StoreConfig, journal_key
from headrace.storage.records import Head
from headrace.storage.scan import scan_journal
from headrace.storage.superblock import choose_superblock, decode_superblock, encode_superblock_file
from tests.crash.damage import DAMAGES, FILE_TYPES, Original, Patient, make_original
from tests.kernel.samples import Stamp, batch_of, simple_messages

METADATA = "metadata"
STORE = "shards/1/0"


def make_new(folder: Path, shard_count: int = 1) -> Path:
    """Give the folder of a node that was formatted and never opened."""
    configs = make_configs()
    with hold_folder(folder):
        format_folder(folder, configs, shard_count=shard_count)
    return folder


def make_configs() -> tuple[StoreConfig, StoreConfig]:
    metadata, data = [
        StoreConfig(
            cluster=1,
            replica=0,
            replica_count=1,
            journal_bytes_max=1 << 20,
            journal_files=4,
            record_bytes_max=1 << 18,
            boot_identity=1,
            journal=journal,
        )
        for journal in (0, 1)
    ]
    return metadata, data


def of(report: Report, path: str) -> FileReport:
    return {each.path: each for each in report.files}[path]


def bad(report: Report) -> dict[str, Verdict]:
    return {each.path: each.verdict for each in report.files if each.verdict != Verdict.FINE}


def image(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Give all that can change: rights, times and bytes of every file and folder."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, data)
    return found


# Folders without a node's past.


def test_a_new_folder_is_fine(tmp_path: Path) -> None:
    report = examine(make_new(tmp_path))
    assert bad(report) == {}
    assert not report.is_damaged
    assert "free" in of(report, ".").text
    assert f"{tmp_path}: {len(report.files)} files: {len(report.files)} fine" == report.summary


@pytest.mark.parametrize("count", [2, 3])
def test_a_new_folder_with_many_shards_is_fine(tmp_path: Path, count: int) -> None:
    report = examine(make_new(tmp_path, count))
    assert bad(report) == {}
    assert of(report, "layout").text == f"shards: {count}, generation 1"
    for shard in range(count):
        assert of(report, f"shards/1/{shard}/superblock").what == "superblock"


@pytest.mark.parametrize("count", [2, 3])
def test_each_of_many_shards_is_judged(tmp_path: Path, count: int) -> None:
    last = f"shards/1/{count - 1}"
    make_new(tmp_path, count)
    (tmp_path / last / "superblock").write_bytes(b"")
    shutil.rmtree(tmp_path / "shards" / "1" / "0")
    assert bad(examine(tmp_path)) == {
        f"{last}/superblock": Verdict.DAMAGED,
        "shards/1/0": Verdict.DAMAGED,
    }


@pytest.mark.parametrize("is_missing", [True, False])
def test_shards_are_found_without_the_layout(tmp_path: Path, *, is_missing: bool) -> None:
    make_new(tmp_path)
    with hold_folder(tmp_path):
        change_shard_count(tmp_path, make_configs(), 3)
    (tmp_path / "shards/2/1/checkpoint.1").write_bytes(b"")
    (tmp_path / "shards/2/1/checkpoint.1").chmod(0o600)
    if is_missing:
        (tmp_path / "layout").unlink()
    else:
        (tmp_path / "layout").write_bytes(bytes(4 * 4096))
    assert bad(examine(tmp_path)) == {
        "layout": Verdict.DAMAGED,
        "shards/2/1/checkpoint.1": Verdict.REPAIRED,
    }


def test_what_an_interrupted_change_left(tmp_path: Path) -> None:
    """O2.5: the layout record names generation 2."""
    make_new(tmp_path)
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "shards" / "1", old)
    with hold_folder(tmp_path):
        change_shard_count(tmp_path, make_configs(), 2)
    for name in ("1", "3", "4.tmp"):
        shutil.copytree(old, tmp_path / "shards" / name)
    shutil.rmtree(old)
    (tmp_path / "layout.tmp").write_bytes(b"")
    (tmp_path / "layout.tmp").chmod(0o600)
    before = image(tmp_path)
    report = examine(tmp_path)
    assert image(tmp_path) == before
    found = [each for each in report.files if each.what == "left-over"]
    assert len(found) == 3 * 3 + 1
    assert {each.verdict for each in found} == {Verdict.REPAIRED}
    assert not report.is_damaged
    # One that a node has used: the layout record is from an older copy.
    path = tmp_path / "shards" / "3" / "0" / "superblock"
    superblock = decode_superblock(choose_superblock(path.read_bytes()).payload)
    path.write_bytes(encode_superblock_file(superblock, sequence=2))
    report = examine(tmp_path)
    assert {each for each, verdict in bad(report).items() if verdict == Verdict.DAMAGED} == {
        f"shards/3/0/{name}" for name in ("lock", "marker", "superblock")
    }
    assert "layout is from an older copy" in of(report, "shards/3/0/marker").text


def test_an_empty_folder_has_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert [each.path for each in examine(tmp_path).files] == ["."]


def test_what_is_no_folder_of_a_node_is_said(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(DoctorError, match="holds files and no node's data"):
        examine(tmp_path)
    with pytest.raises(DoctorError, match="is not a folder: name the data folder"):
        examine(tmp_path / "letters.txt")
    with pytest.raises(DoctorError, match="is not a folder"):
        examine(tmp_path / "no-such")


def test_a_folder_in_use_names_its_holder(tmp_path: Path) -> None:
    make_new(tmp_path)
    with hold_folder(tmp_path), pytest.raises(DoctorError, match=f"process {os.getpid()} "):
        examine(tmp_path)
    with hold_folder(tmp_path):
        pass  # The doctor has let go of it.


def test_a_format_that_was_broken_off(tmp_path: Path) -> None:
    make_new(tmp_path)
    (tmp_path / "layout").rename(tmp_path / "layout.tmp")
    report = examine(tmp_path)
    assert not report.is_damaged
    assert of(report, "layout.tmp").verdict == Verdict.REPAIRED
    assert of(report, f"{STORE}/marker").verdict == Verdict.REPAIRED


def test_unknown_files_and_links_are_named(tmp_path: Path) -> None:
    make_new(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / METADATA / "notes.txt").write_text("mine")
    (tmp_path / "partitions" / "elsewhere").symlink_to("/")
    (tmp_path / METADATA / "checkpoint.3").symlink_to("/etc/passwd")
    report = examine(tmp_path)
    assert bad(report) == dict.fromkeys(
        ("notes.txt", "metadata/notes.txt", "partitions/elsewhere", "metadata/checkpoint.3"),
        Verdict.UNKNOWN,
    )
    assert not report.is_damaged


def test_rights(tmp_path: Path) -> None:
    make_new(tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / METADATA / "marker").chmod(0o644)
    report = examine(tmp_path)
    assert bad(report) == {".": Verdict.REPAIRED, "metadata/marker": Verdict.NOTICE}
    assert "mode 755" in of(report, ".").text
    assert "mode 644" in of(report, "metadata/marker").text


def test_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_new(tmp_path)
    monkeypatch.setattr("headrace.server.doctor.examine.FREE_BYTES_LOW", 1 << 62)
    assert of(examine(tmp_path), ".").verdict == Verdict.NOTICE


def test_a_layout_with_one_damaged_copy_and_one_with_three(tmp_path: Path) -> None:
    path = make_new(tmp_path) / "layout"
    data = path.read_bytes()
    path.write_bytes(bytes(4096) + data[4096:])
    report = examine(tmp_path)
    assert bad(report) == {"layout": Verdict.NOTICE}
    assert "copies: 0" in of(report, "layout").text
    path.write_bytes(bytes(3 * 4096) + data[3 * 4096 :])
    report = examine(tmp_path)
    assert bad(report) == {"layout": Verdict.DAMAGED}, "the rest is still judged"


def test_other_left_overs(tmp_path: Path) -> None:
    store = make_new(tmp_path) / METADATA
    for name in ("quarantine.1", "marker.tmp", "checkpoint.7", "checkpoint.8.tmp", "journal.9"):
        (store / name).write_bytes(b"x")
        (store / name).chmod(0o600)
    assert bad(examine(tmp_path)) == {
        "metadata/quarantine.1": Verdict.NOTICE,
        "metadata/marker.tmp": Verdict.NOTICE,
        "metadata/checkpoint.7": Verdict.REPAIRED,
        "metadata/checkpoint.8.tmp": Verdict.REPAIRED,
        "metadata/journal.9": Verdict.UNKNOWN,
    }


# The folder of a node that was killed, as real nodes leave it. About 20 s of the storage share.


@pytest.fixture(scope="module")
def original() -> Iterator[Original]:
    with TemporaryDirectory(prefix="headrace-doctor-") as folder:
        yield make_original(Path(folder))


@pytest.fixture
def data(original: Original) -> Iterator[Path]:
    """Give a copy of a killed node's folder."""
    with TemporaryDirectory(prefix="headrace-doctor-") as folder:
        copy = Path(folder) / "data"
        shutil.copytree(original.data, copy)
        yield copy


def change(path: Path, *positions: int) -> None:
    data = bytearray(path.read_bytes())
    for at in positions:
        data[at] ^= 0x55
    path.write_bytes(data)


def segments(data: Path) -> list[Path]:
    return sorted(data.glob("partitions/0/0/*/*/*.log"))


@pytest.mark.slow
def test_a_killed_node_is_not_damaged_and_nothing_is_changed(data: Path) -> None:
    before = image(data)
    heard: list[str] = []
    report = examine(data, heard.append)
    assert image(data) == before
    assert not report.is_damaged
    assert set(bad(report).values()) == {Verdict.REPAIRED}
    assert "crash/persisted, partition 0" in heard
    first = of(report, segments(data)[0].relative_to(data).as_posix())
    assert first.partition == "crash/persisted, partition 0"
    assert first.text.startswith("sealed, offsets 0 to ")


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("file_type", "verdicts"),
    [
        ("marker", {Verdict.DAMAGED}),
        ("metadata marker", {Verdict.DAMAGED}),
        ("checkpoint", {Verdict.DAMAGED}),
        ("metadata checkpoint", {Verdict.DAMAGED}),
        ("segment header", {Verdict.DAMAGED}),
        ("segment body", {Verdict.DAMAGED, Verdict.REPAIRED}),  # or behind the checkpoint
        ("index", {Verdict.REPAIRED}),
        ("superblock", {Verdict.REPAIRED, Verdict.DAMAGED}),  # one copy, or most of them
        ("layout", {Verdict.NOTICE, Verdict.DAMAGED}),
    ],
)
def test_damage_is_named(data: Path, file_type: str, verdicts: set[Verdict], damage: str) -> None:
    rng = random.Random(f"{file_type} {damage}")
    chosen = FILE_TYPES[file_type]
    path = rng.choice(sorted(data.glob(chosen.pattern)))
    whole = path.read_bytes()
    end = len(whole) if chosen.end is None else min(chosen.end, len(whole))
    path.write_bytes(DAMAGES[damage](whole, chosen.start, end, rng))
    before = image(data)
    found = of(examine(data), path.relative_to(data).as_posix())
    assert found.verdict in verdicts, found
    assert image(data) == before


@pytest.mark.slow
@pytest.mark.parametrize("file_type", FILE_TYPES)
def test_the_doctor_says_what_a_start_will_do(
    original: Original, file_type: str, tmp_path: Path
) -> None:
    """Damaged if and only if the node then refuses, or answers reads with errors."""
    patient = Patient(original, tmp_path)
    node = patient.copy()
    rng = random.Random(f"{file_type} start")
    chosen = FILE_TYPES[file_type]
    path = rng.choice(sorted(node.data.glob(chosen.pattern)))
    whole = path.read_bytes()
    end = len(whole) if chosen.end is None else min(chosen.end, len(whole))
    path.write_bytes(DAMAGES["block"](whole, chosen.start, end, rng))
    report = examine(node.data)
    outcome, said = patient.judge(node)
    assert report.is_damaged == (outcome in ("refused", "error")), (said, bad(report))
    shutil.rmtree(node.data)


def records(data: Path) -> tuple[list[Head], list[Head]]:
    """Give the journal's records with a batch: those that the checkpoint covers, and later ones."""
    folder = data / STORE
    superblock = decode_superblock(choose_superblock((folder / "superblock").read_bytes()).payload)
    scan = scan_journal(
        {path.name: path.read_bytes() for path in folder.glob("journal.*")},
        files_count=superblock.journal_files,
        key=journal_key(superblock.identity),
    )
    heads = sorted(
        (head for head in scan.heads if head.length > 50_000 and head.sequence >= superblock.tail),
        key=lambda head: head.sequence,
    )
    covered = [head for head in heads if head.sequence <= superblock.covered]
    return covered, [head for head in heads if head.sequence > superblock.covered]


def spoil(data: Path, head: Head, at: int) -> None:
    change(data / STORE / f"journal.{head.file}", head.position + at)


@pytest.mark.slow
def test_all_damage_to_a_journal_is_named(data: Path) -> None:
    """Recovery stops at the first hole; the doctor does not."""
    covered, later = records(data)
    spoil(data, covered[0], 200)
    spoil(data, later[0], 200)
    report = examine(data)
    texts = " ".join(
        each.text
        for each in report.files
        if each.what == "journal" and each.verdict == Verdict.DAMAGED
    )
    assert len(re.findall(r"records \d+ to \d+ (are damaged|cannot be read)", texts)) == 2


@pytest.mark.slow
def test_a_hole_that_the_checkpoint_covers_loses_no_message(data: Path) -> None:
    spoil(data, records(data)[0][0], 200)
    report = examine(data)
    assert report.is_damaged
    assert not any(each.lost for each in report.files), bad(report)


@pytest.mark.slow
@pytest.mark.parametrize("at", [200, 40_000], ids=["entries", "body"])
def test_messages_that_only_the_journal_had_are_named(data: Path, at: int) -> None:
    """Two sends to each topic came after the checkpoint: the first of them is lost."""
    spoil(data, records(data)[1][0], at)
    lost = [each for each in examine(data).files if each.what == "messages"]
    assert [each.verdict for each in lost] == [Verdict.DAMAGED]
    assert lost[0].lost == (Lost(600, 619),)
    assert "offsets 600 to 619" in lost[0].text
    assert lost[0].partition.startswith("crash/")


@pytest.mark.slow
def test_where_the_last_send_is_broken_its_end_is_not_known(data: Path) -> None:
    spoil(data, records(data)[1][-1], 40_000)
    lost = [each for each in examine(data).files if each.what == "messages"]
    assert [each.lost for each in lost] == [()]
    assert "from offset 620 on" in lost[0].text


@pytest.mark.slow
def test_what_comes_behind_a_broken_superblock_is_not_judged(data: Path) -> None:
    path = data / STORE / "superblock"
    path.write_bytes(bytes(len(path.read_bytes())))
    report = examine(data)
    assert of(report, f"{STORE}/superblock").verdict == Verdict.DAMAGED
    for each in report.files:
        if each.path.startswith("partitions/") or each.path.startswith(f"{STORE}/checkpoint"):
            assert each.verdict == Verdict.NOTICE
            assert each.text.startswith("not judged")


@pytest.mark.slow
@pytest.mark.parametrize("name", [METADATA, STORE])
def test_a_missing_store(data: Path, name: str) -> None:
    shutil.rmtree(data / name)
    found = of(examine(data), name)
    assert (found.verdict, found.what) == (Verdict.DAMAGED, "store")
    assert "missing" in found.text


@pytest.mark.slow
def test_a_missing_layout(data: Path) -> None:
    (data / "layout").unlink()
    report = examine(data)
    assert of(report, "layout").verdict == Verdict.DAMAGED
    assert set(bad(report).values()) == {Verdict.DAMAGED, Verdict.REPAIRED}


# What is lost, to the offset: a batch holds 20 messages of 4,000 bytes.


def batch_at(segment: Path, number: int) -> int:
    """Give where a batch of a segment begins."""
    data = segment.read_bytes()
    position = 4096
    for _ in range(number):
        position += int.from_bytes(data[position + 32 : position + 40], "little")
    return position


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "lost"),
    [
        (lambda path: change(path, batch_at(path, 3) + 5_000), (Lost(60, 79),)),
        (lambda path: change(path, batch_at(path, 3) + 8), (Lost(60, 79),)),
        (lambda path: change(path, batch_at(path, 3) + 48), (Lost(60, 79),)),
        (lambda path: change(path, batch_at(path, 3) + 33), (Lost(60, 79),)),
        (lambda path: change(path, 20), ()),  # the header: all batches are still there
        (lambda path: path.unlink(), (Lost(0, 259),)),
        (lambda path: os.truncate(path, batch_at(path, 5)), (Lost(100, 259),)),
        (
            lambda path: change(path, *(batch_at(path, at) + 5_000 for at in (1, 2, 7))),
            (Lost(20, 59), Lost(140, 159)),
        ),
    ],
    ids=[
        "payload",
        "batch header",
        "count",
        "length",
        "segment header",
        "missing",
        "short",
        "several",
    ],
)
def test_lost_offsets_are_exact(
    data: Path, break_it: Callable[[Path], object], lost: tuple[Lost, ...]
) -> None:
    path = segments(data)[0]
    break_it(path)
    found = of(examine(data), path.relative_to(data).as_posix())
    assert found.verdict == Verdict.DAMAGED
    assert found.lost == lost
    assert all(str(each) in found.text for each in lost)
    assert found.position is not None


@pytest.mark.slow
def test_right_batches_in_the_wrong_file_are_known(data: Path) -> None:
    """DK17: whole batches with right checksums that the checkpoint does not vouch for."""
    one, other = segments(data)[0], sorted(data.glob("partitions/0/1/*/*/*.log"))[0]
    batch = slice(batch_at(one, 2), batch_at(one, 3))
    theirs, ours = other.read_bytes(), bytearray(one.read_bytes())
    assert len(theirs[batch]) == len(ours[batch])
    ours[batch] = theirs[batch]
    one.write_bytes(ours)
    found = of(examine(data), one.relative_to(data).as_posix())
    assert found.verdict == Verdict.DAMAGED
    assert "not those of the checkpoint" in found.text


@pytest.mark.slow
def test_files_that_no_checkpoint_names(data: Path) -> None:
    folder = segments(data)[0].parent
    strange = folder / f"{700:020}.log"
    gone = data / "partitions" / "9" / "9" / "0-77" / "0" / f"{0:020}.log"
    gone.parent.mkdir(parents=True)
    for path in (strange, gone):
        path.write_bytes(b"x")
        path.chmod(0o600)
    report = examine(data)
    found = of(report, strange.relative_to(data).as_posix())
    assert found.verdict == Verdict.NOTICE
    assert "no message that it lacks: the next start keeps them in quarantine" in found.text
    found = of(report, gone.relative_to(data).as_posix())
    assert (found.verdict, found.partition) == (
        Verdict.NOTICE,
        "stream 9, topic 9, partition 0",
    )
    assert "has not seen: the next start moves it to quarantine" in found.text
    shutil.copytree(gone.parent, data / "partitions" / "9" / "9" / "0-1" / "0")
    deleted = f"partitions/9/9/0-1/0/{0:020}.log"
    assert of(examine(data), deleted).verdict == Verdict.REPAIRED


@pytest.mark.slow
def test_evidence_is_shown_with_its_reason(data: Path) -> None:
    said = Quarantine(data / "quarantine").copy(data / "strange", 0, [b"bytes"], "nobody's")
    assert said.endswith("quarantine/1")
    report = examine(data)
    assert of(report, "quarantine/1/strange.0").verdict == Verdict.NOTICE
    found = of(report, "quarantine/1/REASON")
    assert found.text == "an earlier start put away strange, 5 bytes from 0 on; nobody's"


@pytest.mark.slow
def test_a_store_of_an_older_moment_is_named(data: Path) -> None:
    """DK16."""
    path = data / STORE / "superblock"
    found = decode_superblock(choose_superblock(path.read_bytes()).payload)
    older = msgspec.structs.replace(found, start=found.start - 1)
    path.write_bytes(encode_superblock_file(older, sequence=1 << 20))
    report = examine(data)
    assert of(report, STORE).verdict == Verdict.DAMAGED
    assert "not of one moment" in of(report, STORE).text


@pytest.mark.slow
def test_messages_that_the_journal_does_not_have_are_named(data: Path) -> None:
    """DK16: a segment that is newer than the stores."""
    path = segments(data)[-1]
    offset = 640
    batch = batch_of(simple_messages(2), Stamp(partition_id=0, base_offset=offset))
    path.write_bytes(path.read_bytes() + batch)
    found = of(examine(data), path.relative_to(data).as_posix())
    assert found.verdict == Verdict.DAMAGED
    assert f"messages from offset {offset} on, and the log ends at" in found.text
