"""What many partitions cost a shard: time, and how many of them it looks at.

A shard on disks in memory that answer at once. Topics have ten partitions each, and every partition
holds one batch. A visit is any use of a partition or its group in one turn; `tests/shard/visits.py`
counts them in a second run, so that counting costs the times nothing. Times are of the processor,
in the shard and its stores alone: what stands in for the disk is not counted. `longest` is that of
one step of the pump; opening the stores comes before the first.

    start           from the files until the shard is ready
    settling        the turns after it, until nothing is left to look at
    idle turn       a tick, and nothing else
    idle pass       a tick in which partitions are compared with the metadata, as once a second
    one partition   a topic gets one partition more
    one change      a topic of ten partitions is created, and one is deleted
    one send        a batch of one message
    checkpoint      of all partitions: the first one after the start
    checkpoint of 1 one partition has changed since the last

    python -m bench.partitions [--shortest]
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.targets import RECONCILER_TARGETS
from headrace.base.limits import MIB
from headrace.ports.host import StopWanted
from headrace.shard.shard import Shard
from headrace.wire.commands import streams, topics
from headrace.wire.identifiers import ToPartition
from tests.shard import whole
from tests.shard.visits import Visits, counted_visits
from tests.shard.whole import Whole

START = "start"  # nobody is served meanwhile
COUNTS = (100, 1_000, 10_000)
PER_TOPIC = 10
SETTLING_TURNS = 200
IDLE_TURNS = 1_000
IDLE_PASSES = 1_000
NEW_PARTITIONS = 50
LONGEST_SECONDS_AIMED = 0.020  # of a step, whatever it does
JOURNAL_BYTES = 16 * MIB
TICKS_MAX = 100_000
STEPS_PER_PARTITION_MAX = 100  # A stop or a start takes a few for each, without any time passing.


class Clock:
    """How long the shard has worked since `clear`."""

    def __init__(self) -> None:
        self.seconds = self.longest = 0.0

    def clear(self) -> None:
        """Begin anew."""
        self.seconds = self.longest = 0.0

    def timed(self, function: Callable[..., Any], *, is_step: bool) -> Callable[..., Any]:
        """Return a function whose calls are counted; the longest one, if it is a step."""

        def call(*args: object, **options: object) -> object:
            begin = time.process_time()
            try:
                return function(*args, **options)
            finally:
                passed = time.process_time() - begin
                self.seconds += passed
                if is_step:
                    self.longest = max(self.longest, passed)

        return call


class Row:
    """One thing that was done: what it cost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds = 0.0
        self.longest = 0.0  # of one step
        self.visits = 0
        self.turn_visits = 0


