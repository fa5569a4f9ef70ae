"""Load on a node that will not live long: producers, a consumer, and what they know afterwards."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.base.endpoints import Endpoint
from headrace.partitions.dedup import ANSWERS_MAX
from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.topics import CREATE_TOPIC, CreateTopic
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.identifiers import Next
from headrace.wire.options import make_options
from tests.crash.checker import OffsetChecker, PartitionChecker, Violation
from tests.crash.client import TRANSIENT, Client, Producer
from tests.crash.payloads import read_batches

STREAM = "crash"
CLASSES = ("persisted", "replicated")
_PAUSE_SECONDS = 0.005

Place = tuple[str, str, int]


def make_topics(client: Client, partitions: int = 1) -> list[Place]:
    """Make one topic of each class of durability; give all their partitions."""
    client.ask(CREATE_STREAM, CreateStream(STREAM))
    for name in CLASSES:
        options = make_options({"durability": name, "consumer_offset_durability": name})
        client.ask(CREATE_TOPIC, CreateTopic(STREAM, partitions, name, options))
    return [(STREAM, name, number) for name in CLASSES for number in range(partitions)]


class StoringConsumer(Client):
    """Reads on from what it has stored, and stores what it has read."""

    def __init__(self, client: int, place: Place) -> None:
        super().__init__(client)
        self.place = place
        self.checker = OffsetChecker()
        self.violations: list[Violation] = []

    def step(self) -> None:
        """Poll once and store the last offset; wait a little where there is nothing."""
        try:
            stored = self.checker.confirmed if not self.checker.asked else None
            polled = self.poll(self.place, Next(), count=100)
            if not polled.messages_count:
                time.sleep(_PAUSE_SECONDS)
                return
            seen = read_batches(polled.batches)
            if stored is not None and seen[0].offset <= stored:
                text = f"next after {stored} gave {seen[0].offset}"
                self.violations.append(Violation("H10", text))
            self.checker.ask(seen[-1].offset)
            self.store_offset(self.place, seen[-1].offset)
            self.checker.confirm()
        except RefusedError as refusal:
            if refusal.code not in TRANSIENT:
                raise
            time.sleep(_PAUSE_SECONDS)


@dataclass
class Tally:
    """What a campaign has done."""

    kills: int = 0
    starts_killed: int = 0
    confirmed: int = 0
    unanswered: int = 0
    resent: int = 0
    messages_read: int = 0
    stored: int = 0

    def add(self, other: "Tally") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Crowd:
    """The clients of one run and the checkers of what they see."""

    def __init__(self, places: list[Place], rng: random.Random, producers: int = 2) -> None:
        self._rng = rng
        self.tally = Tally()
        self.places = places
        self.producers = [
            Producer(
                1000 + 100 * number + each,
                place,
                messages=rng.choice([1, 8, 20]),
                payload_bytes=rng.choice([200, 2000, 8000]),
                window=rng.choice([1, 4, 16]),
            )
            for number, place in enumerate(places)
            for each in range(producers)
        ]
        self.consumers = [StoringConsumer(5000 + at, place) for at, place in enumerate(places)]
        self.checkers = {place: PartitionChecker() for place in places}
        self.reader = Client(9000)
        self.is_ending = False  # whether the node may say that its disk is gone

    def run(self, address: Endpoint, interrupt: Callable[[], None]) -> None:
        """Load a node until what `interrupt` does ends all connections."""
        threads = [
            threading.Thread(target=self._drive, args=(client, step), daemon=True)
            for client, step in [
                *[(each, each.fill) for each in self.producers],
                *[(each, each.step) for each in self.consumers],
            ]
        ]
        for producer in self.producers:
            self.tally.resent += len(producer.unanswered)
            producer.resume(address)
        for consumer in self.consumers:
            consumer.connect(address)
        self._failures: list[Exception] = []
        self.is_ending = False
        for thread in threads:
            thread.start()
        try:
            interrupt()
        finally:
            for thread in threads:
                thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "a client waits for ever"
        if self._failures:
            raise self._failures[0]

    def _drive(self, client: Client, step: Callable[[], None]) -> None:
        try:
            while True:
                step()
        except OSError:
            client.close()  # The node is gone: what was not answered stays unknown.
        except RefusedError as refusal:
            if not self.is_ending or refusal.code != Code.CANNOT_READ_MESSAGE:
                self._failures.append(refusal)
            client.close()
        except (AssertionError, DecodeError, RemoteError) as error:
            self._failures.append(error)

    def settle(self, address: Endpoint) -> None:
        """Have everything answered, and what was applied last confirmed again (O4).

        Offsets tell what was applied last: refused sends went out again behind later ones.
        """
        for producer in self.producers:
            self.tally.resent += len(producer.unanswered)
            producer.resume(address)
            producer.finish()
            # What was answered on a connection is spent there: only another one can ask again.
            producer.close()
            producer.connect(address)
            is_lost = self.checkers[producer.place].is_lost
            confirmed = [
                send
                for send in producer.history
                if send.outcome == "ok" and not is_lost(send.base_offset)
            ]
            confirmed.sort(key=lambda send: send.base_offset)
            for send in confirmed[-ANSWERS_MAX:]:
                again = producer.confirm_again(send)
                assert again == send.base_offset, f"{send}: confirmed again at {again}"
            producer.close()

    def verify(self, address: Endpoint) -> None:
        """Read everything and judge it."""
        self.reader.connect(address)
        violations = [each for consumer in self.consumers for each in consumer.violations]
        for place in self.places:
            sends = [
                send for each in self.producers if each.place == place for send in each.history
            ]
            seen = self.reader.read_all(place)
            self.tally.messages_read += len(seen)
            violations += self.checkers[place].check(sends, seen)
            end = seen[-1].offset + 1 if seen else 0
            for consumer in self.consumers:
                if consumer.place == place:
                    violations += consumer.checker.check(self.reader.stored_offset(place), end)
        self.reader.close()
        assert not violations, "\n".join(str(each) for each in violations[:20])

    def count(self) -> None:
        """Add up what the clients know at the end."""
        sends = [send for each in self.producers for send in each.history]
        self.tally.confirmed = sum(len(send.keys) for send in sends if send.outcome == "ok")
        self.tally.unanswered = sum(len(send.keys) for send in sends if send.outcome == "info")
        self.tally.stored = sum(len(each.checker.known) for each in self.consumers)
