"""Runs simulations: one seed to look at, many to search, one that fails to make smaller.

    python -m tools.simulate --seed 7 -v
    python -m tools.simulate --seeds 500 --tree --jobs 2
    python -m tools.simulate --minimise 7
    python -m tools.simulate --nodes --seeds 500 --replicas 3

With --nodes whole nodes are simulated, without it groups alone. The exit code is that of the run:
0 passed, 1 a rule was broken, 2 did not settle, 3 reached nothing. Stored seeds (tests/seeds) are
part of every search.
"""

import argparse
import multiprocessing
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from headrace.sim.groups import wanted as groups_wanted
from headrace.sim.groups import workload as groups
from headrace.sim.groups.options import Options, draw_options
from headrace.sim.minimise import minimise
from headrace.sim.nodes import wanted as nodes_wanted
from headrace.sim.nodes import workload as nodes
from headrace.sim.nodes.options import NodeOptions, draw_node_options
from headrace.sim.outcome import Outcome, Report
from headrace.sim.world import World

ROOT = Path(__file__).parent.parent


class Simulation(msgspec.Struct, frozen=True):
    """One workload, as it is searched."""

    draw: Callable[[int], Any]  # the options of a seed
    make_world: Callable[..., World[Any]]
    options: type
    wanted: tuple[str, ...]  # marks that a long search must reach,
    long: int  # which has so many seeds
    stored: str  # how the line of a stored seed begins

    def run(self, options: Any, *, is_verbose: bool = False) -> Report:  # noqa: ANN401  # its own
        """Run one world of the code that ships."""
        return self.make_world(options, print if is_verbose else None).run()

    def run_seed(self, seed: int) -> Report:
        """Run one seed."""
        return self.run(self.draw(seed))

    def stored_seeds(self) -> list[int]:
        """Return the seeds that once failed."""
        line = re.compile(rf"^{self.stored}: (\d+)$", re.MULTILINE)
        return sorted(
            int(found.group(1))
            for path in (ROOT / "tests" / "seeds").glob("*.txt")
            for found in line.finditer(path.read_text())
        )


GROUPS = Simulation(
    draw_options,
    groups.make_world,
    Options,
    (*groups_wanted.PROBES_WANTED, *groups_wanted.EVENTS_WANTED),
    500,
    "seed",
)
NODES = Simulation(
    draw_node_options,
    nodes.make_world,
    NodeOptions,
    (*nodes_wanted.PROBES_WANTED, *nodes_wanted.EVENTS_WANTED),
    400,
    "node seed",
)


def _time_groups(seed: int) -> tuple[Report, float]:
    return _time_seed(GROUPS, seed)


def _time_nodes(seed: int) -> tuple[Report, float]:
    return _time_seed(NODES, seed)


def _time_seed(simulation: Simulation, seed: int) -> tuple[Report, float]:
    """Run one seed; return its report without its last lines, and its seconds."""
    began = time.perf_counter()
    report = simulation.run_seed(seed)
    if report.outcome == Outcome.PASS:
        report = msgspec.structs.replace(report, last=())
    return report, time.perf_counter() - began


def tree_seed() -> int:
    """Return the first seed of this tree: the same source, the same seeds."""
    source = ROOT / "src" / "headrace"
    digest = xxhash.xxh3_64()
    for path in sorted(source.rglob("*")):
        if path.suffix in (".py", ".c"):
            digest.update(str(path.relative_to(source)).encode() + path.read_bytes())
    return digest.intdigest() >> 16


def show(report: Report) -> None:
    """Print what a run came to."""
    if report.outcome != Outcome.PASS:
        print("\n".join(report.last[-60:]))
        print(f"seed {report.seed}: {report.outcome.name}: {report.reason}")
    reached = {**report.events, **report.probes}
    print(" ".join(f"{name}={count}" for name, count in sorted(reached.items())))
    print(
        f"seed {report.seed} {report.outcome.name} committed {report.committed} steps"
        f" {report.steps} virtual {report.virtual_micros / 1e6:.1f} s trace {report.trace_hash}"
    )


