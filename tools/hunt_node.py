"""Hunts the planted bugs of whole nodes: finds for each a seed under which the simulator sees it.

    python -m tools.hunt_node                          # recorded seeds first, then from 1 on
    python -m tools.hunt_node --only served_unverified

A seed counts if the run fails with the bug and passes without it. What was found goes to
tests/sim/nodes/planted_seeds.toml, which `make test` replays. The exit code is the number of bugs
that were not found.
"""

import argparse
import functools
import multiprocessing
import sys
import time
import tomllib
from pathlib import Path

import msgspec

from headrace.sim.nodes.options import draw_node_options
from headrace.sim.outcome import Outcome, Report
from tests.sim.nodes.planted import BUGS
from tests.sim.planted import plant
from tools.hunt import Found, Hunt, code_of
from tools.simulate_node import run

SEEDS_PATH = Path(__file__).parent.parent / "tests" / "sim" / "nodes" / "planted_seeds.toml"
LIMIT = 1_000

_PREAMBLE = """\
# For each bug of planted.py a seed under which the simulator of whole nodes sees it, how that run
# ended, and how many seconds it took. Written by `python -m tools.hunt_node`.
"""


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
        return run(draw_node_options(seed))


@functools.cache
def is_clean(seed: int) -> bool:
    """Whether a seed passes without any bug."""
    return run(draw_node_options(seed)).outcome == Outcome.PASS


def is_caught(name: str, report: Report) -> bool:
    """Whether a run with a bug shows it."""
    if report.outcome == Outcome.LIVENESS:
        return BUGS[name].is_stall
    return report.outcome == Outcome.VIOLATION


def hunt(argument: tuple[str, int, int]) -> Hunt:
    """Look for a seed that shows a bug: the recorded one, if it is not 0, then from 1 on."""
    name, recorded, limit = argument
    began = time.perf_counter()
    seeds = ([recorded] if recorded else []) + [
        seed for seed in range(1, limit + 1) if seed != recorded
    ]
    for count, seed in enumerate(seeds, 1):
        started = time.perf_counter()
        report = run_planted(name, seed)
        seconds = round(time.perf_counter() - started, 2)
        if is_caught(name, report) and is_clean(seed):
            found = Found(seed, report.outcome.name, code_of(report), seconds)
            return Hunt(name, found, count, time.perf_counter() - began)
    return Hunt(name, None, len(seeds), time.perf_counter() - began)


def _hunt_all(arguments: argparse.Namespace) -> int:
    names = arguments.only or list(BUGS)
    found = {name: one for name, one in read_seeds().items() if name in BUGS}
    orders = [(name, found[name].seed if name in found else 0, arguments.limit) for name in names]
    missed = []
    with multiprocessing.Pool(arguments.jobs) as pool:
        for ended in pool.imap_unordered(hunt, orders):
            one = found[ended.name] = ended.found  # type: ignore[assignment]  # checked below
            if one is None:
                missed.append(ended.name)
                del found[ended.name]
            told = "not found" if one is None else f"seed {one.seed:5} {one.outcome} {one.code}"
            print(f"{ended.name:30} {told:34} {ended.seeds:5} seeds {ended.seconds:6.1f} s")
            sys.stdout.flush()
            write_seeds(found)
    print(f"{len(names) - len(missed)} of {len(names)} found; not: {' '.join(missed) or 'none'}")
    return len(missed)


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--only", action="append", choices=list(BUGS), metavar="NAME")
    parser.add_argument("--limit", type=int, default=LIMIT, help="give up after this seed")
    parser.add_argument("--jobs", type=int, default=1)
    return _hunt_all(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
