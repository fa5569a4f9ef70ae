"""Two topics on a node whose calls can be made to fail, and a producer for each."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.topics import CREATE_TOPIC, CreateTopic
from headrace.wire.options import make_options
from tests.crash.checker import PartitionChecker
from tests.crash.client import Client, Producer
from tests.crash.faults import Faults
from tests.crash.process import CrashNode
from tests.crash.steps import faulty_node

STREAM = "s"
# Where the folders of the two topics lie below the data folder: stream 0, topics 0 and 1.
SEGMENTS_OF_A = "/partitions/0/0/"
SEGMENTS_OF_B = "/partitions/0/1/"


@dataclass
class Stage:
    """A started node with its clients."""

    node: CrashNode
    faults: Faults
    a: Producer
    b: Producer
    reader: Client

    def send(self, producer: Producer, count: int) -> None:
        """Send so many batches, one after another; all must be confirmed."""
        for _ in range(count):
            send = producer.send()
            assert send.outcome == "ok", send.refusals

    def reconnect(self) -> None:
        """Come back after a restart; what was not answered is sent again."""
        for producer in (self.a, self.b):
            producer.resume(self.node.tcp)
        self.reader.connect(self.node.tcp)

    def verify(self) -> None:
        """Read both topics and judge them."""
        for producer in (self.a, self.b):
            seen = self.reader.read_all(producer.place)
            violations = PartitionChecker().check(producer.history, seen)
            assert not violations, violations[:10]

    def verify_after_two_starts(self) -> None:
        """Start the node twice, and judge it each time (rule 19)."""
        self.faults.clear()
        for _ in range(2):
            if self.node.is_started:
                self.node.kill()
            self.node.restart()
            self.reader.connect(self.node.tcp)
            self.verify()
        self.reconnect()
        for producer in (self.a, self.b):
            producer.finish()
            self.send(producer, 1)
        self.verify()


@contextmanager
def staged(library: Path, payload_bytes: int = 20_000) -> Iterator[Stage]:
    """Give a node with two topics."""
    with faulty_node(library) as (node, faults):
        node.start()
        reader = Client(1)
        reader.connect(node.tcp)
        reader.ask(CREATE_STREAM, CreateStream(STREAM))
        producers: list[Producer] = []
        for number, name in enumerate("ab"):
            options = make_options({"durability": "persisted"})
            reader.ask(CREATE_TOPIC, CreateTopic(STREAM, 1, name, options))
            place = (STREAM, name, 0)
            producer = Producer(10 + number, place, messages=10, payload_bytes=payload_bytes)
            producer.connect(node.tcp)
            producers.append(producer)
        stage = Stage(node, faults, a=producers[0], b=producers[1], reader=reader)
        try:
            yield stage
        finally:
            for client in (*producers, reader):
                client.close()
