"""Runs simulations of whole nodes: one seed to look at, many to search.

    python -m tools.simulate_node --seed 7 -v
    python -m tools.simulate_node --seeds 100 --tree --jobs 2
    python -m tools.simulate_node --seeds 500 --replicas 3

The exit code is that of the run: 0 passed, 1 a rule was broken, 2 did not settle, 3 reached
nothing. Stored seeds (tests/seeds/node-*.txt) are part of every search.
"""

import argparse
import multiprocessing
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.sim.nodes.options import NodeOptions, draw_node_options
from headrace.sim.nodes.wanted import EVENTS_WANTED, PROBES_WANTED
from headrace.sim.nodes.workload import make_world
from headrace.sim.outcome import Outcome, Report
from tools.simulate import show, tree_seed

SEEDS_FOLDER = Path(__file__).parent.parent / "tests" / "seeds"
LONG = 400  # so many seeds must reach every mark

_SEED_LINE = re.compile(r"^node seed: (\d+)$", re.MULTILINE)


def run(options: NodeOptions, *, is_verbose: bool = False) -> Report:
    """Run one world of the code that ships."""
    return make_world(options, print if is_verbose else None).run()


def run_seed(seed: int) -> tuple[Report, float]:
    """Run one seed; give its report without its last lines, and its seconds."""
    began = time.perf_counter()
    report = run(draw_node_options(seed))
    if report.outcome == Outcome.PASS:
        report = msgspec.structs.replace(report, last=())
    return report, time.perf_counter() - began


def stored_seeds() -> list[int]:
    """Give the seeds that once failed."""
    return sorted(
        int(found.group(1))
        for path in SEEDS_FOLDER.glob("node-*.txt")
        for found in _SEED_LINE.finditer(path.read_text())
    )


def search(seeds: list[int], jobs: int) -> Outcome:
    """Run many seeds and print what came of them."""
    began = time.perf_counter()
    reached: Counter[str] = Counter()
    failed: list[Report] = []
    seconds: list[float] = []
    committed = 0
    with multiprocessing.Pool(jobs) as pool:
        for report, took in pool.imap_unordered(run_seed, seeds, chunksize=2):
            seconds.append(took)
            reached.update(report.events)
            reached.update(report.probes)
            committed += report.committed
            if report.outcome != Outcome.PASS:
                failed.append(report)
                print(f"seed {report.seed}: {report.outcome.name}: {report.reason[:400]}")
                sys.stdout.flush()
    elapsed = time.perf_counter() - began
    for name, count in sorted(reached.items()):
        print(f"  {name:36} {count}")
    missed = [name for name in (*PROBES_WANTED, *EVENTS_WANTED) if not reached[name]]
    print(f"unreached: {' '.join(missed) or 'none'}")
    print(
        f"{len(seconds)} seeds in {elapsed:.1f} s: {len(seconds) / elapsed:.2f} seeds/s, median"
        f" {statistics.median(seconds):.2f} s, slowest {max(seconds):.2f} s; {committed} ops"
    )
    for report in sorted(failed, key=lambda report: report.seed):
        print(f"failed: seed {report.seed} {report.outcome.name} {report.reason[:160]}")
    if failed:
        return min(report.outcome for report in failed)
    return Outcome.EMPTY if missed and len(seconds) >= LONG else Outcome.PASS


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="run one seed")
    what.add_argument("--seeds", type=int, help="run so many seeds, and the stored ones")
    parser.add_argument("--from", dest="first", type=int, default=1, help="first of the seeds")
    parser.add_argument("--tree", action="store_true", help="take the first seed from src/")
    parser.add_argument("--replicas", type=int, help="only seeds with so many nodes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true", help="print every event")
    return parser.parse_args()


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    first = tree_seed() if arguments.tree else arguments.first
    print(f"seeds {first} to {first + arguments.seeds - 1}, and {len(stored_seeds())} stored")
    for seed in (*stored_seeds(), *range(first, first + arguments.seeds)):
        if arguments.replicas in (None, draw_node_options(seed).replica_count):
            yield seed


def main() -> int:
    """Do what the command line asks for."""
    arguments = _parse()
    if arguments.seeds is not None:
        return search(list(_seeds(arguments)), arguments.jobs)
    report = run(draw_node_options(arguments.seed), is_verbose=arguments.verbose)
    show(report)
    return report.outcome


if __name__ == "__main__":
    sys.exit(main())
