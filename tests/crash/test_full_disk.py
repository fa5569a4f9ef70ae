"""A disk that is really full (DK4, O2.3, O2.10): ext4 of 64 MiB on a loop device. About 25 s."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_iggy import Partitioning
from apache_iggy import SendMessage as Message

from headrace.wire.errors import Code
from tests.crash.client import Client, Producer
from tests.crash.full import FullDisk, full_disk
from tests.interop.answers import refused
from tests.interop.conftest import connect_to

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("loop_mounts")]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[FullDisk]:
    """A node whose disk is full, and whose journal is full of what no segment has space for."""
    with full_disk(tmp_path) as made:
        yield made


def test_the_released_sdk_is_told_that_there_is_no_space(full: FullDisk) -> None:
    """It repeats what is refused with 57 or 58, for 35 s; 4010 it reports."""

    async def send() -> None:
        client = await connect_to(full.node)
        with refused(Code.CANNOT_APPEND_MESSAGE):
            await client.send_messages(
                full.place[0], full.place[1], Partitioning.partition_id(0), [Message(b"x" * 2000)]
            )

    asyncio.run(asyncio.wait_for(send(), 30))


def test_writes_are_refused_and_reads_go_on(full: FullDisk) -> None:
    producer = Producer(77, full.place, messages=1, payload_bytes=2000)
    producer.connect(full.node.tcp)
    try:
        for _ in range(5):
            assert producer.try_send() == Code.CANNOT_APPEND_MESSAGE
            producer.forget_refused()
            time.sleep(0.3)  # It is tried again each second, and refused meanwhile too.
        assert full.admin.read_all(full.place)
    finally:
        producer.close()
    newcomer = Client(78)
    newcomer.connect(full.node.tcp)
    newcomer.close()


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "purge", "{topic}", "--yes"),
        ("segment", "delete", "{topic}", "0", "2", "--yes"),
        ("topic", "update", "{topic}", "--expiry", "1 s"),
        ("topic", "delete", "{topic}", "--yes"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_an_operator_makes_room_and_sends_go_on(full: FullDisk, command: tuple[str, ...]) -> None:
    """O2.10: from the terminal, which logs in for it, with a journal that takes no send."""
    oldest = full.segment_files()[0]
    producer = Producer(77, other(full), messages=1, payload_bytes=2000)
    producer.connect(full.node.tcp)
    try:
        assert producer.try_send() == Code.CANNOT_APPEND_MESSAGE
        producer.forget_refused()
        said = subprocess.run(
            [
                *(sys.executable, "-m", "headrace"),
                *(word.format(topic=full.topic) for word in command),
                *("--address", str(full.node.tcp)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        assert producer.send().outcome == "ok"  # It repeats 4010 for 15 s.
        assert not oldest.exists()
        full.node.kill()
        full.node.restart()
        producer.resume(full.node.tcp)
        assert producer.send().outcome == "ok"
    finally:
        producer.close()


def other(full: FullDisk) -> tuple[str, str, int]:
    """Give the partition of the other topic."""
    return (full.place[0], "replicated", 0)
