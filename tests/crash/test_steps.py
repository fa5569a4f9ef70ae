"""Lane X in small: a life ended at some of its steps, evenly chosen (PR4). About 40 s."""

from pathlib import Path

import pytest

from tests.crash.faults import Action, Call
from tests.crash.steps import count_steps, end_at, end_recovery_at

pytestmark = pytest.mark.slow

PARTS = 10
_POINTS_PER_PART = 3

# The files that the scripted life must touch, or its steps prove little.
WANTED = (
    (Call.WRITE, "journal"),
    (Call.SYNC, "journal"),
    (Call.ALLOCATE, "journal"),
    (Call.WRITE, "superblock"),
    (Call.SYNC, "superblock"),
    (Call.SYNC, "checkpoint.tmp"),
    (Call.RENAME, "checkpoint"),
    (Call.UNLINK, "checkpoint"),
    (Call.RENAME, "layout"),
    (Call.RENAME, "marker"),
    (Call.CREATE, "log"),
    (Call.WRITE, "log"),
    (Call.SYNC, "log"),
    (Call.UNLINK, "log"),
    (Call.RENAME, "index"),
    (Call.SYNC, "folder"),
)


@pytest.fixture(scope="module")
def steps_count(library: Path) -> int:
    return len(count_steps(library))


def test_the_scripted_life_has_every_durable_step(library: Path) -> None:
    kinds = {step.kind for step in count_steps(library)}
    assert [wanted for wanted in WANTED if wanted not in kinds] == []


@pytest.mark.parametrize("part", range(PARTS))
def test_a_life_ended_at_a_step_leaves_what_was_before_or_after(
    library: Path, steps_count: int, part: int
) -> None:
    points = PARTS * _POINTS_PER_PART
    for number in range(part, points, PARTS):
        end_at(library, 1 + number * steps_count // points, Action.KILL)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_write_torn_in_the_middle_leaves_what_was_before_or_after(
    library: Path, steps_count: int, share: float
) -> None:
    """DK6: half of the bytes of a write have arrived."""
    end_at(library, int(steps_count * share), Action.TEAR)


@pytest.mark.parametrize("number", [10, 18, 26])
def test_a_start_ended_at_a_step_is_begun_again(
    library: Path, steps_count: int, number: int
) -> None:
    """PR5: recovery from the first crash is ended by a second one."""
    ending = end_recovery_at(library, steps_count // 2, number)
    assert ending.step is not None
