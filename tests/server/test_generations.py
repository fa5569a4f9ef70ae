"""The number of shards is changed between two starts, and every end of it leaves a node (O2.5)."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headrace.base.prng import Prng
from headrace.runtime.files.disk import DiskFailedError
from headrace.server.folders import (
    FolderRefusedError,
    check_layout,
    format_folder,
    hold_folder,
    read_layout,
    store_folders,
)
from headrace.server.generations import ChangeFailedError, change_shard_count
from headrace.storage.config import SUPERBLOCK_NAME, identity_of, journal_key, journal_name
from headrace.storage.scan import scan_journal
from headrace.storage.superblock import choose_superblock, decode_superblock
from tests.server.durable_calls import (
    DurableCalls,
    EndedError,
    Medium,
    Step,
    Survival,
    counted_calls,
)
from tests.server.filled_folder import (
    START,
    Found,
    configs,
    copy_folder,
    fill_folder,
    start_node,
)

OTHER_BOOT = 8
CHANGES = [(1, 2), (1, 3), (2, 1), (3, 2), (4, 4), (2, 4)]


@pytest.fixture(autouse=True, scope="module")
def _quick_syncs() -> Iterator[None]:
    """Syncs take no time: what is durable is what the model of the medium says."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda _: None)
        yield


def change(folder: Path, count: int, *, boot_identity: int = 7) -> None:
    with hold_folder(folder):
        change_shard_count(folder, configs(boot_identity=boot_identity), count)


@contextmanager
def held_and_counted(folder: Path) -> Iterator[DurableCalls]:
    with hold_folder(folder), counted_calls() as calls:
        yield calls


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    """The folder of a node of one shard."""
    with TemporaryDirectory(prefix="headrace-shards-") as folder:
        made = Path(folder) / "data"
        fill_folder(made, 1)
        yield made


@pytest.fixture(scope="module")
def wanted(original: Path) -> Found:
    return start_node(copy_folder(original, original.with_name("started")))


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_every_group_is_found_again(tmp_path: Path, old: int, new: int) -> None:
    """SH-4: nothing but the stores of the shards is written."""
    folder = tmp_path / "data"
    fill_folder(folder, old)
    before = start_node(copy_folder(folder, tmp_path / "copy"))
    assert len(before.groups) == 9
    metadata = {each.name: each.read_bytes() for each in (folder / "metadata").iterdir()}
    change(folder, new)
    assert {each.name: each.read_bytes() for each in (folder / "metadata").iterdir()} == metadata
    generation = 1 if old == new else 2
    assert names(folder / "shards") == [str(generation)]
    for _ in range(2):
        found = start_node(folder)
        assert (found.layout.shard_count, found.layout.generation) == (new, generation)
        assert found.groups == before.groups
        assert found.ceilings == before.ceilings


def test_there_and_back(original: Path, wanted: Found, tmp_path: Path) -> None:
    folder = copy_folder(original, tmp_path / "data")
    for generation, count in enumerate((3, 2, 1), start=2):
        change(folder, count)
        assert read_layout(folder)[1] == generation
        assert names(folder / "shards") == [str(generation)]
        assert start_node(folder).groups == wanted.groups
    assert start_node(folder).layout.shard_count == 1


def test_a_new_folder(tmp_path: Path) -> None:
    with hold_folder(tmp_path):
        format_folder(tmp_path, configs())
        change_shard_count(tmp_path, configs(), 3)
    for _ in range(2):
        found = start_node(tmp_path)
        assert (found.layout.shard_count, found.groups) == (3, {})


def test_the_new_stores_are_of_one_start_with_the_metadata(original: Path, tmp_path: Path) -> None:
    """DK16: an older copy of the metadata is still found out, and the next start has a number."""
    folder = copy_folder(original, tmp_path / "data")
    old = copy_folder(folder / "metadata", tmp_path / "metadata")
    start_node(folder)
    change(folder, 2)
    for path in store_folders(folder, read_layout(folder)[0]):
        payload = choose_superblock((path / SUPERBLOCK_NAME).read_bytes()).payload
        assert decode_superblock(payload).start == START + 1
    newer = copy_folder(folder, tmp_path / "newer")
    for path in (newer / "metadata").iterdir():
        path.unlink()
    for path in old.iterdir():
        path.rename(newer / "metadata" / path.name)
    with pytest.raises(FolderRefusedError, match="metadata is as of start 5 of the node, and"):
        start_node(newer)
    for _ in range(2):
        start_node(folder)