class Run:
    """One shard with so many partitions; `visits` counts if it is there."""

    def __init__(self, count: int, visits: Visits | None) -> None:
        self.rows: list[Row] = []
        self._visits = visits
        self._clock = Clock()
        self._node = Whole(
            tail_bytes_max=64 * MIB,
            journal_bytes=JOURNAL_BYTES,
            steps_max=STEPS_PER_PARTITION_MAX * count,
        )
        self._node.is_checking = False  # It looks at every partition after every step.
        self._client = self._node.client()
        self._fill(count)
        self._stop()
        with _replaced(self._clock):
            self._measure_all()

    def _measure_all(self) -> None:
        self._measure(START, self._start)
        self._client = self._node.client()
        self._measure("settling", self._settle)
        self._measure("idle turn", self._idle, IDLE_TURNS)
        self._measure("idle pass", self._pass, IDLE_PASSES)
        self._client = self._node.client()  # The other one was silent for too long.
        self._measure("one partition", self._add_partitions, NEW_PARTITIONS)
        self._measure("one change", self._change, 2)
        self._measure("one send", self._send)
        self._measure("checkpoint", self._checkpoint)
        self._send()
        self._measure("checkpoint of 1", self._checkpoint)

    def _fill(self, count: int) -> None:
        client = self._client
        client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
        for number in range(count // PER_TOPIC):
            client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PER_TOPIC, f"t{number}"))
            frames = [
                client.send_frame_of("s", f"t{number}", [b"one"], to=ToPartition(partition))
                for partition in range(PER_TOPIC)
            ]
            client.post(*frames)
            self._node.inbox[client.connection].clear()

    def _stop(self) -> None:
        self._node.step(StopWanted())
        self._until(lambda: self._node.shard.is_stopped)

    def _start(self) -> None:
        self._node.segments.kill()
        self._node.start()

    def _settle(self) -> None:
        self._node.tick(SETTLING_TURNS)

    def _idle(self) -> None:
        self._node.tick(IDLE_TURNS)

    def _pass(self) -> None:
        for _ in range(IDLE_PASSES):
            self._node.now += self._node.shard.settings.reconcile_ticks - 1
            self._node.tick()

    def _add_partitions(self) -> None:
        for _ in range(NEW_PARTITIONS):
            self._client.ask(topics.CREATE_PARTITIONS, topics.CreatePartitions("s", "t0", 1))

    def _change(self) -> None:
        self._client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PER_TOPIC, "new"))
        self._client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "new"))

    def _send(self) -> None:
        self._client.send("s", "t0", [b"two"])

    def _checkpoint(self) -> None:
        plane = self._node.shard.data_plane
        done = plane.checkpoints.done_count
        plane.want_checkpoint()
        self._until(lambda: plane.checkpoints.done_count > done)

    def _until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(TICKS_MAX):
            if is_done():
                return
            self._node.tick()
        raise AssertionError("it never ends")

    def _measure(self, name: str, action: Callable[[], None], divisor: int = 1) -> None:
        row = Row(name)
        if self._visits is not None:
            self._visits.clear()
        self._clock.clear()
        action()
        row.seconds, row.longest = self._clock.seconds / divisor, self._clock.longest
        if self._visits is not None:
            row.visits = self._visits.total // divisor
            row.turn_visits = self._visits.largest
        self.rows.append(row)


@contextmanager
def _replaced(clock: Clock) -> Iterator[None]:
    """Have the clock count what a shard and its stores do."""
    kept = [(whole, "open_store"), (Shard, "__init__"), (Shard, "start"), (Shard, "step")]
    before = [getattr(owner, name) for owner, name in kept]
    for (owner, name), function in zip(kept, before, strict=True):
        setattr(owner, name, clock.timed(function, is_step=name == "step"))
    try:
        yield
    finally:
        for (owner, name), function in zip(kept, before, strict=True):
            setattr(owner, name, function)


def measure(count: int) -> list[Row]:
    """Give the rows for so many partitions, times of one run and visits of another."""
    timed = Run(count, None).rows
    with counted_visits() as visits:
        counted = Run(count, visits).rows
    for row, other in zip(timed, counted, strict=True):
        row.visits, row.turn_visits = other.visits, other.turn_visits
    return timed


def figures_of(rows: dict[int, list[Row]]) -> dict[str, float]:
    """Return the figures that targets speak of: microseconds, and milliseconds of a step."""
    figures = {"longest step aimed at": LONGEST_SECONDS_AIMED * 1e3}
    for count, measured in rows.items():
        figures |= {f"{row.name} {count}": row.seconds * 1e6 for row in measured}
        served = [row.longest for row in measured if row.name != START]
        figures[f"longest step {count}"] = max(served) * 1e3
    return figures


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shortest", action="store_true", help="only 100 partitions")
    parser.add_argument("--counts", type=int, nargs="*", help="other numbers of partitions")
    chosen = parser.parse_args(arguments)
    counts = chosen.counts or (COUNTS[:1] if chosen.shortest else COUNTS)
    print(
        f"{'partitions':>10}  {'':16}{'ms':>10}{'longest':>10}{'visits':>12}{'in a turn':>12}",
        flush=True,
    )
    rows: dict[int, list[Row]] = {}
    for count in counts:
        rows[count] = measure(count)
        for row in rows[count]:
            print(
                f"{count:>10}  {row.name:16}{row.seconds * 1e3:>10.3f}{row.longest * 1e3:>10.2f}"
                f"{row.visits:>12}{row.turn_visits:>12}",
                flush=True,
            )
    print("\nTargets: ratio, what is wanted, of what")
    for target in RECONCILER_TARGETS:
        print(target.judge(figures_of(rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
