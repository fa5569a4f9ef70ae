"""A disk that is really full (DK4, O2.3): ext4 of 64 MiB on a loop device. About 15 s."""

import asyncio
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
