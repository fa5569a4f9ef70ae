"""A disk whose syncs are slow: what that costs a connection that waits for none of them.

One connection sends single messages of class `persisted`, acknowledged when synced; another
one sends single messages of class `replicated` and is measured. The loop may sync by itself while
syncs are quick, so a disk that becomes slow holds the second connection up once, and then no more:
each lap begins after many quick syncs.

    python -m bench.slow_disk [--quick | --shortest] [--folder DIR]

The node runs with a sync that waits as long as a file says.
"""

import argparse
import os
import runpy
import shlex
import statistics
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import machine
from bench.frames import (
    PERSISTED,
    REPLICATED,
    STREAM,
    Connection,
    Shape,
    make_batch,
)
from bench.server import NODE, Server, make_account
from headrace.wire.commands.messages import SEND_MESSAGES, SendMessages
from headrace.wire.identifiers import ToPartition

DELAYS = (0.0, 0.01, 1.0)
WARM_UP_SENDS = 200  # more than the quick syncs after which the loop syncs by itself
SECONDS, QUICK_SECONDS, SHORTEST_SECONDS = 10.0, 3.0, 0.2
_AS_NODE = "as-node"


def run_as_node(delay_file: Path, arguments: list[str]) -> None:
    """Run the `headrace` command with syncs that wait as long as the file says."""
    sync = os.fdatasync

    def slow(fd: int) -> None:
        sync(fd)
        time.sleep(float(delay_file.read_text()))

    setattr(os, "fdatasync", slow)  # noqa: B010 - the type checker refuses the plain form
    sys.argv = ["headrace", *arguments]
    runpy.run_module("headrace", run_name="__main__", alter_sys=True)


class Sender(threading.Thread):
    """Sends durable messages one after another until it is told to stop."""

    def __init__(self, client: Connection) -> None:
        super().__init__()
        self._client = client
        self._has_ended = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._has_ended.is_set():
            send(self._client, PERSISTED)
            self.sent += 1

    def end(self) -> None:
        """Stop after the send that is on its way."""
        self._has_ended.set()
        self.join()


def send(client: Connection, topic: str) -> None:
    """Send one message, and wait for its answer."""
    batch = memoryview(make_batch(Shape(1, 100)))
    client.call(SEND_MESSAGES, SendMessages(STREAM, topic, ToPartition(0), 1, batch))


def measure(beside: Connection, durable: Connection, seconds: float) -> str:
    """Return the latencies of one connection beside durable sends of another one."""
    sender = Sender(durable)
    sender.start()
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        send(beside, REPLICATED)
        took.append((time.monotonic() - began) * 1000)
    sender.end()
    took.sort()
    p50, p99 = statistics.median(took), took[len(took) * 99 // 100]
    return f"{sender.sent:10,} {len(took):10,} {p50:9.2f} {p99:9.2f} {took[-1]:9.1f}"


def main() -> None:
    """Measure with each delay."""
    parser = argparse.ArgumentParser(description="A connection beside one whose syncs are slow.")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--quick", action="store_true", help="short laps, for a look")
    pace.add_argument("--shortest", action="store_true", help="tiny laps: whether it runs")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    given = parser.parse_args()
    seconds = SHORTEST_SECONDS if given.shortest else QUICK_SECONDS if given.quick else SECONDS
    print(machine.describe())
    print("sync takes    durable     beside    p50 ms    p99 ms    max ms")
    with TemporaryDirectory(dir=given.folder) as name:
        delay_file = Path(name) / "delay"
        delay_file.write_text("0")
        node = NODE.replace("-m headrace", f"-m bench.slow_disk {_AS_NODE} {{delay}}")
        command = node.replace("{delay}", shlex.quote(str(delay_file)))
        account = make_account()
        server = Server(command, Path(name), account)
        try:
            beside = Connection(server.port, account)
            durable = Connection(server.port, account)
            beside.create_stream()
            for topic in (PERSISTED, REPLICATED):
                beside.create_topic(topic, topic)
            for delay in DELAYS:
                delay_file.write_text("0")
                for _ in range(10 if given.shortest else WARM_UP_SENDS):
                    send(durable, PERSISTED)
                    send(beside, REPLICATED)
                delay_file.write_text(str(delay / 10 if given.shortest else delay))
                print(f"{delay * 1000:7.0f} ms {measure(beside, durable, seconds)}")
        finally:
            server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == [_AS_NODE]:
        run_as_node(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
