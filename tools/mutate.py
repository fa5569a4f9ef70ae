"""Makes mutants of the core and looks which of them no test sees.

    python -m tools.mutate                      # the next part of the sample, for an hour at most
    python -m tools.mutate --minutes 10 --jobs 2
    python -m tools.mutate --again              # survivors once more, as after new tests
    python -m tools.mutate --only Judge._cuts   # only mutants of this name
    python -m tools.mutate --list               # survivors by name

A mutant is one small edit of the core (`tools/mutants.py`). It runs against all scenarios, the fast
tests of the core and seeds of both simulators (`tools/checks.py`): first the quick checks of every
lane, then the others; whoever fails first has killed it. All checks of a lane run on the code as it
is before, which tells how long they take and which mutants they reach. If one fails, the tool ends:
it would kill every mutant. A mutant meets only the checks that reach it.

`tests/planted/mutants.csv` is the sample, with the verdicts: the next run goes on with those that
have none. A mutant whose code is gone is replaced, and the new one names it. A survivor is a
scenario that is missing, or is explained in that file.
"""

import argparse
import csv
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import product

import msgspec

from tools.checks import LANES, Measured, measure, preload, run_checks
from tools.mutants import ROOT, Mutant, draw_sample

RECORDS = ROOT / "tests" / "planted" / "mutants.csv"
SURVIVED = "survived"
WAITING = ""


class Verdict(msgspec.Struct, frozen=True):
    """One mutant of the sample: who killed it, `SURVIVED`, or `WAITING` if nobody has judged it.

    A survivor that does no harm has an explanation. A mutant that took the place of one whose code
    is gone names that one.
    """

    name: str
    killed_by: str = WAITING
    explanation: str = ""
    replaces: str = ""


def read_verdicts() -> dict[str, Verdict]:
    """Return the sample as it is stored, by the names of the mutants."""
    if not RECORDS.exists():
        return {}
    with RECORDS.open(newline="") as file:
        return {row["name"]: msgspec.convert(row, Verdict) for row in csv.DictReader(file)}


def write_verdicts(verdicts: dict[str, Verdict]) -> None:
    """Store the sample and its verdicts, by name."""
    with RECORDS.open("w", newline="") as file:
        writer = csv.DictWriter(file, Verdict.__struct_fields__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(msgspec.to_builtins(verdicts[name]) for name in sorted(verdicts))


def renew(stored: dict[str, Verdict], sample: Sequence[Mutant]) -> dict[str, Verdict]:
    """Return the verdicts of the sample; new mutants wait, in the places of those that are gone."""
    gone = [name for name in stored if name not in {each.name for each in sample}]
    new = [each.name for each in sample if each.name not in stored]
    kept = {each.name: stored[each.name] for each in sample if each.name in stored}
    places = (*gone, *[""] * len(new))
    return kept | {
        name: Verdict(name, replaces=place) for name, place in zip(new, places, strict=False)
    }


def show(verdicts: dict[str, Verdict]) -> None:
    """Print the sums, and the survivors with what explains them."""
    lanes = Counter(
        each.killed_by.partition(":")[0] or "not judged yet" for each in verdicts.values()
    )
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
    parser.add_argument("--only", default="", help="judge only those with this text in their name")
    parser.add_argument("--again", action="store_true", help="judge survivors again too")
    parser.add_argument("--list", action="store_true", help="print the verdicts and do nothing")
    arguments = parser.parse_args()
    stored = read_verdicts()
    sample = draw_sample(stored)
    verdicts = renew(stored, sample)
    if not arguments.list:
        write_verdicts(verdicts)
        _judge_all(sample, verdicts, arguments)
    show(verdicts)
    judged = [each for each in verdicts.values() if each.killed_by != WAITING]
    print(f"{len(judged)} of {len(sample)} judged")


def _judge_all(
    sample: list[Mutant], verdicts: dict[str, Verdict], arguments: argparse.Namespace
) -> None:
    waiting = [
        each
        for each in sample
        if arguments.only in each.name
        and verdicts[each.name].killed_by
        in ((WAITING, SURVIVED) if arguments.again else (WAITING,))
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
                    _judge(verdicts, mutant, killed_by=failure)
                    write_verdicts(verdicts)
                    print(f"{failure}\n    {mutant.name}", flush=True)
                else:
                    alive.append(mutant)
                if time.monotonic() > ends:
                    return
        waiting = alive
    for mutant in waiting:
        _judge(verdicts, mutant, killed_by=SURVIVED)
    write_verdicts(verdicts)


def _judge(verdicts: dict[str, Verdict], mutant: Mutant, *, killed_by: str) -> None:
    """Note the verdict of a mutant; one that survives again keeps its explanation."""
    verdict = verdicts[mutant.name]
    explanation = verdict.explanation if killed_by == SURVIVED else ""
    verdicts[mutant.name] = msgspec.structs.replace(
        verdict, killed_by=killed_by, explanation=explanation
    )


def _run_lane(
    mutant: Mutant, *, lane: str, measured: Measured, is_quick: bool
) -> tuple[Mutant, str]:
    checks = measured.select(mutant, is_quick=is_quick)
    failure = run_checks(mutant, lane, checks) if checks else ""
    return mutant, f"{lane}: {failure}" if failure else ""


if __name__ == "__main__":
    main()
