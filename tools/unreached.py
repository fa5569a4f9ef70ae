"""Tells what neither tests nor the simulator reach of the core: the end of `make coverage`.

    python -m tools.unreached build/coverage/report.json

Prints lines and branches per package, then every branch that was not taken and stands in no line
of `tests/unreached.txt`. A line there reads `path: source line -> target line: reason`; one that
fits no branch of the source any more is listed too. The exit code is 1 if anything is listed. That
a run reaches what is explained is no fault: the seeds change with the source.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
EXPLAINED = ROOT / "tests" / "unreached.txt"
SOURCE = "src/headrace/"


class Sums(NamedTuple):
    """Lines and branches: all, and those that were reached."""

    lines: int = 0
    lines_reached: int = 0
    branches: int = 0
    branches_reached: int = 0

    def __str__(self) -> str:
        lines = 100 * self.lines_reached / max(1, self.lines)
        branches = 100 * self.branches_reached / max(1, self.branches)
        return f"lines {lines:5.1f} %  branches {branches:5.1f} % of {self.branches}"


def add(one: Sums, other: Sums) -> Sums:
    """Return the sums of both."""
    return Sums(*(left + right for left, right in zip(one, other, strict=True)))


def branch_name(path: str, source: list[str], branch: tuple[int, int]) -> str:
    """Return what a branch is called: its file, its line and where it would go, by their texts."""
    start, target = (abs(line) for line in branch)
    where = "exit" if branch[1] < 0 else source[target - 1].strip()
    return f"{path.removeprefix(SOURCE)}: {source[start - 1].strip()} -> {where}"


def main() -> int:
    """Print the report; return the exit code."""
    report = json.loads(Path(sys.argv[1]).read_text())
    packages: dict[str, Sums] = {}
    missing: dict[str, None] = {}
    reached: dict[str, None] = {}
    for path, facts in sorted(report["files"].items()):
        told = facts["summary"]
        sums = Sums(
            told["num_statements"],
            told["covered_lines"],
            told["num_branches"],
            told["covered_branches"],
        )
        package = path.removeprefix(SOURCE).split("/")[0]
        packages[package] = add(packages.get(package, Sums()), sums)
        source = (ROOT / path).read_text().splitlines()
        for names, branches in (
            (missing, facts["missing_branches"]),
            (reached, facts["executed_branches"]),
        ):
            names |= {branch_name(path, source, (one, other)): None for one, other in branches}
    total = Sums()
    for package, sums in packages.items():
        print(f"{package:12} {sums}")
        total = add(total, sums)
    print(f"{'all':12} {total}")
    return show_missing(missing, [*missing, *reached])


def show_missing(missing: dict[str, None], known: list[str]) -> int:
    """Print what is not explained, and explanations of what is gone; return the exit code."""
    explained = [
        line
        for line in (EXPLAINED.read_text().splitlines() if EXPLAINED.exists() else [])
        if line and not line.startswith("#")
    ]
    unexplained = [
        name for name in missing if not any(line.startswith(f"{name}: ") for line in explained)
    ]
    stale = [line for line in explained if not any(line.startswith(f"{name}: ") for name in known)]
    for name in unexplained:
        print(f"not reached: {name}")
    for line in stale:
        print(f"gone: {line}")
    print(
        f"{len(missing)} branches not reached, {len(unexplained)} of them not explained;"
        f" {len(stale)} explanations too many"
    )
    return 1 if unexplained or stale else 0


if __name__ == "__main__":
    sys.exit(main())
