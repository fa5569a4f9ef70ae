"""Another number of shards, in processes that die and on the folder of a real node (O2.5, PR4)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from headrace.runtime.host import boot_identity
from headrace.server.doctor.examine import examine
from headrace.server.doctor.report import Report, Verdict
from headrace.server.folders import hold_folder, read_layout
from headrace.server.generations import change_shard_count
from headrace.storage.config import StoreConfig
from tests.crash.damage import Original, Patient, make_original
from tests.crash.faults import Action, Faults, Step
from tests.server.durable_calls import EndedError, counted_calls
from tests.server.filled_folder import Found, copy_folder, fill_folder, start_node

pytestmark = pytest.mark.slow

_POINTS = 24
_PARTS = 4


@pytest.fixture(scope="module")
def filled() -> Iterator[Path]:
    with TemporaryDirectory(prefix="headrace-crash-") as folder:
        made = Path(folder) / "data"
        fill_folder(made, 2)
        yield made


@pytest.fixture(scope="module")
def wanted(filled: Path) -> Found:
    return start_node(copy_folder(filled, filled.with_name("started")))


def run_change(folder: Path, faults: Faults) -> int:
    """Change the number of shards to 3 in a process of its own; return its code."""
    driver = Path(__file__).with_name("changed_node.py")
    done = subprocess.run(
        [sys.executable, str(driver), str(folder), "3"],
        env={
            **os.environ,
            **faults.environment(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def end_at(library: Path, filled: Path, wanted: Found, share: float, action: Action) -> Step | None:
    """End a change at a part of its steps, and start a node twice."""
    with TemporaryDirectory(prefix="headrace-crash-") as name:
        folder = copy_folder(filled, Path(name) / "data")
        faults = Faults(Path(name), library)
        faults.count()
        if action is not Action.NOTHING:
            count = _count(library, filled)
            faults.order(action, first=1 + int(share * count), count=1)
        code = run_change(folder, faults)
        step = faults.steps()[-1] if faults.steps() else None
        faults.close()
        assert code == (0 if action is Action.NOTHING else -9)
        for _ in range(2):
            found = start_node(folder)
            assert found.layout.shard_count in (2, 3), step
            assert found.groups == wanted.groups, step
            assert found.ceilings == wanted.ceilings, step
        return step


def _count(library: Path, filled: Path) -> int:
    if library not in _counted:
        with TemporaryDirectory(prefix="headrace-crash-") as name:
            folder = copy_folder(filled, Path(name) / "data")
            faults = Faults(Path(name), library)
            faults.count()
            assert run_change(folder, faults) == 0
            _counted[library] = faults.counted
            faults.close()
    return _counted[library]


_counted: dict[Path, int] = {}


def bad(report: Report) -> dict[str, Verdict]:
    return {each.path: each.verdict for each in report.files if each.verdict != Verdict.FINE}


def test_a_change_that_nothing_disturbs(library: Path, filled: Path, wanted: Found) -> None:
    assert end_at(library, filled, wanted, 0, Action.NOTHING) is not None


@pytest.mark.parametrize("part", range(_PARTS))
def test_a_killed_change_leaves_a_whole_node(
    library: Path, filled: Path, wanted: Found, part: int
) -> None:
    for point in range(part, _POINTS, _PARTS):
        end_at(library, filled, wanted, point / _POINTS, Action.KILL)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7])
def test_a_write_torn_in_the_middle_leaves_a_whole_node(
    library: Path, filled: Path, wanted: Found, share: float
) -> None:
    """DK6."""
    end_at(library, filled, wanted, share, Action.TEAR)


# A real node, its segments and its messages.


@pytest.fixture(scope="module")
def original() -> Iterator[Original]:
    with TemporaryDirectory(prefix="headrace-crash-") as folder:
        yield make_original(Path(folder))


def change(folder: Path, count: int) -> None:
    made = StoreConfig(
        cluster=read_layout(folder)[0].cluster,
        replica=0,
        replica_count=1,
        journal_bytes_max=4 << 20,
        journal_files=4,
        record_bytes_max=1 << 20,
        boot_identity=boot_identity(),
    )
    shard = msgspec.structs.replace(made, journal=1)
    with hold_folder(folder):
        change_shard_count(folder, (made, shard), count)


@pytest.mark.parametrize("count", [2, 3])
def test_a_node_serves_the_same_messages_whatever_the_number_of_its_shards(
    original: Original, tmp_path: Path, count: int
) -> None:
    patient = Patient(original, tmp_path)
    node = patient.copy()
    before = segments_of(examine(node.data))
    change(node.data, count)
    report = examine(node.data)
    assert not report.is_damaged
    assert segments_of(report) == before, "the doctor finds each partition in its shard"
    for _ in range(2):
        assert patient.judge(node)[0] == "intact"
    assert not examine(node.data).is_damaged
    change(node.data, 1)
    for _ in range(2):
        assert patient.judge(node)[0] == "intact"


def test_the_doctor_knows_what_an_interrupted_change_leaves(
    original: Original, tmp_path: Path
) -> None:
    """PR4: it is not damaged, and the start that it speaks of puts it right."""
    kinds = set()
    for number in range(1, 400, 3):
        folder = copy_folder(original.data, tmp_path / str(number))
        with counted_calls() as calls:
            calls.at = number
            is_ended = False
            try:
                change(folder, 2)
            except EndedError:
                is_ended = True
        report = examine(folder)
        assert not report.is_damaged, calls.steps[-1]
        left = [each for each in report.files if each.what == "left-over"]
        assert {each.verdict for each in left} <= {Verdict.REPAIRED}
        kinds |= {each.path.split("/")[1] if "/" in each.path else each.path for each in left}
        change(folder, read_layout(folder)[0].shard_count)  # removes what is left
        assert [each for each in examine(folder).files if each.what == "left-over"] == []
        if not is_ended:
            break
    else:
        pytest.fail("the change has no end")
    assert kinds >= {"1.tmp", "2", "2.tmp", "layout.tmp"}


@pytest.mark.parametrize("count", [2, 3])
def test_damage_to_one_shard_is_named_and_the_others_are_judged(
    original: Original, tmp_path: Path, count: int
) -> None:
    node = Patient(original, tmp_path).copy()
    change(node.data, count)
    owner = max(node.data.glob("shards/2/*/journal.0"), key=lambda path: path.stat().st_size)
    data = bytearray(owner.read_bytes())
    data[200] ^= 1
    owner.write_bytes(data)
    report = examine(node.data)
    assert bad(report)[owner.relative_to(node.data).as_posix()] == Verdict.DAMAGED
    fine = [
        each for each in report.files if each.what == "segment" and each.text.startswith("seal")
    ]
    assert fine, "segments are still read by their checkpoints"


def segments_of(report: Report) -> dict[str, tuple[Verdict, str, str]]:
    return {
        each.path: (each.verdict, each.text, each.partition)
        for each in report.files
        if each.path.startswith("partitions/")
    }
