"""Makes mutants of the core and looks which of them no test sees.

    python -m tools.mutate                      # the next part of the sample, for an hour at most
    python -m tools.mutate --minutes 10 --jobs 2
    python -m tools.mutate --again              # survivors once more, as after new tests
    python -m tools.mutate --list               # survivors by name

A mutant is one small edit of the core (`tools/mutants.py`). It runs against all scenarios, the fast
tests of the core and seeds of both simulators (`tools/checks.py`): first the quick checks of every
lane, then the others; whoever fails first has killed it. All checks of a lane run on the code as it
is before, which tells how long they take and which mutants they reach. If one fails, the tool ends:
it would kill every mutant. A mutant meets only the checks that reach it. Verdicts are kept in
`tests/planted/mutants.csv`, so the next run goes on where this one ended. A survivor is a scenario
that is missing, or is explained in that file.
"""

import argparse
import csv
import multiprocessing
import sys
import time
from collections import Counter
from functools import partial
from itertools import product

import msgspec

from tools.checks import LANES, Measured, measure, preload, run_checks
from tools.mutants import ROOT, Mutant, draw_sample

RECORDS = ROOT / "tests" / "planted" / "mutants.csv"
SURVIVED = "survived"


class Verdict(msgspec.Struct, frozen=True):
    """Who killed a mutant, or `SURVIVED`; and why a survivor does no harm, if it does none."""

    name: str
    killed_by: str
    explanation: str = ""


def read_verdicts() -> dict[str, Verdict]:
    """Return what is recorded, by the names of the mutants."""
    if not RECORDS.exists():
        return {}
    with RECORDS.open(newline="") as file:
        return {row["name"]: msgspec.convert(row, Verdict) for row in csv.DictReader(file)}


def write_verdicts(verdicts: dict[str, Verdict]) -> None:
    """Record all verdicts, by name."""
    with RECORDS.open("w", newline="") as file:
        writer = csv.DictWriter(file, Verdict.__struct_fields__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(msgspec.to_builtins(verdicts[name]) for name in sorted(verdicts))


def show(verdicts: dict[str, Verdict]) -> None:
    """Print the sums, and the survivors with what explains them."""
    lanes = Counter(each.killed_by.partition(":")[0] for each in verdicts.values())
    for lane, count in lanes.most_common():
        print(f"{count:4} {lane}")
    for each in verdicts.values():
        if each.killed_by == SURVIVED:
            print(f"{each.name}\n    {each.explanation or 'not explained'}")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="judge survivors again too")
    parser.add_argument("--list", action="store_true", help="print the verdicts and do nothing")
    arguments = parser.parse_args()
    sample = draw_sample()
    known = read_verdicts()
    verdicts = {each.name: known[each.name] for each in sample if each.name in known}
    if not arguments.list:
        _judge_all(sample, verdicts, arguments)
    show(verdicts)
    print(f"{len(verdicts)} of {len(sample)} judged")


def _judge_all(
    sample: list[Mutant], verdicts: dict[str, Verdict], arguments: argparse.Namespace
) -> None:
    waiting = [
        each
        for each in sample
        if each.name not in verdicts
        or (arguments.again and verdicts[each.name].killed_by == SURVIVED)
    ]
    ends = time.monotonic() + 60 * arguments.minutes
    measured: dict[str, Measured] = {}
    for is_quick, lane in product((True, False), LANES):
        if lane not in measured:
            measured[lane] = measure(waiting, lane)
            if measured[lane].failed:
                sys.exit(f"fails without any mutant: {', '.join(measured[lane].failed)}")
            preload(measured[lane].modules)
        run = partial(_run_lane, lane=lane, measured=measured[lane], is_quick=is_quick)
        alive = []
        with multiprocessing.Pool(arguments.jobs) as pool:
            for mutant, failure in pool.imap_unordered(run, waiting):
                if failure:
                    verdicts[mutant.name] = Verdict(mutant.name, failure)
                    write_verdicts(verdicts)
                    print(f"{failure}\n    {mutant.name}", flush=True)
                else:
                    alive.append(mutant)
                if time.monotonic() > ends:
                    return
        waiting = alive
    for mutant in waiting:
        verdicts.setdefault(mutant.name, Verdict(mutant.name, SURVIVED))
    write_verdicts(verdicts)


def _run_lane(
    mutant: Mutant, *, lane: str, measured: Measured, is_quick: bool
) -> tuple[Mutant, str]:
    checks = measured.select(mutant, is_quick=is_quick)
    failure = run_checks(mutant, lane, checks) if checks else ""
    return mutant, f"{lane}: {failure}" if failure else ""


if __name__ == "__main__":
    main()
