"""A node on a disk that is full, with a journal that is full too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.crash.client import Client, Producer
from tests.crash.load import make_topics
from tests.crash.payloads import PAYLOAD_BYTES_MIN
from tests.crash.power import PowerDisk, power_disk
from tests.crash.process import CrashNode
from tests.watched_nodes import hand_in

_DISK_BYTES = 64 << 20
_BATCHES = 200
_FILES_MIN = 3


@dataclass
class FullDisk:
    """The node, its disk, an administrator who is logged in, and where the messages are."""

    disk: PowerDisk
    node: CrashNode
    admin: Client
    place: tuple[str, str, int]

    @property
    def topic(self) -> str:
        return "/".join(self.place[:2])

    def segment_files(self) -> list[Path]:
        return sorted((self.node.data / "partitions").rglob("*.log"))


@contextmanager
def full_disk(folder: Path) -> Iterator[FullDisk]:
    """Give such a node; its topic has several segments."""
    with power_disk(_DISK_BYTES) as disk:
        environment = {"HEADRACE_RETENTION_INTERVAL": "1 s"}
        node = CrashNode(folder, data=disk.mount_point / "data", environment=environment)
        node.start()
        admin = Client(1)
        producers: list[Producer] = []
        try:
            admin.connect(node.tcp)
            place = make_topics(admin)[0]
            for at, size in enumerate((20_000, PAYLOAD_BYTES_MIN)):
                producer = Producer(10 + at, place, messages=1, payload_bytes=size)
                producers.append(producer)
                producer.connect(node.tcp)
                for _ in range(_BATCHES):
                    assert producer.send().outcome == "ok"
            fill(disk.mount_point / "filler", disk.free_bytes())
            for producer in producers:
                while producer.try_send() is None:
                    pass
            made = FullDisk(disk, node, admin, place)
            assert len(made.segment_files()) >= _FILES_MIN
            yield made
        finally:
            for client in (*producers, admin):
                client.close()
            if node.is_started:
                node.kill()
            hand_in(node.output(), disk.mount_point)


def fill(path: Path, count: int) -> None:
    """Take so many bytes, or all there are; a power cut does not give them back."""
    with path.open("wb", buffering=0) as file:
        with suppress(OSError):
            for _ in range(count // 4096 + 1000):
                file.write(bytes(4096))
        os.fsync(file.fileno())