def test_a_loss_of_power_before_the_change_is_known_after_it(
    original: Path, tmp_path: Path
) -> None:
    """FM-7: and a second boot adds none, for the new stores were synced."""
    folder = copy_folder(original, tmp_path / "data")
    before = start_node(copy_folder(folder, tmp_path / "copy"), boot_identity=OTHER_BOOT)
    assert all(group.state.is_tail_lost for group in before.groups.values())
    change(folder, 2, boot_identity=OTHER_BOOT)
    for boot_identity in (OTHER_BOOT + 1, OTHER_BOOT + 2):
        found = start_node(folder, boot_identity=boot_identity)
        shards = {number: found.groups[number] for number in found.groups if number < 1 << 63}
        assert shards == {number: before.groups[number] for number in shards}


def test_evidence_of_cut_bytes_is_kept(original: Path, tmp_path: Path) -> None:
    folder = copy_folder(original, tmp_path / "data")
    store = folder / "shards" / "1" / "0"
    (store / "quarantine.1").write_bytes(b"journal.0 64 4\nold!")
    files = {each.name: each.read_bytes() for each in store.glob("journal.*")}
    key = journal_key(identity_of(configs()[1], 0))
    last = scan_journal(files, files_count=4, key=key).heads[-1]
    with (store / journal_name(last.file)).open("r+b") as journal:
        journal.seek(last.position + last.length)
        journal.write(b"torn")
    change(folder, 2)
    kept = [each.read_bytes() for each in sorted(folder.glob("shards/2/0/quarantine.*"))]
    assert kept[0] == b"journal.0 64 4\nold!"
    assert b"torn" in kept[1]


# What is refused.


def test_a_damaged_store_is_refused_and_nothing_is_changed(original: Path, tmp_path: Path) -> None:
    folder = copy_folder(original, tmp_path / "data")
    journal = folder / "shards" / "1" / "0" / "journal.0"
    data = bytearray(journal.read_bytes())
    data[300] ^= 1
    journal.write_bytes(data)
    before = image(folder)
    with pytest.raises(FolderRefusedError, match=r"shards/1/0: journal\.0 at byte "):
        change(folder, 2)
    assert image(folder) == before


def test_stores_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    fill_folder(folder, 2)
    strange = tmp_path / "strange"
    fill_folder(strange, 1)
    target = folder / "shards" / "1" / "0"
    for path in (strange / "shards" / "1" / "0").iterdir():
        path.rename(target / path.name)
    before = image(folder)
    with pytest.raises(FolderRefusedError, match="which belongs to another of 2 shards"):
        change(folder, 3)
    assert image(folder) == before


def test_a_layout_record_of_an_older_copy_is_refused(original: Path, tmp_path: Path) -> None:
    """DK16: the generation that a node has used since is never removed."""
    folder = copy_folder(original, tmp_path / "data")
    old = copy_folder(folder, tmp_path / "old")
    change(folder, 2)
    start_node(folder)
    (old / "layout").rename(folder / "layout")
    with pytest.raises(FolderRefusedError, match="1/0 is missing"):
        start_node(folder)
    # Even where the old stores are of one start with the metadata.
    (old / "shards" / "1").rename(folder / "shards" / "1")
    for path in (old / "metadata").iterdir():
        path.rename(folder / "metadata" / path.name)
    before = image(folder)
    for begin in (start_node, lambda folder: change(folder, 4)):
        with pytest.raises(FolderRefusedError, match="shards/2: a node may have used these stores"):
            begin(folder)
    assert image(folder) == before


def test_what_is_not_a_generation_stays(original: Path, tmp_path: Path) -> None:
    folder = copy_folder(original, tmp_path / "data")
    shards = folder / "shards"
    for name in ("7.tmp", "0", "notes", "01"):
        (shards / name / "0").mkdir(parents=True)
    (shards / "9").symlink_to("1")
    (shards / "8").write_bytes(b"")
    start_node(folder)
    assert names(shards) == ["01", "1", "8", "9", "notes"]


