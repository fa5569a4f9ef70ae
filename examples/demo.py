"""A node, 200,000 events, a pipeline on Spark, two kills, and every event counted.

The events are orders of a shop, a few of them damaged. The node is killed while they are sent; the
pipeline sums them up in windows, is killed after some batches, and started again. In the end each
order must be in exactly one window of the table, or among the dead letters. A difference ends the
demo with an error.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

import headrace

EVENTS = 200_000
DAMAGED_EVERY = 10_000
TOPIC = "shop/orders"
PRODUCTS = ("tea", "coffee", "bread", "cheese", "apples")
BEGIN = datetime(2026, 1, 1, 8, 0, tzinfo=UTC)
BETWEEN_ORDERS = timedelta(milliseconds=10)
JOB = Path(__file__).parent / "sales.toml"
NODE_COMMAND = (sys.executable, "-m", "headrace", "dev", "--http", "127.0.0.1:0")
JOB_COMMAND = (sys.executable, "-m", "headrace", "pipeline")


class Node:
    """A node in a process of its own, as a user starts it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it on its folder; its ready line names its address."""
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [*NODE_COMMAND, "--data", str(self._folder), "--tcp", self.address],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"  {line.rstrip()}")
            if found := re.search(r"tcp (\S+:\d+)", line):
                self.address = found[1]
                return
        raise SystemExit("the node did not start")

    def end(self, number: signal.Signals) -> None:
        """Send it a signal and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


class Job:
    """The pipeline in a process of its own, and what it says."""

    def __init__(self, file: Path, address: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [*JOB_COMMAND, "run", str(file)],
            stderr=subprocess.PIPE,
            env=_environment(address),
            text=True,
        )

    def batches(self) -> Iterator[str]:
        """Give a line for each batch of the query itself, as it is done."""
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if line.startswith("sales"):
                print(f"  {line.rstrip()}")
            if line.startswith("sales: batch"):
                yield line
        raise SystemExit("".join(["the pipeline ended too early:\n", *said]))

    def end(self, number: signal.Signals) -> None:
        """Send it a signal and wait until it is gone."""
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.communicate()


def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as name:
        folder = Path(name)
        file = Path(shutil.copy(JOB, folder))
        node = Node(folder / "data")
        jobs: list[Job] = []
        try:
            run(node, file, jobs)
            check(folder)
        finally:
            for job in jobs:
                job.end(signal.SIGKILL)
            node.end(signal.SIGTERM)
    print(f"\nEverything is stopped, after {time.monotonic() - began:.0f} s.")


def run(node: Node, file: Path, jobs: list[Job]) -> None:
    """Produce and sum up, with a kill of the node and one of the pipeline."""
    print("A node starts:")
    node.start()
    with headrace.connect(node.address, timeout="60 s") as client:
        client.create_stream("shop")
        client.create_topic(TOPIC, partitions=2)
        produce(client, 0, EVENTS // 4)
        print(f"\n{EVENTS // 4:,} events are acknowledged. The node is killed, and starts again:")
        node.end(signal.SIGKILL)
        node.start()
        produce(client, EVENTS // 4, EVENTS // 2)
        print(f"\n{EVENTS // 2:,} events are acknowledged. A pipeline sums them up on Spark:")
        jobs.append(Job(file, node.address))
        for count, _ in enumerate(jobs[-1].batches(), 1):
            if count == 2:
                break
        jobs[-1].end(signal.SIGKILL)
        print("\nThe pipeline is killed. It starts again, while more events come:")
        jobs.append(Job(file, node.address))
        produce(client, EVENTS // 2, EVENTS)
        finish(client, file, jobs[-1], node.address)


def produce(client: headrace.Client, first: int, end: int) -> None:
    """Send orders; the client goes on by itself when the node is back."""
    with client.producer(TOPIC) as producer:
        for number in range(first, end):
            producer.send(make_event(number))


def make_event(number: int) -> str:
    """Give one order; a few are cut off."""
    order = {
        "number": number,
        "product": PRODUCTS[number % len(PRODUCTS)],
        "cents": 100 + number % 900,
        "at": (BEGIN + number * BETWEEN_ORDERS).isoformat(),
    }
    text = json.dumps(order)
    return text[:20] if number % DAMAGED_EVERY == 0 else text


def finish(client: headrace.Client, file: Path, job: Job, address: str) -> None:
    """Wait until all is summed up; then let time go on, which closes the last windows."""
    has_closed = False
    for line in job.batches():
        if not has_closed and "lag 0" in line and count_read(file, address) == EVENTS:
            client.send(TOPIC, [make_event(EVENTS * 4 + 1)])  # hours later
            has_closed = True
        elif has_closed and count_orders(file.parent) >= EVENTS - EVENTS // DAMAGED_EVERY:
            job.end(signal.SIGTERM)
            return


def count_read(file: Path, address: str) -> int:
    """Give how many messages the job has read, as `headrace pipeline show` says."""
    shown = subprocess.run(  # noqa: S603 - our own program
        [*JOB_COMMAND, "show", str(file), "sales", "-o", "json"],
        stdout=subprocess.PIPE,
        env=_environment(address),
        check=True,
    )
    (offsets,) = json.loads(shown.stdout)["state"]["query"]["offsets"]
    return sum(partition["next"] for partition in offsets["topics"][TOPIC].values())


def count_orders(folder: Path) -> int:
    """Give how many orders the windows of the table hold."""
    table = DeltaTable(str(folder / "tables" / "sales")).to_pyarrow_table(columns=["orders"])
    return sum(table["orders"].to_pylist())


def check(folder: Path) -> None:
    """Show the table, and hold it against what was sent."""
    rows = DeltaTable(str(folder / "tables" / "sales")).to_pyarrow_table().to_pylist()
    dead = ds.dataset(folder / "tables" / "sales_dead_letters", format="parquet").to_table()
    show(rows)
    numbers = sorted(number for row in rows for number in row["numbers"])
    damaged = list(range(0, EVENTS, DAMAGED_EVERY))
    if numbers != [number for number in range(EVENTS) if number not in damaged]:
        raise SystemExit(f"{len(numbers):,} orders are in the table: not each exactly once")
    if sum(row["orders"] for row in rows) != len(numbers):
        raise SystemExit("the counts of the windows are wrong")
    if sorted(dead["payload"].to_pylist()) != sorted(make_event(n).encode() for n in damaged):
        raise SystemExit(f"{dead.num_rows} dead letters: not each damaged event exactly once")
    print(
        f"{EVENTS:,} events were sent: {len(numbers):,} orders are in the table and"
        f" {dead.num_rows} damaged ones among the dead letters, each exactly once."
    )


def show(rows: list[dict[str, object]]) -> None:
    """Print the windows, with the turnover of each product."""
    windows: dict[str, dict[str, int]] = {}
    for row in rows:
        assert isinstance(row["begins"], datetime)
        assert isinstance(row["cents"], int)
        window = windows.setdefault(f"{row['begins']:%H:%M}", {})
        window[str(row["product"])] = row["cents"]
    table = Table("window", *PRODUCTS, title="\nTurnover")
    for begins, cents in sorted(windows.items()):
        table.add_row(begins, *(f"{cents.get(product, 0) / 100:,.2f}" for product in PRODUCTS))
    Console().print(table)


def _environment(address: str) -> dict[str, str]:
    """Give the environment of a client command: which node it talks to."""
    return os.environ | {"HEADRACE_ADDRESS": address}


if __name__ == "__main__":
    main()
