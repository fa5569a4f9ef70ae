"""The door under pressure: what a flood of logins costs producers, and what answers give away.

* Flood: laps of a producer alone and beside 200 logins a second, in turn, so that a neighbour on
  the machine disturbs both alike. The aim: the producer's p99 at most twice what it is alone.
* Equal answers: unknown user, wrong password and disabled user in turn, 500 of each. The aim: the
  medians at most 5 % apart.

    python -m bench.login [--quick | --shortest] [--folder DIR] [--json FILE]
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench import machine
from bench.flood import with_own_client
from bench.frames import PERSISTED, Account, Shape, make_login, make_send
from bench.load import Generator, GeneratorError, Lap, Limits, NoCompilerError, Traffic
from bench.server import NODE, Server, ServerError, make_account
from bench.targets import Target, Verdict
from headrace.base.limits import HEADER_BYTES
from headrace.wire.commands.users import CREATE_USER, UPDATE_USER, CreateUser, UpdateUser
from headrace.wire.evictions import EvictionReason, decode_eviction
from headrace.wire.numbers import UserStatus

LOGINS_PER_SECOND = 200
SHAPE = Shape(100, 1024)
TRAFFIC = Traffic(1, 1)
TOPIC = "beside-logins"
# A node slows down who guesses; here its patience is as long as it may be, and each kind of guess
# comes from an address of its own, so that every answer is a real one.
PATIENT_NODE = f"env HEADRACE_SECURITY_LOCKOUT_FAILURES=1000 HEADRACE_AUDIT_FILE=off {NODE}"
ANSWER_SECONDS_MAX = 30

TARGETS = (
    Target(
        f"p99 of a producer beside {LOGINS_PER_SECOND} logins/s, of the same alone, us",
        "p99 flooded",
        "p99 alone",
        2.0,
        is_at_most=True,
    ),
    Target(
        "answers to strangers: the slowest median, of the fastest, us",
        "slowest answer",
        "fastest answer",
        1.05,
        is_at_most=True,
    ),
)


class Pace(NamedTuple):
    """How long a run takes."""

    laps: int  # of each kind
    lap_seconds: float
    samples: int  # of each kind of stranger
    settle_seconds: float = 1.0  # the flood begins so much earlier than its lap, and ends later


FULL = Pace(6, 10.0, 500)
QUICK = Pace(2, 3.0, 50)
SHORTEST = Pace(1, 0.2, 3, 0.2)  # whether it runs: its figures mean nothing


# --- The flood. ---


class Flood:
    """The process that logs in, from its start until it is read."""

    def __init__(self, port: int, login: Path, seconds: float) -> None:
        command = [sys.executable, "-m", "bench.flood", str(port), str(login)]
        command += [str(LOGINS_PER_SECOND), str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603

    def read(self) -> Counter[str]:
        """Wait for its end; give what became of the logins.

        Raises:
            GeneratorError: It failed.
        """
        told, _ = self._process.communicate()
        if self._process.returncode:
            raise GeneratorError(f"the flood ended with {self._process.returncode}")
        return Counter(json.loads(told))


def measure_flood(
    server: Server, generator: Generator, login: Path, pace: Pace
) -> tuple[dict[str, float], Counter[str]]:
    """Give the producer's p99 alone and beside a flood, and what became of the logins."""
    frame = make_send(TOPIC, SHAPE)
    limits = Limits(pace.lap_seconds)
    alone: list[Lap] = []
    flooded: list[Lap] = []
    outcomes: Counter[str] = Counter()
    generator.send(
        server.port, frame, TRAFFIC, Limits(pace.settle_seconds)
    )  # A lap that does not count.
    for _ in range(pace.laps):
        alone.append(_checked(generator.send(server.port, frame, TRAFFIC, limits)))
        flood = Flood(server.port, login, pace.lap_seconds + 2 * pace.settle_seconds)
        time.sleep(pace.settle_seconds)
        flooded.append(_checked(generator.send(server.port, frame, TRAFFIC, limits)))
        outcomes += flood.read()
        time.sleep(pace.settle_seconds)
    for name, laps in (("alone", alone), ("flooded", flooded)):
        _show_laps(name, laps)
    figures = {
        "p99 alone": statistics.median(lap.p99_us for lap in alone),
        "p99 flooded": statistics.median(lap.p99_us for lap in flooded),
        "rate alone": statistics.median(lap.rate for lap in alone),
        "rate flooded": statistics.median(lap.rate for lap in flooded),
    }
    return figures, outcomes


def _checked(lap: Lap) -> Lap:
    if lap.errors:
        raise GeneratorError(f"the producer was refused: {lap.statuses}, {lap.wrong} wrong answers")
    return lap


