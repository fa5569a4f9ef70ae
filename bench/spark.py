"""Topics on Spark, beside Spark's own Parquet scan of the same rows, in one run.

Every comparison runs in rounds: each arm once, in an order that is drawn anew, after one round that
does not count. Figures are medians of rounds; compare ratios, never times between runs. On a busy
machine the processor time of an arm says more than its duration: what two processes hand to each
other waits for both. Checksums are compared everywhere, as always.

* scan: all columns of sealed segments to Spark's no-op sink, from the files (`direct`), through
  the broker (`broker`), and from Parquet files of the same rows (`parquet`).
* rows: the same as tuples, and as record batches, of a part of the rows.
* range: one offset in a thousand, against all of them.
* latency: from a send to the call of `foreachBatch`, and to its rows, one message at a time.
* replay: a stream over all messages in parts; what its workers have in memory meanwhile.

    python -m bench.spark [--quick] [--only PART] [--json FILE] [--folder DIR]
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import DataFrame

import headrace
from bench import machine
from bench.frames import STREAM, Shape
from bench.server import NODE, Server, make_account
from bench.spark_arms import Bench
from bench.spark_memory import watching
from bench.spark_topics import MESSAGES_PER_BATCH, Topic, drain, fill, reader, write_parquet
from bench.spark_tuples import TupleSource
from bench.targets import Target
from headrace.base.limits import MIB
from headrace.spark.session import session

ROUNDS = 5
SMALL = Shape(MESSAGES_PER_BATCH, 100)
LARGE = Shape(MESSAGES_PER_BATCH, 1024)
SHAPES = (SMALL, LARGE)
TUPLE_ROWS = 50_000  # of each partition: rows of Python are slow
SENDS = 40
SENDS_WARM = 10
BATCH_SECONDS_MAX = 60.0
REPLAY_PARTS = 10
LOAD_MAX = (os.cpu_count() or 1) * 1.25

TARGETS = (
    Target(
        "scan of files at 100 B, of Spark's Parquet scan",
        "scan/100/direct",
        "scan/100/parquet",
        0.8,
    ),
    Target(
        "scan of files at 1 KiB, of Spark's Parquet scan",
        "scan/1024/direct",
        "scan/1024/parquet",
        0.65,
    ),
    Target("0.1 % of the offsets, faster than all of them by", "all/seconds", "range/seconds", 5.0),
    Target(
        "append to foreachBatch, median seconds", "latency/call", "second", 0.2, is_at_most=True
    ),
    Target(
        "workers' memory, second half of the replay to the first",
        "memory/late",
        "memory/early",
        1.1,
        is_at_most=True,
    ),
)


class Sizes(NamedTuple):
    """How many messages of each shape, how many of them are scanned, and how often."""

    messages: Mapping[Shape, int]
    scanned: int
    rounds: int


FULL = Sizes({SMALL: 10_400_000, LARGE: 1_000_000}, 4_000_000, ROUNDS)
QUICK = Sizes({SMALL: 2_000_000, LARGE: 400_000}, 1_000_000, 2)


def measure_scan(bench: Bench, topic: Topic) -> None:
    """Read all columns of all rows, three ways."""
    title = f"scan/{topic.shape.payload_bytes}"
    write_parquet(bench.spark, topic)
    rows = bench.spark.read.parquet(str(topic.parquet)).count()
    if rows != topic.rows:
        raise AssertionError(f"{rows} rows of {topic.rows} came out of {topic.name}")
    bench.compare(
        title,
        topic.rows,
        topic.payload_bytes,
        {
            "direct": lambda: drain(reader(bench.spark, topic).option("read", "direct").load()),
            "parquet": lambda: drain(bench.spark.read.parquet(str(topic.parquet))),
            "broker": lambda: drain(reader(bench.spark, topic).option("read", "broker").load()),
        },
    )


def measure_rows(bench: Bench, topic: Topic) -> None:
    """Read a part of the rows as record batches and as tuples."""

    def part(kind: str) -> DataFrame:
        return reader(bench.spark, topic, kind).option("toOffset", str(TUPLE_ROWS)).load()

    rows = TUPLE_ROWS * len(topic.ends)
    bench.compare(
        f"rows/{topic.shape.payload_bytes}",
        rows,
        rows * topic.shape.payload_bytes,
        {
            "arrow": lambda: drain(part("headrace")),
            "tuples": lambda: drain(part(TupleSource.name())),
        },
    )


def measure_range(bench: Bench, topic: Topic) -> None:
    """Read one offset in a thousand, by options and by a filter that is pushed down."""
    width = topic.rows // len(topic.ends) // 1000
    first = min(topic.ends.values()) // 2
    between = f"offset >= {first} AND offset < {first + width}"

    def by_options() -> DataFrame:
        chosen = reader(bench.spark, topic).option("fromOffset", str(first))
        return chosen.option("toOffset", str(first + width)).load()

    def by_filter() -> DataFrame:
        return reader(bench.spark, topic).option("pushdown", "true").load().where(between)

    rows = by_filter().count()
    if rows != by_options().count() or rows != width * len(topic.ends):
        raise AssertionError(f"{rows} rows of {width * len(topic.ends)} in {between}")
    bench.compare(
        "range",
        rows,
        rows * topic.shape.payload_bytes,
        {
            "all": lambda: drain(reader(bench.spark, topic).load()),
            "options": lambda: drain(by_options()),
            "filter": lambda: drain(by_filter()),
        },
    )
    bench.figures["all/seconds"] = bench.figures["range/all/seconds"]
    bench.figures["range/seconds"] = bench.figures["range/filter/seconds"]


def measure_latency(bench: Bench, folder: Path) -> None:
    """Send one message at a time into a running stream."""
    topic = f"{STREAM}/latency"
    bench.client.create_topic(topic)
    calls: SimpleQueue[tuple[float, float, int]] = SimpleQueue()

    def take(frame: DataFrame, _: int) -> None:
        called = time.perf_counter()
        rows = frame.select("offset").collect()
        calls.put((called, time.perf_counter(), len(rows)))

    query = (
        bench.spark.readStream.format("headrace")
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.option("checkpointLocation", str(folder / "latency"))
        .foreachBatch(take)
        .start()
    )
    to_call, to_rows = [], []
    try:
        for number in range(SENDS + SENDS_WARM):
            begun = time.perf_counter()
            bench.client.send(topic, [b"now"])
            called, had, rows = calls.get(timeout=BATCH_SECONDS_MAX)
            if rows != 1:
                raise AssertionError(f"a batch of {rows} rows after message {number}")
            if number >= SENDS_WARM:
                to_call.append(called - begun)
                to_rows.append(had - begun)
    finally:
        query.stop()
    print(f"\nlatency: {SENDS} sends one by one, load {machine.load_average():.1f}")
    for name, seconds in (("call", to_call), ("rows", to_rows)):
        bench.figures[f"latency/{name}"] = statistics.median(seconds)
        print(
            f"  to {name:5} median {statistics.median(seconds) * 1e3:.0f} ms,"
            f" best {min(seconds) * 1e3:.0f}, worst {max(seconds) * 1e3:.0f}"
        )


def measure_replay(bench: Bench, topic: Topic, folder: Path) -> None:
    """Run a stream over everything, in parts, and watch its workers."""
    total = sum(
        bench.client.plan_segments(topic.name, partition).next_offset for partition in topic.ends
    )
    begun = time.perf_counter()
    with watching() as watch:
        query = (
            bench.spark.readStream.format("headrace")
            .option("topic", topic.name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(-(-total // REPLAY_PARTS)))
            .load()
            .writeStream.option("checkpointLocation", str(folder / "replay"))
            .trigger(availableNow=True)
            .format("noop")
            .start()
        )
        query.awaitTermination()
    seconds = time.perf_counter() - begun
    rows = sum(each.numInputRows for each in query.recentProgress)
    if rows != total:
        raise AssertionError(f"{rows} of {total} messages were replayed")
    early, late = watch.peak(first_half=True), watch.peak(first_half=False)
    bench.figures |= {"memory/early": early, "memory/late": late, "replay": rows / seconds}
    print(f"\nreplay: {rows:,} messages in {REPLAY_PARTS} parts, load {machine.load_average():.1f}")
    print(
        f"  {seconds:.1f} s, {rows / seconds / 1e6:.2f} M rows/s; largest worker"
        f" {early / MIB:.0f} MiB in the first half, {late / MIB:.0f} MiB in the second"
    )


def run(bench: Bench, sizes: Sizes, folder: Path) -> None:
    """Fill the topics that the wanted parts need, and measure these."""
    bench.client.create_stream(STREAM)
    for shape in SHAPES:
        size = shape.payload_bytes
        parts = [f"scan/{size}", f"rows/{size}", *(["range", "replay"] if shape == SMALL else [])]
        if not any(map(bench.is_wanted, parts)):
            continue
        begun = time.perf_counter()
        whole = fill(bench.client, shape, sizes.messages[shape], folder / f"parquet-{size}")
        print(f"{whole.name} filled in {time.perf_counter() - begun:.0f} s, {whole.rows:,} sealed")
        topic = whole.begin(sizes.scanned)
        if bench.is_wanted(f"scan/{size}"):
            measure_scan(bench, topic)
        if bench.is_wanted(f"rows/{size}"):
            measure_rows(bench, topic)
        if bench.is_wanted("range") and shape == SMALL:
            measure_range(bench, topic)
        if bench.is_wanted("replay") and shape == SMALL:
            measure_replay(bench, whole, folder)
    if bench.is_wanted("latency"):
        measure_latency(bench, folder)


def report(bench: Bench, path: Path | None) -> None:
    """Say how the aims stand."""
    print()
    verdicts = [target.judge(bench.figures) for target in TARGETS]
    for verdict in verdicts:
        print(verdict)
    if machine.load_average() > LOAD_MAX:
        print(f"others kept this machine busy (load above {LOAD_MAX:g}): take no figure for final")
    if path is not None:
        told = {"figures": bench.figures, "targets": [each.as_json() for each in verdicts]}
        path.write_text(json.dumps(told, indent=1) + "\n")


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds")
    parser.add_argument("--only", default="", help="part of the names of what is measured")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--folder", type=Path, help="where data goes, not kept")
    given = parser.parse_args()
    sizes = QUICK if given.quick else FULL
    print(machine.describe())
    # Workers import the source of tuples from here.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    account = make_account()
    with TemporaryDirectory(prefix="headrace-bench-", dir=given.folder) as name:
        folder = Path(name)
        server = Server(NODE, folder, account)
        try:
            address = f"127.0.0.1:{server.port}"
            os.environ["HEADRACE_ADDRESS"] = address
            os.environ["HEADRACE_USERNAME"], os.environ["HEADRACE_PASSWORD"] = account
            spark = session("bench", master="local[2]", conf=_quiet(folder)).getOrCreate()
            spark.sparkContext.setLogLevel("OFF")
            spark.dataSource.register(TupleSource)
            with headrace.connect(address, timeout="2 min") as client:
                bench = Bench(spark, client, sizes.rounds, given.only)
                run(bench, sizes, folder)
            report(bench, given.json)
            spark.stop()
        finally:
            server.end(is_asked=sys.exc_info()[0] is None)
    return 0


def _quiet(folder: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "3g",
    }


if __name__ == "__main__":
    sys.exit(main())
