"""DK10, DK11, DK14, DK17, DK19 on a real node. About 40 s of the storage share."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.crash.damage import FILE_TYPES, Original, Patient, make_original
from tests.crash.process import CrashNode, crash_node

pytestmark = pytest.mark.slow

# One for each way to read wrong: a changed bit, other bytes, too few. The night has all five.
KINDS = ("bit", "block", "truncation")
STRICT = ("marker", "metadata marker", "checkpoint", "metadata checkpoint")


@pytest.fixture(scope="module")
def original() -> Iterator[Original]:
    with TemporaryDirectory(prefix="headrace-damage-") as folder:
        yield make_original(Path(folder))


@pytest.fixture
def patient(original: Original) -> Iterator[Patient]:
    with TemporaryDirectory(prefix="headrace-damage-") as folder:
        yield Patient(original, Path(folder))


def test_without_damage_all_is_well(patient: Patient) -> None:
    assert patient.judge(patient.copy())[0] == "intact"


@pytest.mark.parametrize("damage", KINDS)
@pytest.mark.parametrize("file_type", FILE_TYPES)
def test_damage_is_refused_repaired_or_an_error(
    patient: Patient, file_type: str, damage: str
) -> None:
    case = patient.damage_one(file_type, damage, random.Random(f"{file_type} {damage}"))
    if file_type == "index":
        assert case.outcome == "intact", case
    elif file_type in STRICT:
        assert case.outcome == "refused", case
    elif file_type == "segment body" and damage == "truncation":
        # What the checkpoint does not vouch for is in the journal, and is written again.
        assert case.outcome in ("error", "intact"), case
    elif file_type.startswith("segment"):
        assert case.outcome == "error", case


@pytest.mark.parametrize("length", [0, 1 << 19])
def test_a_journal_that_lost_its_end_is_refused(patient: Patient, length: int) -> None:
    """DK11: no record is left to say what was synced, but the file was longer once."""
    names = [f"shards/1/0/journal.{number}" for number in range(4)]
    outcomes = [patient.truncate(name, length).outcome for name in names]
    assert outcomes.count("refused") >= 2, outcomes  # the newest one, and the one after it
    assert outcomes.count("cut") == 0, outcomes


@pytest.mark.parametrize("file_type", FILE_TYPES)
def test_a_missing_file_is_refused_made_anew_or_an_error(patient: Patient, file_type: str) -> None:
    """DK14: nothing is taken for a new node, and no file is made anew but an index (finding 12)."""
    case = patient.remove_one(FILE_TYPES[file_type].pattern, random.Random(file_type))
    if file_type == "index":
        assert case.outcome == "intact", case
    elif file_type.startswith("segment"):
        assert case.outcome == "error", case
    elif "journal" not in file_type:
        assert case.outcome == "refused", case


@pytest.mark.parametrize("pattern", ["metadata", "shards/1/0", "shards", "partitions"])
def test_a_missing_folder_is_refused_or_an_error(patient: Patient, pattern: str) -> None:
    case = patient.remove_one(pattern, random.Random(0))
    assert case.outcome == ("error" if pattern == "partitions" else "refused"), case


@pytest.mark.parametrize(
    ("one", "other"), [("partitions/0/0", "partitions/0/1"), ("metadata", "shards/1/0")]
)
def test_swapped_folders_are_known(patient: Patient, one: str, other: str) -> None:
    """DK17."""
    node = patient.copy()
    swap(node.data / one, node.data / other)
    outcome, said = patient.judge(node)
    assert outcome == ("error" if one.startswith("partitions") else "refused"), said


def test_a_store_of_another_node_is_refused(patient: Patient, original: Original) -> None:
    """DK17: the metadata of one node with the partitions of another."""
    with crash_node() as stranger:
        stranger.start()
        stranger.stop()
        node = patient.copy()
        swap(node.data / "shards" / "1" / "0", stranger.data / "shards" / "1" / "0")
        assert patient.judge(node)[0] == "refused"


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    shutil.move(one, aside)
    shutil.move(other, one)
    shutil.move(aside, other)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """DK19: and the first one does not notice."""
    with crash_node() as first:
        first.start()
        second = CrashNode(tmp_path, data=first.data)
        assert f"in use by process {first.pid}" in second.refusal()
        first.check_alive()
        first.stop()