def image(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files but the locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


# Every end of the change (PR4).


def count_steps(original: Path, count: int) -> list[Step]:
    with TemporaryDirectory(prefix="headrace-shards-") as name:
        folder = copy_folder(original, Path(name) / "data")
        with held_and_counted(folder) as calls:
            change_shard_count(folder, configs(), count)
        return calls.steps


def chosen_steps(steps: list[Step]) -> list[int]:
    """Return the first, middle and last occurrence of each kind of call."""
    found: dict[str, list[int]] = {}
    for step in steps:
        found.setdefault(step.call, []).append(step.number)
    return sorted({each[at] for each in found.values() for at in (0, len(each) // 2, -1)})


def judge(folder: Path, wanted: Found, where: str) -> int:
    """Start a node twice: it has one of the two generations whole; return the number of shards."""
    counts = []
    for _ in range(2):
        found = start_node(folder)
        assert found.groups == wanted.groups, where
        assert found.ceilings == wanted.ceilings, where
        assert names(folder / "shards") == [str(found.layout.generation)], where
        assert "layout.tmp" not in names(folder), where
        counts.append(found.layout.shard_count)
    assert counts[0] == counts[1], where
    return counts[0]


def end_at(original: Path, wanted: Found, number: int) -> list[int]:
    """End the change before a call; return the numbers of shards that each kind of end leaves."""
    with TemporaryDirectory(prefix="headrace-shards-") as name:
        folder = copy_folder(original, Path(name) / "data")
        medium = Medium(folder)
        with held_and_counted(folder) as calls:
            calls.at, calls.medium = number, medium
            with pytest.raises(EndedError):
                change_shard_count(folder, configs(), 2)
        step = f"{calls.steps[-1]}"
        left = []
        for survival in Survival:
            target = Path(name) / survival.value
            medium.leave(target, survival, Prng(number))
            left.append(judge(target, wanted, f"{step}, power failed, {survival} survived"))
        with counted_calls() as calls:
            calls.medium = medium
            left.append(judge(folder, wanted, f"{step}, killed"))
        target = Path(name) / "later"
        medium.leave(target, Survival.NOTHING, Prng(number))
        medium.close()
        assert judge(target, wanted, f"{step}, killed, then power failed") == left[-1]
        change(folder, 3)
        assert start_node(folder).groups == wanted.groups, step
        return left


def test_the_change_has_every_kind_of_step(original: Path) -> None:
    calls = {step.call for step in count_steps(original, 2)}
    assert calls >= {"pwrite", "fsync", "rename", "unlink", "rmdir", "mkdir", "posix_fallocate"}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_a_change_that_ends_at_any_step_leaves_a_whole_node(
    original: Path, wanted: Found, part: int
) -> None:
    for step in count_steps(original, 2)[part::8]:
        end_at(original, wanted, step.number)


def test_a_change_that_ends_leaves_the_old_or_the_new_generation(
    original: Path, wanted: Found
) -> None:
    steps = count_steps(original, 2)
    chosen = chosen_steps([step for step in steps if step.call in ("rename", "rmdir")])
    left = [end_at(original, wanted, each) for each in chosen]
    assert left[0] == [1, 1, 1, 1]
    assert left[-1] == [2, 2, 2, 2]
    for kind in range(4):
        counts = [each[kind] for each in left]
        assert counts == sorted(counts), "there is one moment from which the new one counts"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_of_the_disk_at_any_step_leaves_a_whole_node(
    original: Path, wanted: Found, code: int, tmp_path: Path
) -> None:
    """DK4, DK5: the change reports it, or it was done already."""

    def fail() -> BaseException:
        return OSError(code, os.strerror(code))

    steps = count_steps(original, 2)
    writing = next(step.number for step in steps if step.call == "mkdir")
    told = 0
    for number in chosen_steps(steps):
        folder = copy_folder(original, tmp_path / str(number))
        with held_and_counted(folder) as calls:
            calls.at, calls.error = number, fail
            why = failure_of(folder)
        if number >= writing and why is not None:
            assert isinstance(why, ChangeFailedError)
            assert "could not be changed from 1 to 2" in str(why)
            assert os.strerror(code) in str(why)
            told += 1
        judge(folder, wanted, f"{steps[number - 1]} failed")
    assert told > 5


def failure_of(folder: Path) -> Exception | None:
    try:
        change_shard_count(folder, configs(), 2)
    except (ChangeFailedError, DiskFailedError, OSError) as error:
        return error
    return None


def test_what_cannot_be_written_is_removed_at_once(original: Path, tmp_path: Path) -> None:
    """DK4: on a full disk, the new stores may be what fills it."""
    folder = copy_folder(original, tmp_path / "data")
    before = image(folder)
    last_write = [step.number for step in count_steps(original, 2) if step.call == "pwrite"][-2]
    with held_and_counted(folder) as calls:
        calls.at, calls.error = last_write, lambda: OSError(errno.ENOSPC, "full")
        with pytest.raises(ChangeFailedError, match="full; the node goes on with the generation"):
            change_shard_count(folder, configs(), 2)
    assert names(folder / "shards") == ["1"]
    assert image(folder) == before
    check_layout(folder, configs()[0])
