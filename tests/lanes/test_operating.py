"""What the guide says of operating one node: back-up by stopping, restore, moving."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import headrace
from headrace.server.doctor.examine import examine
from headrace.server.doctor.report import Verdict
from tests.node import Node

pytestmark = pytest.mark.slow  # About 5 s of the storage share.

MESSAGES = [f"order {number}" for number in range(500)]


def read_all(node: Node) -> list[str]:
    with (
        headrace.connect(str(node.tcp)) as client,
        client.consumer("shop/orders", wait=0) as consumer,
    ):
        return [message.text for message in consumer]


def test_back_up_restore_and_move() -> None:
    """A copy of a stopped node's folder serves at another place what the original had then."""
    with TemporaryDirectory(prefix="headrace-operating-") as folder:
        first = Node(_made(Path(folder) / "first"))
        first.start()
        with headrace.connect(str(first.tcp)) as client:
            client.create_stream("shop")
            client.create_topic("shop/orders", partitions=1)
            client.send("shop/orders", MESSAGES)
            client.store_offset("shop/orders", 0, 400, consumer="report")
        first.stop()
        report = examine(first.data)
        assert {each.verdict for each in report.files} == {Verdict.FINE}, report
        second = Node(_made(Path(folder) / "elsewhere"))
        shutil.copytree(first.data, second.data)
        first.start()
        with headrace.connect(str(first.tcp)) as client:
            client.send("shop/orders", ["after the back-up"])
        first.kill()
        second.start()
        try:
            assert read_all(second) == MESSAGES
            with headrace.connect(str(second.tcp)) as client:
                stored = client.get_offset("shop/orders", 0, consumer="report")
                assert stored is not None
                assert stored.stored_offset == 400
                assert client.send("shop/orders", ["at its new place"]).offset == len(MESSAGES)
        finally:
            second.kill()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
