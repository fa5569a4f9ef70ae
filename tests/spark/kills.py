"""Kills what a pipeline runs on, and sees that its tables equal the log afterwards.

```
round    messages are sent, the jobs run; then, after some batches and a random moment:
  driver   the Python driver gets SIGKILL; its JVM notices a little later
  machine  driver and JVM and workers get SIGKILL at once
  broker   the node gets SIGKILL and starts again under the running jobs, then `driver`
  commit   the jobs catch up, then `driver`, and the newest entry of a commit log is removed: its
           batch is done again, on a table that has it
end      the jobs run until nothing is left
```

In every run each task fails at its first attempt, with a chance of one in four.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable

import headrace
from headrace.pipelines.checkpoint import COMMITS, DEAD_LETTERS, QUERY, hold, read_state
from headrace.spark.offsets import decode_offsets
from tests.node import Node

KINDS = ("driver", "machine", "broker", "commit")
TOPIC = "shop/orders"
PARTITIONS = 2
MESSAGES_PER_ROUND = 600  # six batches: enough to be killed in, few to be done again
SECONDS_MAX = 400.0  # for some batches, on a busy machine; a run that hangs is an error
MOMENT_SECONDS_MAX = 0.5
_LOOK_SECONDS = 0.02
JOBS = """
import random

from pyspark import TaskContext

from headrace.pipelines import pipeline

