"""Known holes in what the locks pin: pip-audit asks an advisory service, this judges its answers.

    python -m tools.audit --pip-audit .venv-audit/bin/pip-audit requirements/runtime.lock ...

pip-audit passes over what the service does not answer for, says that it found nothing, and ends
with 0. So what counts here is not that nothing was found, but that every package was looked at.
Ends with 0: all were, and have no known hole. 1: there are holes. 3: some could not be looked at.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.lockfile import Locked, read_lock

CLEAN, HOLES, UNKNOWN = 0, 1, 3
SECONDS_MAX = 600
_OPTIONS = ("--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off")


class Verdict(NamedTuple):
    """What is known of the packages of a lock."""

    audited: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()  # installed on other platforms than this one only
    holes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # each with the reason

    @property
    def code(self) -> int:
        """How the audit ends; a hole that is known outweighs what is not."""
        if self.holes:
            return HOLES
        return UNKNOWN if self.unknown or not self.audited else CLEAN


def judge(packages: Sequence[Locked], report: str, complaint: str) -> Verdict:
    """Read what pip-audit printed about a lock, and what it complained of."""
    try:
        answers = {each["name"]: each for each in json.loads(report)["dependencies"]}
    except (json.JSONDecodeError, KeyError, TypeError):
        last = (complaint.strip().splitlines() or ["no report"])[-1]
        return Verdict(unknown=tuple(f"{package.name}: {last}" for package in packages))
    verdict = Verdict()
    for package in packages:
        verdict = _add(verdict, package, answers.get(package.name))
    return verdict


def _add(verdict: Verdict, package: Locked, answer: dict[str, Any] | None) -> Verdict:
    name = f"{package.name} {package.version}"
    if answer is None and package.marker:
        return verdict._replace(elsewhere=(*verdict.elsewhere, name))
    if answer is None or "vulns" not in answer or answer.get("version") != package.version:
        reason = "not in the report" if answer is None else answer.get("skip_reason", "no answer")
        return verdict._replace(unknown=(*verdict.unknown, f"{name}: {reason}"))
    holes = [
        f"{name}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for hole in answer["vulns"]
    ]
    return verdict._replace(audited=(*verdict.audited, name), holes=(*verdict.holes, *holes))


def describe(lock: Path, verdict: Verdict) -> str:
    """Say what is known of a lock, and what is not."""
    head = f"{lock}: no package was looked at"
    if verdict.audited:
        head = f"{lock}: {len(verdict.audited)} packages looked at,"
        head += f" {len(verdict.holes)} known holes among them"
    lines = [head]
    if verdict.elsewhere:
        lines.append(f"  not for this platform: {', '.join(verdict.elsewhere)}")
    lines += [f"  HOLE {hole}" for hole in verdict.holes]
    if verdict.unknown:
        lines.append(
            f"  NOT AUDITED: {len(verdict.unknown)} packages. The advisory service could not be"
            " reached or does not know them, so nothing is known about their holes. Run this where"
            " the service can be reached."
        )
        lines += [f"  unknown {each}" for each in verdict.unknown]
    return "\n".join(lines)


def audit(pip_audit: Path, lock: Path) -> Verdict:
    """Have pip-audit ask about a lock; give what is known then."""
    packages = read_lock(lock)
    try:
        done = subprocess.run(  # noqa: S603 - its own environment's tool, on our lock
            [str(pip_audit), "--requirement", str(lock), *_OPTIONS],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return judge(packages, "", f"no answer within {SECONDS_MAX} s")
    return judge(packages, done.stdout, done.stderr)


def main() -> int:
    """Audit the locks that are named; give the worst of their codes."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.audit", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--pip-audit", type=Path, required=True, metavar="PROGRAM")
    parser.add_argument("locks", type=Path, nargs="+", metavar="LOCK")
    asked = parser.parse_args()
    codes = []
    for lock in asked.locks:
        verdict = audit(asked.pip_audit, lock)
        print(describe(lock, verdict), flush=True)
        codes.append(verdict.code)
    return HOLES if HOLES in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main())
