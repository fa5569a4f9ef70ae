"""The long crash campaigns: `make night`. Each lane counts what it did; a violation ends it.

python -m tools.night kills --count 1000
python -m tools.night cuts --count 200
python -m tools.night steps              every step of the scripted life, killed and torn
python -m tools.night damage --count 200 so many for each type of file
python -m tools.night stale --count 100  whole folders from older copies, and so many of each type
python -m tools.night all
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.crash.ages import make_ages
from tests.crash.damage import DAMAGES, FILE_TYPES, Patient, make_original
from tests.crash.faults import Action, Call, build_library
from tests.crash.kills import run_kills
from tests.crash.load import Tally
from tests.crash.power import CutTally, run_cuts, why_not
from tests.crash.stale import KINDS, Archive
from tests.crash.steps import Ending, count_steps, end_at, end_recovery_at
from tests.crossings import of_this_process as crossed
from tests.watched_nodes import watched_nodes

KILLS = 1000
CUTS = 200
DAMAGES_PER_TYPE = 200
MIXTURES_PER_KIND = 100
_PER_FOLDER = 20  # kills or cuts on one folder: all of it is read after each
_STEPS_MORE = 50  # lives differ a little in length
_WHOLE = "whole folder"
_START_STEPS = 120  # more than a start has


def kill(count: int, seed: int, jobs: int) -> str:
    """Kill a node under load, on many folders."""
    total = Tally()
    for tally in _spread(run_kills, count, seed, jobs):
        total.add(tally)
    return str(total)


def cut(count: int, seed: int, jobs: int) -> str:
    """Cut the power of a node under load."""
    reason = why_not()
    if reason:
        return f"not run: lane P needs loop mounts: {reason}"
    total = CutTally()
    for tally in _spread(run_cuts, count, seed, jobs):
        total.add(tally)
    return str(total)


def _spread(run: Callable[[int, int], Tally], count: int, seed: int, jobs: int) -> list[Tally]:
    shares = [min(_PER_FOLDER, count - start) for start in range(0, count, _PER_FOLDER)]
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run, share, seed + at) for at, share in enumerate(shares)]
        tallies = []
        for at, future in enumerate(futures):
            tallies.append(future.result())
            print(f"  {at + 1} of {len(futures)}: {tallies[-1]}", flush=True)
    return tallies


def step(_: int, seed: int, jobs: int) -> str:
    """End the scripted life at each of its steps, and some starts after that at each of theirs."""
    library = build_library()
    if library is None:
        return "not run: lane X needs a C compiler"
    steps_count = len(count_steps(library))
    rng = random.Random(seed)  # noqa: S311 - it chooses where lives end
    points: list[Callable[[], Ending]] = [
        partial(end_at, library, number, action)
        for number in range(1, steps_count + _STEPS_MORE)
        for action in (Action.KILL, Action.TEAR)
    ]
    points += [
        partial(end_recovery_at, library, rng.randrange(steps_count // 5, steps_count), number)
        for number in range(1, _START_STEPS)
    ]
    kinds: Counter[tuple[Call, str]] = Counter()
    whole = 0
    with ThreadPoolExecutor(jobs) as pool:
        for ending in pool.map(lambda point: point(), points):
            if ending.step is None:
                whole += 1
            else:
                kinds[ending.step.kind] += 1
    lines = [f"  {call.name.lower()} {file}: {n}" for (call, file), n in sorted(kinds.items())]
    done = f"{sum(kinds.values())} lives and starts ended at a step, {whole} came to their end"
    return "\n".join([done, *lines])


def damage(count: int, seed: int, jobs: int) -> str:
    """Damage files of each type, in each way."""
    outcomes: Counter[tuple[str, str]] = Counter()
    with TemporaryDirectory(prefix="headrace-night-") as name:
        original = make_original(Path(name))

        def run(case: tuple[str, int]) -> tuple[str, str]:
            file_type, number = case
            kinds = list(DAMAGES)
            rng = random.Random(f"{file_type} {seed} {number}")  # noqa: S311 - it chooses damage
            with TemporaryDirectory(prefix="headrace-night-") as folder:
                patient = Patient(original, Path(folder))
                found = patient.damage_one(file_type, kinds[number % len(kinds)], rng)
            assert found.outcome == "intact" or not FILE_TYPES[file_type].is_derived, found
            return file_type, found.outcome

        cases = [(file_type, number) for file_type in FILE_TYPES for number in range(count)]
        with ThreadPoolExecutor(jobs) as pool:
            outcomes.update(pool.map(run, cases))
    lines = [
        f"  {file_type}: {outcome} {n}" for (file_type, outcome), n in sorted(outcomes.items())
    ]
    return "\n".join([f"{len(cases)} files damaged", *lines])


def mix(count: int, seed: int, jobs: int) -> str:
    """Put whole folders of older copies back, and single things of each kind among newer ones."""
    outcomes: Counter[tuple[str, str]] = Counter()
    with TemporaryDirectory(prefix="headrace-night-") as name:
        ages = make_ages(Path(name))

        def run(case: tuple[str, int]) -> tuple[str, str]:
            kind, number = case
            with TemporaryDirectory(prefix="headrace-night-") as folder:
                archive = Archive(ages, Path(folder))
                if kind == _WHOLE:
                    archive.restore(number % len(ages))
                    return kind, "intact"
                rng = random.Random(f"{kind} {seed} {number}")  # noqa: S311 - it chooses ages
                return kind, archive.mix(kind, rng).outcome

        cases = [(kind, number) for kind in (_WHOLE, *KINDS) for number in range(count)]
        with ThreadPoolExecutor(jobs) as pool:
            outcomes.update(pool.map(run, cases))
    lines = [f"  {kind}: {outcome} {n}" for (kind, outcome), n in sorted(outcomes.items())]
    return "\n".join([f"{len(cases)} folders put together", *lines])


LANES: dict[str, tuple[Callable[[int, int, int], str], int]] = {
    "kills": (kill, KILLS),
    "cuts": (cut, CUTS),
    "steps": (step, 0),
    "damage": (damage, DAMAGES_PER_TYPE),
    "stale": (mix, MIXTURES_PER_KIND),
}


def main() -> int:
    """Run the lanes that were asked for; give 1 if one of them found a violation."""
    parser = argparse.ArgumentParser(description="The long crash campaigns.")
    parser.add_argument("lane", choices=[*LANES, "all"])
    parser.add_argument("--count", type=int, help="kills, cuts, or files of each type")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    names = list(LANES) if asked.lane == "all" else [asked.lane]
    failed = []
    for name in names:
        lane, count = LANES[name]
        count = asked.count or count
        print(f"{name}: {count or 'all'}, seed {asked.seed}", flush=True)
        start = time.monotonic()
        try:
            with watched_nodes():
                told = lane(count, asked.seed, asked.jobs)
            if crossed.received:
                told += f"\n{crossed.describe()}"
            assert crossed.are_enough, told
        except AssertionError as violation:
            failed.append(name)
            told = f"VIOLATION: {violation}"
        print(f"{name}: {told}\n{name}: {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