spark = {
    "master": "local[2,3]",
    "conf": {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
}
OPTIONS = {"maxOffsetsPerTrigger": 100}


def flaky(batches):
    yield from batches
    if TaskContext.get().attemptNumber() == 0 and random.random() < 0.25:
        raise RuntimeError("this attempt fails by design")


@pipeline(
    source={"orders": {"topic": "shop/orders", "schema": "number BIGINT", "options": OPTIONS}},
    sink={"kind": "delta", "path": "delta"},
    dead_letters={"kind": "parquet", "path": "dead"},
    trigger="50 ms",
    restarts=50,  # a busy machine starts workers later than Spark waits
)
def to_delta(orders):
    return orders.mapInArrow(flaky, orders.schema)


@pipeline(
    source={"orders": {"topic": "shop/orders", "options": OPTIONS}},
    sink={"kind": "parquet", "path": "parquet"},
    trigger="50 ms",
    restarts=50,  # a busy machine starts workers later than Spark waits
)
def to_parquet(orders):
    return orders.mapInArrow(flaky, orders.schema)
"""
# The queries that can lose a commit, by job and part.
QUERIES = (("to-delta", QUERY), ("to-delta", DEAD_LETTERS), ("to-parquet", QUERY))


@dataclass
class Tally:
    """What was done, and how many messages the tables were compared with."""

    kills: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    dead_letters: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} restarts ({kinds}); {self.messages:,} messages,"
            f" {self.dead_letters:,} of them dead letters: tables equal the log"
        )


class Run:
    """The jobs in a process of their own, as a user starts them."""

    def __init__(self, folder: Path, address: str, *more: str) -> None:
        self._folder = folder
        self.log = folder / "run.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "pipeline", "run", *more, folder / "jobs.py"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"HEADRACE_ADDRESS": address},
                start_new_session=True,
            )

    def wait_batches(self, batches: int) -> None:
        """Wait until every query has planned so many batches more."""
        wanted = {key: count + batches for key, count in self._planned().items()}
        self._wait(
            lambda: all(self._planned()[key] >= count for key, count in wanted.items()),
            f"{batches} batches",
        )

    def wait_caught_up(self, messages: int) -> None:
        """Wait until every query has committed all messages."""
        folders = [checkpoint_of(self._folder, *key) for key in QUERIES]
        self._wait(
            lambda: all(_count_committed(folder) == messages for folder in folders),
            f"{messages} messages",
        )

    def wait_end(self) -> None:
        try:
            code = self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill(with_jvm=True)
            raise AssertionError(self.describe(f"no end after {SECONDS_MAX} s")) from None
        assert code == 0, self.describe(f"ended with {code}")

    def kill(self, *, with_jvm: bool) -> None:
        """Kill the driver alone, or all that it started with it."""
        if with_jvm:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def describe(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-60:]
        return "\n".join([f"the jobs: {what}; their last lines:", *lines])

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not is_done():
            assert self.process.poll() is None, self.describe("ended by itself")
            assert time.monotonic() < deadline, self.describe(f"{what} took too long")
            time.sleep(_LOOK_SECONDS)

    def _planned(self) -> dict[tuple[str, str], int]:
        states = {key: read_state(checkpoint_of(self._folder, *key)) for key in QUERIES}
        return {key: -1 if state is None else state.planned for key, state in states.items()}


def run_kills(folder: Path, kinds: list[str], seed: int) -> Tally:
    """Go through the rounds, then compare tables and log.

    Raises:
        AssertionError: They differ, or a run did not go on.
    """
    rng = random.Random(seed)
    tally = Tally()
    (folder / "jobs.py").write_text(JOBS)
    node = Node(folder)
    node.start()
    try:
        with headrace.connect(str(node.tcp)) as client:
            client.create_stream("shop")
            client.create_topic(TOPIC, partitions=PARTITIONS)
            for kind in kinds:
                _interrupt(folder, node, kind, rng, lambda: send(client, tally))
                tally.kills[kind] += 1
            send(client, tally)
            Run(folder, str(node.tcp), "--available-now").wait_end()
            compare(folder, client, tally)
        node.stop()
    finally:
        if node.is_started:
            node.kill()
    return tally


def send(client: headrace.Client, tally: Tally) -> int:
    """Send messages that are numbered on, one in a hundred unreadable; give how many there are."""
    numbers = range(tally.messages, tally.messages + MESSAGES_PER_ROUND)
    values = [f'{{"number": {n}}}' if n % 100 else f'{{"number": "{n}"}}' for n in numbers]
    for partition in range(PARTITIONS):
        client.send(TOPIC, values[partition::PARTITIONS], partition=partition)
    tally.messages += MESSAGES_PER_ROUND
    return tally.messages


def _interrupt(
    folder: Path, node: Node, kind: str, rng: random.Random, send_more: Callable[[], int]
) -> None:
    assert kind in KINDS
    messages = send_more()
    run = Run(folder, str(node.tcp))
    try:
        if kind == "commit":
            run.wait_caught_up(messages)
        else:
            run.wait_batches(rng.randint(2, 4))
        time.sleep(rng.uniform(0, MOMENT_SECONDS_MAX))  # chance, nothing is waited for
        if kind == "broker":
            node.kill()
            node.start()
            send_more()  # the jobs may have caught up
            run.wait_batches(2)
    finally:
        run.kill(with_jvm=kind == "machine")
    if kind == "commit":
        _wait_jvm_ended(folder)
        _lose_commit(checkpoint_of(folder, *rng.choice(QUERIES)))


def _wait_jvm_ended(folder: Path) -> None:
    """Whoever runs the jobs next waits for the JVM; so does who changes its files."""
    with hold(folder / "checkpoints" / "to-delta"):
        pass


def _lose_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as a driver does that dies between the sink's commit and its own."""
    state = read_state(checkpoint)
    assert state is not None
    assert state.committed == state.planned
    for name in (str(state.committed), f".{state.committed}.crc"):
        (checkpoint / COMMITS / name).unlink()


def _count_committed(checkpoint: Path) -> int:
    state = read_state(checkpoint)
    if state is None or state.committed < state.planned or not state.offsets:
        return 0
    return sum(place.next for place in decode_offsets(state.offsets[0]).values())


def checkpoint_of(folder: Path, job: str, part: str) -> Path:
    return folder / "checkpoints" / job / part


def compare(folder: Path, client: headrace.Client, tally: Tally) -> None:
    """Hold the tables against the log: the same rows, each once."""
    log = read_log(client)
    assert len(log) == tally.messages
    columns = ["partition", "offset", "payload"]
    delta = rows_of(DeltaTable(str(folder / "delta")).to_pyarrow_table(columns=columns))
    dead = rows_of(ds.dataset(folder / "dead", format="parquet").to_table(columns=columns))
    parquet = rows_of(ds.dataset(folder / "parquet", format="parquet").to_table(columns=columns))
    tally.dead_letters = dead.total()
    assert dead.total() == tally.messages // 100
    assert_equal("delta and its dead letters", delta + dead, log)
    assert_equal("parquet", parquet, log)


def read_log(client: headrace.Client) -> Counter[tuple[int, int, bytes]]:
    rows: Counter[tuple[int, int, bytes]] = Counter()
    with client.consumer(TOPIC, name="compare", wait="0 s") as consumer:
        for message in consumer:
            rows[message.partition, message.offset, bytes(message.value)] += 1
    return rows


def rows_of(table: object) -> Counter[tuple[int, int, bytes]]:
    rows = table.to_pylist()  # type: ignore[attr-defined]  # pyarrow has no types
    return Counter((row["partition"], row["offset"], row["payload"]) for row in rows)


def assert_equal(
    what: str, table: Counter[tuple[int, int, bytes]], log: Counter[tuple[int, int, bytes]]
) -> None:
    missing, more = sorted((log - table).items()), sorted((table - log).items())
    assert not missing, f"{what}: {len(missing)} messages are missing: {missing[:3]}"
    assert not more, f"{what}: {len(more)} messages are there too often or changed: {more[:3]}"
