"""Every planted bug is bound to scenarios that fail with it."""

from pathlib import Path

import pytest

from tests.planted.bugs import BUGS
from tests.planted.planting import Bug, Edit, plant
from tests.scenarios import FILES, bugs_shown, name_of, open_stage, render


def _id_of(each: str | Path) -> str:
    return each if isinstance(each, str) else name_of(each)


SHOWN = [(name, path) for path in FILES for name in bugs_shown(path)]


def test_every_bug_is_shown_by_a_scenario() -> None:
    shown = dict(SHOWN)
    assert [name for name in BUGS if name not in shown] == []


def test_every_name_in_a_scenario_is_that_of_a_bug() -> None:
    assert [(name, path) for name, path in SHOWN if name not in BUGS] == []


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_fits_the_code_and_leaves_it_as_it_was(name: str) -> None:
    functions = [edit.function for edit in BUGS[name].edits]
    before = [function.__code__ for function in functions]
    with plant(BUGS[name]):
        planted = [function.__code__ for function in functions]
    after = [function.__code__ for function in functions]
    assert all(one is not other for one, other in zip(before, planted, strict=True))
    assert after == before


def test_a_bug_that_no_longer_fits_is_an_error() -> None:
    gone = Bug("gone", "", (Edit(render, "text that is not there", ""),), is_stall=False)
    with pytest.raises(AssertionError, match="gone"), plant(gone):
        pass


@pytest.mark.parametrize(("name", "path"), SHOWN, ids=_id_of)
def test_a_scenario_fails_with_a_bug(name: str, path: Path) -> None:
    text = path.read_text()
    with plant(BUGS[name]):
        try:
            is_seen = render(text, open_stage(path)) != text
        except Exception:  # noqa: BLE001 - an assertion of the core, or a command that cannot go on
            is_seen = True
    assert is_seen, f"{name_of(path)} passes although {name} is planted"
