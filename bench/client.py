"""Our client against the released SDK and the load generator, and the terminal through a pipe.

Every arm has one call on its way; laps of the arms alternate, so a neighbour on the machine
disturbs all alike, and rates are medians of laps. Compare ratios, never times between runs. What a
message takes of the processor in the client is told too, as the least of the laps: a neighbour can
only add to it.

* generator: the load generator in C, which makes its frame once and parses no message: the limit
  that node and loopback set to one call on its way.
* sdk: the released `apache-iggy`. sync, async: our two clients. values: our sync client, payloads
  alone.
* one by one: a producer's `send` and a consumer's messages, each by itself; beside the first,
  `confluent-kafka` with the broker that it brings (bench/kafka.py), where it is installed.
* produce, tail: the two subcommands with their other end on a pipe, start included.

    python -m bench.client [--quick | --shortest] [--only PART]
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench import machine
from bench.arms import (
    Arm,
    AsyncArm,
    Lap,
    Place,
    SdkArm,
    SyncArm,
    consume_one_by_one,
    send_one_by_one,
)
from bench.frames import PERSISTED, REPLICATED, STREAM, Shape, make_poll, make_send
from bench.kafka import Kafka, NoKafkaError
from bench.load import Generator, Limits, NoCompilerError, Traffic, Window
from bench.load import Lap as GeneratorLap
from bench.server import HASTY_NODE, NODE, Server, make_account
from headrace.base.limits import MIB

SHAPES = [Shape(count, size) for count in (1, 100, 1000) for size in (100, 1024)]
LOCKSTEP = Traffic(1, 1)
AIM_MESSAGES_MIN = 100  # batches from which our client is to be as fast as the SDK
POLLED_BYTES = 8 * MIB
POLLED_MESSAGES_MAX = 20_000
PIPE_SIZES = (100, 1024)
AIM_KAFKA = 0.6  # of its rate, at the first of these sizes
SINGLE_SIZES = (100, 1024)
PIPE_SECONDS_MAX = 300


class Pace(NamedTuple):
    """How long a run takes."""

    laps: int
    seconds: float  # of one lap
    pause_seconds: float = 0.3  # before each lap, for what the last one left to write
    polled_batches_max: int = POLLED_MESSAGES_MAX
    pipe_bytes: int = 100 * MIB
    single_messages: int = 200_000
    node: str = NODE


FULL = Pace(5, 0.5)
QUICK = Pace(1, 0.3)
SHORTEST = Pace(
    1, 0.01, 0.0, 50, MIB, 2000, HASTY_NODE
)  # whether it runs: its figures mean nothing


class Bench:
    """One server and one account, and how long laps are."""

    def __init__(self, folder: Path, pace: Pace, *, only: str) -> None:
        self.account = make_account()
        self._generator = Generator(folder, self.account)
        self.server = Server(pace.node, folder, self.account)
        self._pace = pace
        self.seconds = pace.seconds
        self.failed: list[str] = []
        self._only = only
        self._folder = folder
        with self.server.connect() as connection:
            connection.create_stream()

    def is_wanted(self, name: str) -> bool:
        """Whether a case was asked for."""
        return self._only in name

    # Calls.

    def measure_produce(self, shape: Shape) -> None:
        """Measure sending a shape."""
        place = self._make_topic(f"produce-{shape.messages}-{shape.payload_bytes}")
        frame = make_send(place.topic, shape)
        arms: dict[str, Arm] = {"sync": SyncArm(), "async": AsyncArm(), "sdk": SdkArm()}
        limits = Limits(self.seconds)
        lappings: dict[str, Callable[[], Lap]] = {
            "generator": lambda: lap_of(self._generator.send(place.port, frame, LOCKSTEP, limits))
        }
        for name, arm in arms.items():
            lappings[name] = lambda arm=arm: arm.produce(place, shape, self.seconds)  # type: ignore[misc] # bound now
        self._show(f"produce/{shape}", shape, lappings)

    def measure_consume(self, shape: Shape) -> None:
        """Measure polling a shape from memory."""
        place = self._make_topic(f"consume-{shape.messages}-{shape.payload_bytes}")
        end = self._fill(place, shape)
        poll = make_poll(place.topic, shape)
        window, limits = Window(0, end - shape.messages), Limits(self.seconds)
        arms: dict[str, Arm] = {
            "values": SyncArm(is_columns=True),
            "sync": SyncArm(),
            "async": AsyncArm(),
            "sdk": SdkArm(),
        }
        lappings: dict[str, Callable[[], Lap]] = {
            "generator": lambda: lap_of(
                self._generator.poll(place.port, poll, shape, window, LOCKSTEP, limits)
            )
        }
        for name, arm in arms.items():
            lappings[name] = lambda arm=arm: arm.consume(place, shape, self.seconds, end=end)  # type: ignore[misc] # bound now
        self._show(f"consume/{shape}", shape, lappings)

    def _fill(self, place: Place, shape: Shape) -> int:
        """Send batches to poll; give how many messages there are then."""
        batches = min(POLLED_BYTES // shape.bytes, POLLED_MESSAGES_MAX // shape.messages)
        batches = max(min(batches, self._pace.polled_batches_max), 1)
        frame = make_send(place.topic, shape)
        limits = Limits(60.0, batches * len(frame))
        lap = self._generator.send(place.port, frame, LOCKSTEP, limits)
        if lap.errors:
            raise ValueError(f"{place.topic}: {lap.statuses or lap.wrong}")
        return lap.requests * shape.messages

    def _make_topic(self, name: str, durability: str = PERSISTED) -> Place:
        with self.server.connect() as connection:
            connection.create_topic(name, durability)
        return Place(self.server.port, self.account, name)

    def _show(self, name: str, shape: Shape, lappings: dict[str, Callable[[], Lap]]) -> None:
        laps: dict[str, list[Lap]] = {arm: [] for arm in lappings}
        for turn in range(self._pace.laps):
            # Each arm comes after each other one in turn: what one has left to write is not
            # always the same one's burden.
            arms = list(lappings)
            for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
                time.sleep(self._pace.pause_seconds)
                laps[arm].append(lappings[arm]())
        medians = {arm: statistics.median(lap.rate for lap in each) for arm, each in laps.items()}
        costs = {arm: min(lap.cpu_us for lap in each) for arm, each in laps.items()}
        sdk = medians["sdk"]
        print(f"{name}", flush=True)
        for arm, rate in medians.items():
            cost = costs[arm] / shape.messages
            print(
                f"  {arm:10}{rate * shape.messages:>12,.0f} messages/s ({rate / sdk:5.2f})"
                f"  {cost:8.2f} us ({costs[arm] / costs['sdk']:5.2f})",
                flush=True,
            )
        if shape.messages >= AIM_MESSAGES_MIN:
            self.failed += [
                f"{name}: {arm} is {medians[arm] / sdk:.2f} of the SDK"
                for arm in ("sync", "async")
                if medians[arm] < sdk
            ]

    # One message after the other.

    def measure_single(self, size: int) -> None:
        """Measure a producer and a consumer that take each message by itself."""
        # The broker beside it keeps messages in memory: the class without a sync is what compares.
        place, count = self._make_topic(f"one-{size}", REPLICATED), self._pace.single_messages
        lappings = {
            "send": lambda: send_one_by_one(place, size, count),
            "consume": lambda: consume_one_by_one(place, size, count),
        }
        try:
            with Kafka(size, count) as kafka:
                lappings["kafka"] = lambda: kafka_lap(kafka, count)
                self._show_single(size, lappings)
        except NoKafkaError as error:
            self._show_single(size, {name: lappings[name] for name in ("send", "consume")})
            print(f"  kafka     skipped: {error}")

    def _show_single(self, size: int, lappings: dict[str, Callable[[], Lap]]) -> None:
        laps: dict[str, list[Lap]] = {arm: [] for arm in lappings}
        for _ in range(self._pace.laps):
            for arm, lapping in lappings.items():
                time.sleep(self._pace.pause_seconds)
                laps[arm].append(lapping())
        print(f"one by one/{size} B", flush=True)
        for arm, each in laps.items():
            rate, cost = (
                statistics.median(lap.rate for lap in each),
                min(lap.cpu_us for lap in each),
            )
            print(f"  {arm:10}{rate:>12,.0f} messages/s  {cost:8.2f} us", flush=True)
        if "kafka" not in laps:
            return
        pairs = zip(laps["send"], laps["kafka"], strict=True)
        ratio = statistics.median(ours.rate / theirs.rate for ours, theirs in pairs)
        print(f"  send / kafka {ratio:.2f}, the median of pairs of laps")
        if size == SINGLE_SIZES[0] and ratio < AIM_KAFKA:
            self.failed.append(f"one by one/{size} B: send is {ratio:.2f} of confluent-kafka")

    # The terminal.

    def measure_pipe(self, size: int) -> None:
        """Measure `produce` from a pipe, and `tail` into one, with the same lines."""
        place = self._make_topic(f"pipe-{size}")
        count = self._pace.pipe_bytes // size
        lines = self._folder / f"lines-{size}"
        lines.write_bytes((b"m" * (size - 1) + b"\n") * count)
        topic = f"{STREAM}/{place.topic}"
        with lines.open("rb") as source:
            produced = self._run(["produce", topic], source.fileno(), count)
        tailed = self._run(["tail", topic, "--from", "earliest"], None, count)
        print(f"pipe/{size} B: produce {produced:,.0f} messages/s, tail {tailed:,.0f} messages/s")

    def _run(self, arguments: list[str], source: int | None, count: int) -> float:
        """Run a subcommand between `cat`s; give messages per second, and check what came out."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "headrace", *arguments, *self._connecting()]
        feeding = subprocess.Popen(  # ours
            ["/bin/cat"],
            stdin=subprocess.DEVNULL if source is None else source,
            stdout=subprocess.PIPE,
        )
        assert feeding.stdout is not None
        running = subprocess.Popen(  # noqa: S603 # ours
            command, stdin=feeding.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert running.stdout is not None
        feeding.stdout.close()
        counting = subprocess.run(
            ["/usr/bin/wc", "-l"], stdin=running.stdout, capture_output=True, check=True
        )
        told = running.communicate(timeout=PIPE_SECONDS_MAX)[1].decode(errors="replace")
        feeding.wait()
        passed = time.perf_counter() - began
        came = int(counting.stdout)
        if running.returncode or (source is None and came != count):
            raise ValueError(f"{arguments}: exit {running.returncode}, {came} lines: {told}")
        return count / passed

    def _connecting(self) -> list[str]:
        username, password = self.account
        address = f"127.0.0.1:{self.server.port}"
        return ["--address", address, "--username", username, "--password", password]


def kafka_lap(kafka: Kafka, count: int) -> Lap:
    """Return a lap of confluent-kafka in the form of the other arms."""
    seconds, busy = kafka.send()
    return Lap(count / seconds, busy / count * 1e6)


def lap_of(lap: GeneratorLap) -> Lap:
    """Give a lap of the generator as the arms give theirs."""
    if lap.errors:
        raise ValueError(f"the generator saw {lap.statuses or lap.wrong}")
    return Lap(lap.rate, lap.cpu_seconds / lap.requests * 1e6)


def run(bench: Bench) -> None:
    """Measure what was asked for."""
    print("Messages per second, and processor time of the client for one message;")
    print("in brackets the ratio to the released SDK")
    for shape in SHAPES:
        if bench.is_wanted(f"produce/{shape}"):
            bench.measure_produce(shape)
    for shape in SHAPES:
        if bench.is_wanted(f"consume/{shape}"):
            bench.measure_consume(shape)
    for size in SINGLE_SIZES:
        if bench.is_wanted(f"one by one/{size} B"):
            bench.measure_single(size)
    for size in PIPE_SIZES:
        if bench.is_wanted(f"pipe/{size} B"):
            bench.measure_pipe(size)


def main() -> None:
    """Measure, and say what missed its aim."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="one short lap each, for a look")
    length.add_argument("--shortest", action="store_true", help="tiny laps: whether it runs")
    parser.add_argument("--only", default="", help="part of the names of the cases")
    given = parser.parse_args()
    print(machine.describe())
    pace = SHORTEST if given.shortest else QUICK if given.quick else FULL
    with TemporaryDirectory(prefix="headrace-bench-") as folder:
        try:
            bench = Bench(Path(folder), pace, only=given.only)
        except NoCompilerError as error:
            print(f"skipped: {error}")
            return
        try:
            run(bench)
        except BaseException:
            bench.server.end(is_asked=False)
            raise
        bench.server.end(is_asked=True)
    print(f"load average at the end {machine.load_average():.2f}")
    for each in bench.failed:
        print(f"below the aim: {each}")


if __name__ == "__main__":
    main()
