"""Hunts the planted bugs: finds for each a seed under which the simulator sees it.

    python -m tools.hunt                      # recorded seeds first, then from 1 on
    python -m tools.hunt --only rot_is_cut    # one bug
    python -m tools.hunt --fresh              # as if nothing were recorded

A seed counts if the run fails with the bug and passes without it. What was found goes to
tests/sim/planted_seeds.toml, which `make test` replays. The exit code is the number of bugs that
were not found.
"""

import argparse
import functools
import multiprocessing
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.sim.outcome import Outcome, Report
from headrace.sim.swarm import draw_options
from tests.sim.planted import BUGS, plant
from tools.simulate import run

SEEDS_PATH = Path(__file__).parent.parent / "tests" / "sim" / "planted_seeds.toml"
LIMIT = 2_000

_PREAMBLE = """\
# For each bug of planted.py a seed, from 1 on, under which the simulator sees it, how that run
# ended, and how many seconds it took. Written by `python -m tools.hunt`.
"""


class Found(msgspec.Struct, frozen=True):
    """The seed that shows a bug, and how."""

    seed: int
    outcome: str
    code: str
    seconds: float


class Hunt(msgspec.Struct, frozen=True):
    """What a hunt for one bug came to."""

    name: str
    found: Found | None
    seeds: int  # that were run
    seconds: float


def read_seeds() -> dict[str, Found]:
    """Give what is recorded, by the names of the bugs."""
    if not SEEDS_PATH.exists():
        return {}
    return msgspec.convert(tomllib.loads(SEEDS_PATH.read_text()), dict[str, Found])


def write_seeds(found: dict[str, Found]) -> None:
    """Record what was found, in the order of the bugs."""
    parts = [_PREAMBLE]
    for name in BUGS:
        if name in found:
            one = found[name]
            parts.append(
                f'\n[{name}]\nseed = {one.seed}\noutcome = "{one.outcome}"\n'
                f'code = "{one.code}"\nseconds = {one.seconds:.2f}\n'
            )
    SEEDS_PATH.write_text("".join(parts))


def run_planted(name: str, seed: int) -> Report:
    """Run a seed with a bug."""
    with plant(BUGS[name]):
        return run(draw_options(seed))


@functools.cache
def is_clean(seed: int) -> bool:
    """Whether a seed passes without any bug."""
    return run(draw_options(seed)).outcome == Outcome.PASS


def is_caught(name: str, report: Report) -> bool:
    """Whether a run with a bug shows it."""
    if report.outcome == Outcome.LIVENESS:
        return BUGS[name].is_stall
    return report.outcome == Outcome.VIOLATION


def code_of(report: Report) -> str:
    """Give the rule that was broken, or what else went wrong, in a word."""
    return "liveness" if report.outcome == Outcome.LIVENESS else report.reason.split(":", 1)[0]


def hunt(name: str, recorded: int, limit: int) -> Hunt:
    """Look for a seed that shows a bug: the recorded one, if it is not 0, then from 1 on."""
    began = time.perf_counter()
    seeds = 0
    for seed in _candidates(recorded, limit):
        seeds += 1
        started = time.perf_counter()
        report = run_planted(name, seed)
        seconds = round(time.perf_counter() - started, 2)
        if is_caught(name, report) and is_clean(seed):
            found = Found(seed, report.outcome.name, code_of(report), seconds)
            return Hunt(name, found, seeds, time.perf_counter() - began)
    return Hunt(name, None, seeds, time.perf_counter() - began)


def _candidates(recorded: int, limit: int) -> Iterator[int]:
    if recorded:
        yield recorded
    yield from (seed for seed in range(1, limit + 1) if seed != recorded)


def _hunt(argument: tuple[str, int, int]) -> Hunt:
    return hunt(*argument)


def _hunt_all(arguments: argparse.Namespace) -> int:
    names = arguments.only or list(BUGS)
    recorded = {name: found for name, found in read_seeds().items() if name in BUGS}
    found = {} if arguments.fresh and not arguments.only else dict(recorded)
    orders = []
    for name in names:
        known = None if arguments.fresh else recorded.get(name)
        orders.append((name, known.seed if known else 0, arguments.limit))
    missed = []
    with multiprocessing.Pool(arguments.jobs) as pool:
        for ended in pool.imap_unordered(_hunt, orders):
            _tell(ended)
            found.pop(ended.name, None)
            if ended.found is None:
                missed.append(ended.name)
            else:
                found[ended.name] = ended.found
            write_seeds(found)
    print(f"{len(names) - len(missed)} of {len(names)} found; not: {' '.join(missed) or 'none'}")
    return len(missed)


def _tell(ended: Hunt) -> None:
    one = ended.found
    told = "not found" if one is None else f"seed {one.seed:5} {one.outcome:9} {one.code:8}"
    print(f"{ended.name:34} {told:28} {ended.seeds:5} seeds {ended.seconds:7.1f} s", flush=True)


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--only", action="append", choices=list(BUGS), metavar="NAME")
    parser.add_argument("--fresh", action="store_true", help="do not begin with recorded seeds")
    parser.add_argument("--limit", type=int, default=LIMIT, help="give up after this seed")
    parser.add_argument("--jobs", type=int, default=1)
    return _hunt_all(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
