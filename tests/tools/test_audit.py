"""An audit that looked at nothing is never taken for one that found nothing."""

import json
import sys
from pathlib import Path

import pytest

from tools.audit import CLEAN, HOLES, UNKNOWN, audit, describe, judge
from tools.lockfile import Locked

ALPHA = Locked("alpha", "1.0", "", ("a" * 64,), ("shop",))
BETA = Locked("beta", "2.0", "", ("b" * 64,), ("shop",))
WINDOWS = Locked("colorama", "0.4.6", "sys_platform == 'win32'", ("c" * 64,), ("shop",))
GOOD = {"name": "alpha", "version": "1.0", "vulns": []}
# As pip-audit 2.10 printed it, with exit code 0, where the service could not be reached.
SKIPPED = {"name": "beta", "skip_reason": "Dependency not found and could not be audited: beta"}
HOLE = {"id": "PYSEC-2026-1", "fix_versions": ["2.1"], "aliases": [], "description": "bad"}


def report(*answers: object) -> str:
    return json.dumps({"dependencies": answers, "fixes": []})


def test_all_were_looked_at() -> None:
    found = judge([ALPHA, WINDOWS], report(GOOD), "")
    assert found.code == CLEAN
    said = describe(Path("some.lock"), found)
    assert said.splitlines() == [
        "some.lock: 1 packages looked at, 0 known holes among them",
        "  not for this platform: colorama 0.4.6",
    ]


def test_a_hole_is_named_with_its_mend() -> None:
    bad = {"name": "beta", "version": "2.0", "vulns": [HOLE]}
    found = judge([ALPHA, BETA], report(GOOD, bad), "")
    assert found.code == HOLES
    assert found.holes == ("beta 2.0: PYSEC-2026-1, mended in 2.1",)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (report(GOOD, SKIPPED), "could not be audited"),
        (report(GOOD), "not in the report"),
        (report(GOOD, {"name": "beta", "version": "1.9", "vulns": []}), "no answer"),
    ],
    ids=["skipped", "missing", "another version"],
)
def test_what_was_not_looked_at_is_no_result(printed: str, reason: str) -> None:
    found = judge([ALPHA, BETA], printed, "")
    assert found.code == UNKNOWN
    (unknown,) = found.unknown
    assert unknown.startswith("beta 2.0: ")
    assert reason in unknown
    assert "NOT AUDITED: 1 packages" in describe(Path("some.lock"), found)


@pytest.mark.parametrize("printed", ["", "no json", "[]", "{}", '{"dependencies": [1]}'])
def test_no_report_at_all_is_no_result(printed: str) -> None:
    found = judge([ALPHA, BETA], printed, "some words\nConnectionError: no route to host\n")
    assert found.code == UNKNOWN
    said = describe(Path("some.lock"), found)
    assert "known holes" not in said
    assert "no route to host" in said


def test_a_report_of_no_package_is_no_result() -> None:
    assert judge([], report(), "").code == UNKNOWN


def test_a_tool_that_fails_is_no_result(tmp_path: Path) -> None:
    """A real process: one that knows no such options, and ends with an error."""
    lock = tmp_path / "some.lock"
    lock.write_text(f"alpha==1.0 \\\n    --hash=sha256:{'a' * 64}\n    # via shop\n")
    found = audit(Path(sys.executable), lock)
    assert found.code == UNKNOWN
    assert found.audited == ()
