"""A node, 200,000 events by the released SDK, a kill in the middle, and every event counted.

The events are orders of a shop. A producer sends them in batches; half-way through the node is
killed with SIGKILL and started again on its folder, while the producer goes on. In the end every
event that was acknowledged is read back and counted. A difference ends the demo with an error.
"""

import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from apache_iggy import Consumer, IggyClient, PollingStrategy, SendMessage

EVENTS = 200_000
BATCH = 1000
PARTITIONS = 2
STREAM, TOPIC = "shop", "orders"
PRODUCTS = ("tea", "coffee", "bread", "cheese", "apples")


class Node:
    """A node in a process of its own, as a user starts it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Start it on its folder; give the address that its ready line names."""
        self._process = subprocess.Popen(  # noqa: S603  # our own program
            [
                *(sys.executable, "-m", "headrace", "serve"),
                *("--data", str(self._folder), "--tcp", self._address, "--http", "127.0.0.1:0"),
            ],
            stdout=subprocess.PIPE,
            env={"HEADRACE_ROOT_USERNAME": "iggy", "HEADRACE_ROOT_PASSWORD": "iggy"},
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"  {line.rstrip()}")
            if found := re.search(r"tcp (\S+:\d+)", line):
                self._address = found[1]
                return self._address
        raise SystemExit("the node did not start")

    def end(self, number: signal.Signals) -> None:
        """Send it a signal and wait until it is gone."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()


async def main() -> None:
    """Run the demo."""
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        node = Node(Path(folder) / "data")
        print("A node starts:")
        address = node.start()
        client = await connect(address)
        await client.create_stream(STREAM)
        await client.create_topic(STREAM, TOPIC, partitions_count=PARTITIONS)
        began = time.monotonic()
        await produce(client, 0, EVENTS // 2)
        print(f"\n{EVENTS // 2:,} events are acknowledged. The node is killed, and starts again:")
        node.end(signal.SIGKILL)
        address = node.start()
        client = await connect(address)
        await produce(client, EVENTS // 2, EVENTS)
        print(f"\n{EVENTS:,} events in {time.monotonic() - began:.1f} s, the kill included.")
        await count(client)
        node.end(signal.SIGTERM)


async def connect(address: str) -> IggyClient:
    """Give a client of the released SDK that is logged in."""
    client = IggyClient(address)
    await client.connect()
    await client.login_user("iggy", "iggy")
    return client


async def produce(client: IggyClient, first: int, end: int) -> None:
    """Send events in batches, to the partitions in turn."""
    for start in range(first, end, BATCH):
        batch = [SendMessage(make_event(number)) for number in range(start, start + BATCH)]
        await client.send_messages(STREAM, TOPIC, start // BATCH % PARTITIONS, batch)


def make_event(number: int) -> str:
    """Give one order."""
    product = PRODUCTS[number % len(PRODUCTS)]
    return json.dumps({"order": number, "product": product, "cents": 100 + number % 900})


async def count(client: IggyClient) -> None:
    """Read everything back; compare it with what was sent."""
    seen = bytearray(EVENTS)
    sold: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        offset = 0
        while messages := await client.poll_messages(
            STREAM,
            TOPIC,
            consumer=Consumer.Single("demo"),
            partition_id=partition,
            polling_strategy=PollingStrategy.Offset(offset),
            count=BATCH,
            auto_commit=False,
        ):
            for message in messages:
                if message.offset() != offset:
                    raise SystemExit(f"offset {message.offset()} where {offset} should be")
                offset += 1
                event = json.loads(message.payload())
                if event != json.loads(make_event(event["order"])) or seen[event["order"]]:
                    raise SystemExit(f"order {event['order']} is changed, or here twice")
                seen[event["order"]] = 1
                sold[event["product"]] += 1
                cents[event["product"]] += event["cents"]
    if sum(seen) != EVENTS:
        raise SystemExit(f"{EVENTS - sum(seen)} events are lost")
    print(f"Read back: {sum(seen):,} events, each once, in order.\n")
    print("product      orders      turnover")
    for product, orders in sorted(sold.items()):
        print(f"{product:<10}{orders:>9,}{cents[product] / 100:>14,.2f}")


if __name__ == "__main__":
    asyncio.run(main())