class Search:
    """Many seeds: what failed, what was reached, how fast."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.reached: Counter[str] = Counter()
        self.failed: list[Report] = []
        self.seconds: list[float] = []
        self.committed = 0
        self.steps = 0

    def run(self, seeds: list[int], jobs: int) -> None:
        """Run them all, failures told as they come."""
        run_one = _time_nodes if self._simulation is NODES else _time_groups
        if jobs == 1:  # In this process, where coverage and a debugger see it.
            for seed in seeds:
                self._add(*run_one(seed))
            return
        with multiprocessing.Pool(jobs) as pool:
            for report, seconds in pool.imap_unordered(run_one, seeds, chunksize=2):
                self._add(report, seconds)

    def _add(self, report: Report, seconds: float) -> None:
        self.seconds.append(seconds)
        self.reached.update(report.events)
        self.reached.update(report.probes)
        self.committed += report.committed
        self.steps += report.steps
        if report.outcome != Outcome.PASS:
            self.failed.append(report)
            print(f"seed {report.seed}: {report.outcome.name}: {report.reason[:400]}", flush=True)

    def tell(self, elapsed: float) -> Outcome:
        """Print the sums; return what the whole search came to."""
        count = len(self.seconds)
        for name, reached in sorted(self.reached.items()):
            print(f"  {name:36} {reached}")
        missed = [name for name in self._simulation.wanted if not self.reached[name]]
        print(f"unreached: {' '.join(missed) or 'none'}")
        print(
            f"{count} seeds in {elapsed:.1f} s: {count / elapsed:.2f} seeds/s, median"
            f" {statistics.median(self.seconds):.2f} s, slowest {max(self.seconds):.2f} s;"
            f" {self.committed} ops committed, {self.steps / sum(self.seconds):.0f} steps/s a core"
        )
        for report in sorted(self.failed, key=lambda report: report.seed):
            print(f"failed: seed {report.seed} {report.outcome.name} {report.reason[:160]}")
        if self.failed:
            return min(report.outcome for report in self.failed)
        return Outcome.EMPTY if missed and count >= self._simulation.long else Outcome.PASS


def search(simulation: Simulation, seeds: list[int], jobs: int) -> Outcome:
    """Run many seeds and print what came of them."""
    if not seeds:
        print("no seed has so many nodes")
        return Outcome.EMPTY
    began = time.perf_counter()
    one = Search(simulation)
    one.run(seeds, jobs)
    return one.tell(time.perf_counter() - began)


def make_smaller(simulation: Simulation, seed: int) -> Outcome:
    """Print the smallest options found that fail as the seed does."""
    options = simulation.draw(seed)
    first = simulation.run(options)
    if first.outcome == Outcome.PASS:
        print(f"seed {seed} passes")
        return first.outcome

    def fails(smaller: Options | NodeOptions) -> bool:
        report = simulation.run(smaller)
        is_same = report.outcome == first.outcome and report.reason[:2] == first.reason[:2]
        print("kept" if is_same else "not ", report.outcome.name, report.reason[:100], flush=True)
        return is_same

    smallest = minimise(options, fails)
    show(simulation.run(smallest))
    print(msgspec.json.encode(smallest).decode())
    return first.outcome


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="run one seed")
    what.add_argument("--seeds", type=int, help="run so many seeds, and the stored ones")
    what.add_argument("--minimise", type=int, help="make a failing seed smaller")
    what.add_argument("--options", type=Path, help="run the options in this JSON file")
    parser.add_argument("--nodes", action="store_true", help="simulate whole nodes")
    parser.add_argument("--from", dest="first", type=int, default=1, help="first of the seeds")
    parser.add_argument("--tree", action="store_true", help="take the first seed from src/")
    parser.add_argument("--replicas", type=int, help="only seeds with so many nodes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true", help="print every event")
    return parser.parse_args()


def _seeds(simulation: Simulation, arguments: argparse.Namespace) -> Iterator[int]:
    first = tree_seed() if arguments.tree else arguments.first
    stored = simulation.stored_seeds()
    print(f"seeds {first} to {first + arguments.seeds - 1}, and {len(stored)} stored")
    for seed in (*stored, *range(first, first + arguments.seeds)):
        if arguments.replicas in (None, simulation.draw(seed).replica_count):
            yield seed


def main() -> int:
    """Do what the command line asks for."""
    arguments = _parse()
    simulation = NODES if arguments.nodes else GROUPS
    if arguments.seeds is not None:
        return search(simulation, list(_seeds(simulation, arguments)), arguments.jobs)
    if arguments.minimise is not None:
        return make_smaller(simulation, arguments.minimise)
    if arguments.options is not None:
        text = arguments.options.read_bytes()
        options: Any = msgspec.json.decode(text, type=simulation.options)
    else:
        options = simulation.draw(arguments.seed)
    report = simulation.run(options, is_verbose=arguments.verbose)
    show(report)
    return report.outcome


if __name__ == "__main__":
    sys.exit(main())