def _show_laps(name: str, laps: list[Lap]) -> None:
    p99s = ", ".join(f"{lap.p99_us:,.0f}" for lap in laps)
    p50 = statistics.median(lap.p50_us for lap in laps)
    rate = statistics.median(lap.rate for lap in laps)
    print(f"producer {name:8} {rate:8,.0f} requests/s, p50 {p50:,.0f} us, p99 of laps {p99s} us")


# --- Equal answers. ---


class Stranger(NamedTuple):
    """Somebody who is not let in."""

    kind: str
    account: Account
    address: str


def make_strangers(server: Server) -> list[Stranger]:
    """Give one of each kind, with the users that they need."""
    right, wrong = (make_account().password for _ in range(2))
    with server.connect() as connection:
        for name, status in (("known", UserStatus.ACTIVE), ("disabled", UserStatus.ACTIVE)):
            made = CreateUser(username=name, password=right.encode(), status=status)
            connection.call(CREATE_USER, made)
        change = UpdateUser(user="disabled", status=UserStatus.INACTIVE)
        connection.call(UPDATE_USER, change)
    return [
        Stranger("unknown user", Account("nobody", wrong), "127.0.0.2"),
        Stranger("wrong password", Account("known", wrong), "127.0.0.3"),
        Stranger("disabled user", Account("disabled", right), "127.0.0.4"),
    ]


def measure_answers(server: Server, samples: int) -> dict[str, float]:
    """Give the median time of the answer to each kind of stranger, in microseconds."""
    strangers = make_strangers(server)
    taken: dict[str, list[float]] = {stranger.kind: [] for stranger in strangers}
    for turn in range(samples):
        # Whoever comes first in a round is another one each time.
        for place in range(len(strangers)):
            stranger = strangers[(turn + place) % len(strangers)]
            taken[stranger.kind].append(time_answer(server.port, stranger))
    return {kind: statistics.median(times) * 1e6 for kind, times in taken.items()}


def time_answer(port: int, stranger: Stranger) -> float:
    """Give how long the answer to one login takes, in seconds.

    Raises:
        GeneratorError: It is another answer than strangers get.
    """
    frame = with_own_client(make_login(stranger.account))
    address = (stranger.address, 0)
    with socket.create_connection(
        ("127.0.0.1", port), ANSWER_SECONDS_MAX, source_address=address
    ) as connection:
        start = time.perf_counter()
        connection.sendall(frame)
        answer = connection.recv(HEADER_BYTES, socket.MSG_WAITALL)
        seconds = time.perf_counter() - start
    told = decode_eviction(answer)
    if told.reason != EvictionReason.INVALID_CREDENTIALS:
        raise GeneratorError(f"{stranger.kind}: {told}")
    return seconds


# --- The run. ---


def run(folder: Path, pace: Pace) -> dict[str, float]:
    """Measure both on one node; give the figures."""
    account = make_account()
    generator = Generator(folder, account)
    login = folder / "flood.frame"
    login.write_bytes(make_login(account))
    server = Server(PATIENT_NODE, folder, account)
    is_well = False
    try:
        medians = measure_answers(server, pace.samples)
        for kind, median in medians.items():
            print(f"{kind:15} answered after {median / 1000:.2f} ms (median of {pace.samples})")
        with server.connect() as connection:
            connection.create_stream()
            connection.create_topic(TOPIC, PERSISTED)
        figures, outcomes = measure_flood(server, generator, login, pace)
        for outcome, count in outcomes.most_common():
            print(f"{count:8,} logins: {outcome}")
        is_well = True
    finally:
        server.end(is_asked=is_well)
    if not outcomes["logged in"]:
        raise GeneratorError("nobody was let in: the flood was none")
    slowest, fastest = max(medians.values()), min(medians.values())
    return figures | medians | {"slowest answer": slowest, "fastest answer": fastest}


def main() -> None:
    """Print the conditions, then the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.login", description=__doc__.split("\n")[0]
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="short laps, for a look")
    length.add_argument("--shortest", action="store_true", help="one tiny lap: whether it runs")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on the disk to be measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    print(machine.describe(), flush=True)
    try:
        with TemporaryDirectory(dir=options.folder) as folder:
            pace = SHORTEST if options.shortest else QUICK if options.quick else FULL
            figures = run(Path(folder), pace)
    except NoCompilerError as error:
        print(f"skipped: {error}")
        return
    except (GeneratorError, ServerError) as error:
        sys.exit(f"the benchmark ended: {error}")
    verdicts: list[Verdict] = [target.judge(figures) for target in TARGETS]
    print(f"\nTargets; load average {machine.load_average():.2f}")
    for verdict in verdicts:
        print(verdict)
    if options.json is not None:
        judged = [verdict.as_json() for verdict in verdicts]
        told = {"machine": machine.describe(), "figures": figures, "targets": judged}
        options.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
