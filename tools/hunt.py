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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from headrace.sim.groups.options import draw_options
from headrace.sim.outcome import Outcome, Report
from tests.planted.of_groups import BUGS
from tests.planted.planting import Bug, plant
from tools.simulate import run

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


class Campaign(msgspec.Struct, frozen=True):
    """The planted bugs of one simulator, where their seeds are kept, and how a seed is run."""

    bugs: Mapping[str, Bug]
    seeds_path: Path
    preamble: str
    run: Callable[[int], Report]

    def read_seeds(self) -> dict[str, Found]:
        """Give what is recorded, by the names of the bugs."""
        if not self.seeds_path.exists():
            return {}
        return msgspec.convert(tomllib.loads(self.seeds_path.read_text()), dict[str, Found])

    def write_seeds(self, found: dict[str, Found]) -> None:
        """Record what was found, in the order of the bugs."""
        parts = [self.preamble]
        for name in self.bugs:
            if name in found:
                one = found[name]
                parts.append(
                    f'\n[{name}]\nseed = {one.seed}\noutcome = "{one.outcome}"\n'
                    f'code = "{one.code}"\nseconds = {one.seconds:.2f}\n'
                )
        self.seeds_path.write_text("".join(parts))

    def run_planted(self, name: str, seed: int) -> Report:
        """Run a seed with a bug."""
        with plant(self.bugs[name]):
            return self.run(seed)

    def is_clean(self, seed: int) -> bool:
        """Whether a seed passes without any bug."""
        return _is_clean(self.run, seed)

    def is_caught(self, name: str, report: Report) -> bool:
        """Whether a run with a bug shows it."""
        if report.outcome == Outcome.LIVENESS:
            return self.bugs[name].is_stall
        return report.outcome == Outcome.VIOLATION

    def hunt(self, argument: tuple[str, int, int]) -> Hunt:
        """Look for a seed that shows a bug: the recorded one, if it is not 0, then from 1 on."""
        name, recorded, limit = argument
        began = time.perf_counter()
        seeds = 0
        for seed in _candidates(recorded, limit):
            seeds += 1
            started = time.perf_counter()
            report = self.run_planted(name, seed)
            seconds = round(time.perf_counter() - started, 2)
            if self.is_caught(name, report) and self.is_clean(seed):
                found = Found(seed, report.outcome.name, code_of(report), seconds)
                return Hunt(name, found, seeds, time.perf_counter() - began)
        return Hunt(name, None, seeds, time.perf_counter() - began)

    def main(self, hunt: Callable[[tuple[str, int, int]], Hunt], *, what: str, limit: int) -> int:
        """Do what the command line asks for; `hunt` is this one's, as other processes find it."""
        parser = argparse.ArgumentParser(description=what.split("\n", 1)[0])
        parser.add_argument("--only", action="append", choices=list(self.bugs), metavar="NAME")
        parser.add_argument("--fresh", action="store_true", help="do not begin with recorded seeds")
        parser.add_argument("--limit", type=int, default=limit, help="give up after this seed")
        parser.add_argument("--jobs", type=int, default=1)
        return self._hunt_all(parser.parse_args(), hunt)

    def _hunt_all(
        self, arguments: argparse.Namespace, hunt: Callable[[tuple[str, int, int]], Hunt]
    ) -> int:
        names = arguments.only or list(self.bugs)
        recorded = {name: each for name, each in self.read_seeds().items() if name in self.bugs}
        found = {} if arguments.fresh and not arguments.only else dict(recorded)
        orders = []
        for name in names:
            known = None if arguments.fresh else recorded.get(name)
            orders.append((name, known.seed if known else 0, arguments.limit))
        missed = []
        with multiprocessing.Pool(arguments.jobs) as pool:
            for ended in pool.imap_unordered(hunt, orders):
                _tell(ended)
                found.pop(ended.name, None)
                if ended.found is None:
                    missed.append(ended.name)
                else:
                    found[ended.name] = ended.found
                self.write_seeds(found)
        print(
            f"{len(names) - len(missed)} of {len(names)} found; not: {' '.join(missed) or 'none'}"
        )
        return len(missed)


@functools.cache
def _is_clean(run: Callable[[int], Report], seed: int) -> bool:
    return run(seed).outcome == Outcome.PASS


def code_of(report: Report) -> str:
    """Give the rule that was broken, or what else went wrong, in a word."""
    return "liveness" if report.outcome == Outcome.LIVENESS else report.reason.split(":", 1)[0]


def _candidates(recorded: int, limit: int) -> Iterator[int]:
    if recorded:
        yield recorded
    yield from (seed for seed in range(1, limit + 1) if seed != recorded)


def _tell(ended: Hunt) -> None:
    one = ended.found
    told = "not found" if one is None else f"seed {one.seed:5} {one.outcome:9} {one.code:8}"
    print(f"{ended.name:34} {told:28} {ended.seeds:5} seeds {ended.seconds:7.1f} s", flush=True)


def _run(seed: int) -> Report:
    return run(draw_options(seed))


CAMPAIGN = Campaign(
    BUGS, Path(__file__).parent.parent / "tests" / "sim" / "planted_seeds.toml", _PREAMBLE, _run
)


def hunt(argument: tuple[str, int, int]) -> Hunt:
    """Hunt one bug, in a process of its own."""
    return CAMPAIGN.hunt(argument)


if __name__ == "__main__":
    sys.exit(CAMPAIGN.main(hunt, what=__doc__ or "", limit=LIMIT))
