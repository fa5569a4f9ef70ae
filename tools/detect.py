"""Measures the simulator: after how many fresh seeds does it see each planted bug?

    python -m tools.detect --jobs 2             # every bug, at most 60 s each
    python -m tools.detect --only rot_is_cut    # one bug
    python -m tools.detect --table              # the records, newest last

Seeds begin at the tree's own, so every commit is measured with others. A seed counts if the run
fails with the bug and passes without it. A line per bug is added to `tests/planted/detections.csv`:
the trend over commits is the measure of the simulator. Bugs that no seed shows in time are listed;
scenarios show every bug (`tests/planted`), so this is no test.
"""

import argparse
import csv
import multiprocessing
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from headrace.sim.outcome import Outcome, Report
from tests.planted import of_groups
from tests.planted.bugs import BUGS
from tests.planted.planting import plant
from tools import simulate

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "tests" / "planted" / "detections.csv"
UNSEEN = "-"


class Detection(msgspec.Struct, frozen=True):
    """What the search for one bug came to; the code is `UNSEEN` if no seed showed the bug."""

    commit: str
    bug: str
    seeds: int
    seconds: float
    code: str


class Order(msgspec.Struct, frozen=True):
    """One search: this bug, from this seed on, for so many seconds at most."""

    commit: str
    bug: str
    first_seed: int
    seconds_max: float


def detect(order: Order) -> Detection:
    """Run seeds with the bug until one shows it, or time is up."""
    simulation = simulate.GROUPS if order.bug in of_groups.BUGS else simulate.NODES
    began = time.monotonic()
    seeds = 0
    code = UNSEEN
    while code == UNSEEN and time.monotonic() - began < order.seconds_max:
        code = _code_of(order.bug, simulation.run_seed, order.first_seed + seeds)
        seeds += 1
    return Detection(order.commit, order.bug, seeds, round(time.monotonic() - began, 1), code)


def _code_of(bug: str, run: Callable[[int], Report], seed: int) -> str:
    """Return the rule that a seed breaks with the bug alone, or `UNSEEN`."""
    with plant(BUGS[bug]):
        report = run(seed)
    if report.outcome == Outcome.LIVENESS:
        # Any bug changes the course of a run, and may meet a stall that it has not made.
        code = "liveness" if BUGS[bug].is_stall else UNSEEN
    elif report.outcome == Outcome.VIOLATION:
        code = report.reason.split(":", 1)[0]
    else:
        code = UNSEEN
    if code != UNSEEN and run(seed).outcome != Outcome.PASS:
        return UNSEEN
    return code


def read_records() -> list[Detection]:
    """Return all records, oldest first."""
    if not RECORDS.exists():
        return []
    with RECORDS.open(newline="") as file:
        return [msgspec.convert(row, Detection, strict=False) for row in csv.DictReader(file)]


def record(detection: Detection) -> None:
    """Add one record."""
    is_new = not RECORDS.exists()
    with RECORDS.open("a", newline="") as file:
        writer = csv.DictWriter(file, Detection.__struct_fields__, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(msgspec.to_builtins(detection))


def show_table(records: list[Detection]) -> None:
    """Print how many bugs each commit's seeds showed, and every bug's records."""
    by_commit: dict[str, list[Detection]] = {}
    by_bug: dict[str, list[Detection]] = {}
    for each in records:
        by_commit.setdefault(each.commit, []).append(each)
        by_bug.setdefault(each.bug, []).append(each)
    for bug, found in by_bug.items():
        print(f"{bug:36} " + " ".join(_told(each) for each in found))
    for commit, found in by_commit.items():
        seen = [each.seeds for each in found if each.code != UNSEEN]
        median = statistics.median(seen) if seen else 0
        print(f"{commit}: {len(seen)} of {len(found)} bugs seen, median {median:.0f} seeds")


def _told(each: Detection) -> str:
    return f">{each.seeds}" if each.code == UNSEEN else f"{each.seeds}"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    ended = subprocess.run(  # noqa: S603 - git, with our own words
        command, check=True, capture_output=True, text=True
    )
    return ended.stdout.strip()


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", action="append", choices=list(BUGS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60, help="for each bug, at most")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the records and do nothing")
    arguments = parser.parse_args()
    if arguments.table:
        show_table(read_records())
        return
    commit, first = _commit(), simulate.tree_seed()
    orders = [
        Order(commit, name, first, arguments.seconds) for name in arguments.only or list(BUGS)
    ]
    with multiprocessing.Pool(arguments.jobs) as pool:
        for found in pool.imap_unordered(detect, orders):
            record(found)
            print(f"{found.bug:36} {_told(found):>6} seeds {found.seconds:6.1f} s {found.code}")
    show_table([each for each in read_records() if each.commit == commit])


if __name__ == "__main__":
    main()
