"""CK1 on a real node: the clock of its process leaps ten years ahead. Share: about 15 s."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.cli.exits import Exit
from headrace.cli.main import run
from tests.node import Node, running_node

pytestmark = pytest.mark.slow

SECOND = 1_000_000
TEN_YEARS = 10 * 365 * 86_400 * SECOND
WAIT_SECONDS_MAX = 60.0

# Loaded by every Python that finds it: the wall clock is ahead by what a file says.
CLOCK = """
import os, pathlib, time
true_time_ns = time.time_ns
ahead = pathlib.Path(os.environ["TEST_CLOCK"])
time.time_ns = lambda: true_time_ns() + 1000 * int(ahead.read_text() or 0)
"""


def wait_until(is_done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not is_done():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def times(client: headrace.Client) -> tuple[int, int]:
    """What the node goes by, and what its clock says."""
    values = {each.name: each.value for each in client.get_counters().counters}
    return values["time.believed"], values["time.clock"]


def look_often(client: headrace.Client) -> None:
    """Let retention look through the topics a few times."""
    begun, _ = times(client)
    wait_until(lambda: times(client)[0] > begun + 4 * SECOND, "time does not pass")


def count(client: headrace.Client) -> int:
    return client.get_topic("shop/orders").topic.messages_count


def connect(node: Node) -> headrace.Client:
    return headrace.connect(str(node.tcp), username="iggy", password="iggy")


def test_a_leap_deletes_nothing_until_it_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLOCK)
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    environment = {
        "PYTHONPATH": str(tmp_path),
        "TEST_CLOCK": str(ahead),
        "HEADRACE_CLOCK_TOLERANCE": "5 min",
        "HEADRACE_RETENTION_INTERVAL": "1 s",
    }
    with running_node(environment=environment) as node:
        with connect(node) as client:
            client.create_stream("shop")
            client.create_topic(
                "shop/orders", options={"message_expiry": "1 h", "segment_size": "1 MiB"}
            )
            for _ in range(6):
                client.send("shop/orders", [b"x" * 4096] * 200)
            assert count(client) == 1200
            ahead.write_text(str(TEN_YEARS))
            wait_until(lambda: "run: headrace node accept-time" in node.output(), "no line")
            look_often(client)
            assert count(client) == 1200
        for _ in range(2):
            node.kill()
            node.start()
            with connect(node) as client:
                look_often(client)
                believed, clock = times(client)
                assert clock - believed > TEN_YEARS - 60 * SECOND
                assert count(client) == 1200
        assert node.output().count("run: headrace node accept-time") == 3
        flags = ["--address", str(node.tcp), "--username", "iggy", "--password", "iggy"]
        assert run(["node", "accept-time", *flags]) == Exit.USAGE  # nobody is there to be asked
        with connect(node) as client:
            assert count(client) == 1200
            assert run(["node", "accept-time", "--yes", *flags]) == Exit.OK
            wait_until(lambda: count(client) < 1200, "nothing expires")
            believed, clock = times(client)
            assert believed == clock
            wait_until(lambda: "goes by its clock again" in node.output(), "no second line")
