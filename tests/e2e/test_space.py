"""A real node gives the space of dropped segments back while nobody asks it for anything."""

import os
import time
from pathlib import Path

import pytest

import headrace
from tests.node import Node, running_node

pytestmark = pytest.mark.slow

MIB = 1 << 20
SECONDS_MAX = 5.0
EXPIRY_SECONDS = 2.0  # until messages are old enough, and retention has looked at them


def segment_files(node: Node) -> list[Path]:
    """Give the segments; unlike a glob, a walk does not mind a folder that goes meanwhile."""
    walked = os.walk(node.data / "partitions")
    return [Path(folder, name) for folder, _, names in walked for name in names if ".log" in name]


def wait_for_files(node: Node, count: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := len(segment_files(node))) != count:
        assert time.monotonic() < deadline, f"{found} files, {count} wanted; {node.output()}"
        time.sleep(0.05)


def test_an_idle_node_gives_space_back_within_five_seconds() -> None:
    """Starts one node and waits at most 37 s for it."""
    environment = {"HEADRACE_RETENTION_INTERVAL": "1 s"}
    with running_node(environment=environment) as node, headrace.connect(str(node.tcp)) as client:
        client.create_stream("s")
        client.create_topic("s/t", partitions=1, options={"segment_size": MIB})
        for _ in range(6):
            client.send("s/t", [b"x" * MIB], partition=0)
        wait_for_files(node, 6)
        client.delete_segments("s/t", 0, 4)
        wait_for_files(node, 2)
        client.purge_topic("s/t")
        wait_for_files(node, 0)
        client.send("s/t", [b"x"], partition=0)
        wait_for_files(node, 1)
        client.delete_topic("s/t")
        wait_for_files(node, 0)
        client.create_topic("s/u", options={"segment_size": MIB})
        for _ in range(3):
            client.send("s/u", [b"x" * MIB], partition=0)
        wait_for_files(node, 3)
        client.update_topic("s/u", options={"message_expiry": "1 s"})
        time.sleep(EXPIRY_SECONDS)
        wait_for_files(node, 0)
