"""This tree against another commit: pairs of laps, one of each, so that both meet the same noise.

Both nodes run all the time and are asked in turn; a pair's ratio is ours to the other's, and the
figure is the median of all pairs. A single run differs by up to 15 %, the median of 20 pairs by a
few percent; the quartiles beside it say how far to trust it.

    python -m bench.pairs COMMIT [--pairs 20] [--seconds 0.5] [--only PART] [--folder DIR]

The other tree is checked out into a temporary folder and its kernel is built there.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.cases import EIGHT, LARGEST, LOCKSTEP, SINGLE, SIXTEEN, pipelined
from bench.frames import CLASSES, PERSISTED, REPLICATED, Shape, make_poll, make_send
from bench.load import Generator, Lap, Limits, Traffic, Window
from bench.server import NODE, Server, make_account
from headrace.base.limits import GIB, KIB

ROOT = Path(__file__).parent.parent
SENDS = (
    (REPLICATED, SINGLE, LOCKSTEP),
    (REPLICATED, SINGLE, EIGHT),
    (REPLICATED, SINGLE, SIXTEEN),
    (REPLICATED, SINGLE, Traffic(8, 8)),
    (REPLICATED, SINGLE, pipelined(SINGLE)),
    (REPLICATED, Shape(100, KIB), LOCKSTEP),
    (REPLICATED, LARGEST, LOCKSTEP),
    (REPLICATED, LARGEST, pipelined(LARGEST)),
    (PERSISTED, SINGLE, LOCKSTEP),
    (PERSISTED, SINGLE, SIXTEEN),
    (PERSISTED, LARGEST, pipelined(LARGEST)),
)
POLLS = ((SINGLE, LOCKSTEP), (LARGEST, LOCKSTEP))
POLLED_BATCHES = {SINGLE: 2048, LARGEST: 16}

Lapping = Callable[[Server], Lap]


class Case(NamedTuple):
    """One thing that both nodes are asked for."""

    name: str
    lap: Lapping


def main() -> None:
    """Measure the pairs and print a line for each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("commit", help="the other one")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a lap")
    parser.add_argument("--only", default="", help="cases whose name has this part")
    parser.add_argument("--folder", type=Path, help="where the nodes keep their files")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="headrace-pairs-", dir=given.folder) as made, ExitStack() as end:
        folder = Path(made)
        other = check_out(given.commit, folder / "other")
        end.callback(_git, "worktree", "remove", "--force", str(other))
        account = make_account()
        generator = Generator(folder, account)
        servers = []
        for name, tree in (("ours", ROOT), ("theirs", other)):
            place = folder / name
            place.mkdir()
            command = f"env PYTHONPATH={tree / 'src'} {NODE}"
            server = Server(command, place, account)
            end.callback(server.end, is_asked=True)
            with server.connect() as connection:
                connection.create_stream()
                for durability in CLASSES:
                    connection.create_topic(durability, durability)
                for shape in POLLED_BATCHES:
                    connection.create_topic(_polled(shape), REPLICATED)
            servers.append(server)
        flags = sysconfig.get_config_var("PY_CFLAGS") or ""
        print(f"Python {platform.python_version()}, built with {flags.strip()}")
        print(f"{'ours / ' + given.commit:44} {'rate':>6} {'quartiles':>13} {'p50':>6} {'p99':>6}")
        for case in cases(generator, Limits(given.seconds, GIB)):
            if given.only in case.name:
                print(line(case.name, run(case, servers, given.pairs)), flush=True)


def check_out(commit: str, folder: Path) -> Path:
    """Put another commit beside this one, with its kernel built; return its folder."""
    _git("worktree", "add", "--detach", str(folder), commit)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True
    )
    return folder


def _git(*arguments: str) -> None:
    subprocess.run(  # noqa: S603 - the repository of this tree
        ["git", "-C", str(ROOT), *arguments],  # noqa: S607 - whichever git is there
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def cases(generator: Generator, limits: Limits) -> list[Case]:
    """Return what is measured: sends of both classes, then polls from memory."""
    found = []
    for durability, shape, traffic in SENDS:
        frame = make_send(durability, shape)

        def send(server: Server, frame: bytes = frame, traffic: Traffic = traffic) -> Lap:
            return generator.send(server.port, frame, traffic, limits)

        found.append(Case(f"produce/{durability}/{shape}/{traffic}", send))
    for shape, traffic in POLLS:
        found.append(Case(f"consume/{shape}/{traffic}", _polling(generator, shape, limits)))
    return found


def _polled(shape: Shape) -> str:
    return f"polled-{shape.messages}-{shape.payload_bytes}"


def _polling(generator: Generator, shape: Shape, limits: Limits) -> Lapping:
    filled: dict[int, None] = {}
    frame = make_send(_polled(shape), shape)
    batches = POLLED_BATCHES[shape]

    def poll(server: Server) -> Lap:
        if server.port not in filled:
            filled[server.port] = None
            enough = Limits(30, batches * len(frame))
            generator.send(server.port, frame, LOCKSTEP, enough)
        window = Window(0, (batches // 2) * shape.messages)
        polled = make_poll(_polled(shape), shape)
        return generator.poll(server.port, polled, shape, window, LOCKSTEP, limits)

    return poll


def run(case: Case, servers: list[Server], pairs: int) -> list[tuple[Lap, Lap]]:
    """Return the laps of both nodes, in turn; who begins changes with every pair."""
    found = []
    for server in servers:
        case.lap(server)  # Files and caches are as they stay.
    for number in range(pairs):
        ours, theirs = servers
        if number % 2:
            second = case.lap(theirs)
            first = case.lap(ours)
        else:
            first = case.lap(ours)
            second = case.lap(theirs)
        assert not first.errors, f"{case.name}: {first.statuses}"
        assert not second.errors, f"{case.name}: {second.statuses}"
        found.append((first, second))
    return found


def line(name: str, laps: list[tuple[Lap, Lap]]) -> str:
    """Return the medians of the ratios of a case as text."""
    rates = [ours.rate / theirs.rate for ours, theirs in laps]
    p50 = statistics.median(ours.p50_us / theirs.p50_us for ours, theirs in laps)
    p99 = statistics.median(ours.p99_us / theirs.p99_us for ours, theirs in laps)
    low, middle, high = statistics.quantiles(rates, n=4) if len(rates) > 1 else rates * 3
    return f"{name:44} {middle:6.3f} {low:6.3f} {high:6.3f} {p50:6.3f} {p99:6.3f}"


if __name__ == "__main__":
    main()
