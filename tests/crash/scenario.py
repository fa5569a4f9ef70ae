"""The scripted life of a node that lane X ends at every step, and what must be left of it (PR4).

```
format > create > sends that roll segments and take checkpoints > offset > delete segments
       > purge > sends > delete topic > clean stop > start > sends
```

Each order is acknowledged before the next is given. After a kill the node must hold what all
acknowledged orders made, and of the one that was not answered all or nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.base.endpoints import Endpoint
from headrace.wire.commands.streams import CREATE_STREAM, GET_STREAM, CreateStream, GetStream
from headrace.wire.commands.topics import (
    CREATE_TOPIC,
    DELETE_SEGMENTS,
    DELETE_TOPIC,
    GET_TOPIC,
    PURGE_TOPIC,
    CreateTopic,
    DeleteSegments,
    DeleteTopic,
    GetTopic,
    PurgeTopic,
)
from headrace.wire.options import make_options
from tests.crash.client import Client, Producer
from tests.crash.payloads import Key
from tests.crash.process import CrashNode

STREAM = "s"
_BATCH_MESSAGES = 10
_PAYLOAD_BYTES = 30_000
_SEGMENT_BATCHES = 4  # 300 KB each, in segments of 1 MiB


@dataclass(frozen=True)
class Topic:
    """What one topic holds: the offset of its oldest message, and the keys from there on."""

    first: int = 0
    keys: tuple[Key, ...] = ()
    stored: int | None = None


@dataclass(frozen=True)
class State:
    """What the node holds, as a client sees it."""

    has_stream: bool = False
    topics: tuple[tuple[str, Topic], ...] = ()

    def topic(self, name: str) -> Topic:
        return dict(self.topics)[name]

    def with_topic(self, name: str, topic: Topic | None) -> "State":
        topics = dict(self.topics)
        topics.pop(name, None)
        if topic is not None:
            topics[name] = topic
        return replace(self, topics=tuple(sorted(topics.items())))


@dataclass
class Order:
    """One thing that is asked of the node, and what it makes of its state."""

    name: str
    give: Callable[[], None]
    expected: Callable[[State], State]


@dataclass
class Scenario:
    """One run: gives its orders until one is not answered."""

    node: CrashNode
    state: State = field(default_factory=State)
    possible: State | None = None  # what it may be instead, if the last order was not answered
    _admin: Client = field(default_factory=lambda: Client(1))
    _producers: dict[str, Producer] = field(default_factory=dict)

    def run(self) -> bool:
        """Live the whole life; return whether it came to its end."""
        try:
            self._live()
        except (OSError, EndedError):
            return False
        finally:
            self._admin.close()
            for producer in self._producers.values():
                producer.close()
        return True

    def _live(self) -> None:
        self._start()
        for order in self._first_part():
            self._give(order)
        self._stop()
        self._start()
        for order in self._second_part():
            self._give(order)
        self._stop()

    def _start(self) -> None:
        if not self.node.start_or_end():
            raise EndedError
        self._admin.connect(self.node.tcp)
        for producer in self._producers.values():
            producer.resume(self.node.tcp)

    def _stop(self) -> None:
        if self.node.stop_or_end() != 0:
            raise EndedError

    def _give(self, order: Order) -> None:
        self.possible = order.expected(self.state)
        order.give()
        self.state, self.possible = self.possible, None

    def _first_part(self) -> list[Order]:
        ask = self._admin.ask
        return [
            Order(
                "create stream",
                lambda: ask(CREATE_STREAM, CreateStream(STREAM)),
                lambda state: replace(state, has_stream=True),
            ),
            self._create("kept"),
            self._create("purged"),
            *[self._send("kept") for _ in range(6)],
            *[self._send("purged") for _ in range(3)],
            self._store("kept", 25),
            *[self._send("kept") for _ in range(3)],
            Order(
                "delete segments",
                lambda: ask(DELETE_SEGMENTS, DeleteSegments(STREAM, "kept", 0, 1)),
                lambda state: state,  # The consumer has read less than the first segment.
            ),
            self._store("kept", 60),
            Order(
                "delete segments",
                lambda: ask(DELETE_SEGMENTS, DeleteSegments(STREAM, "kept", 0, 1)),
                partial(_trimmed, name="kept", count=_SEGMENT_BATCHES * _BATCH_MESSAGES),
            ),
            Order(
                "purge",
                lambda: ask(PURGE_TOPIC, PurgeTopic(STREAM, "purged")),
                lambda state: state.with_topic("purged", Topic()),
            ),
            *[self._send("purged") for _ in range(2)],
        ]

    def _second_part(self) -> list[Order]:
        return [
            self._send("kept"),
            Order(
                "delete topic",
                lambda: self._admin.ask(DELETE_TOPIC, DeleteTopic(STREAM, "purged")),
                lambda state: state.with_topic("purged", None),
            ),
            *[self._send("kept") for _ in range(4)],
        ]

    def _create(self, name: str) -> Order:
        options = make_options({"durability": "persisted"})
        self._producers[name] = producer = Producer(
            100 + len(self._producers),
            (STREAM, name, 0),
            messages=_BATCH_MESSAGES,
            payload_bytes=_PAYLOAD_BYTES,
            window=1,
        )

        def give() -> None:
            self._admin.ask(CREATE_TOPIC, CreateTopic(STREAM, 1, name, options))
            producer.connect(self.node.tcp)

        return Order(f"create {name}", give, lambda state: state.with_topic(name, Topic()))

    def _send(self, name: str) -> Order:
        producer = self._producers[name]

        def expected(state: State) -> State:
            topic = state.topic(name)
            number = producer.number + 1
            keys = tuple(
                Key(producer.client, number, index, _PAYLOAD_BYTES + index)
                for index in range(_BATCH_MESSAGES)
            )
            return state.with_topic(name, replace(topic, keys=topic.keys + keys))

        def give() -> None:
            end = self.state.topic(name).first + len(self.state.topic(name).keys)
            assert producer.send().base_offset == end

        return Order(f"send {name}", give, expected)

    def _store(self, name: str, offset: int) -> Order:
        return Order(
            f"store {name}",
            lambda: self._admin.store_offset((STREAM, name, 0), offset),
            lambda state: state.with_topic(name, replace(state.topic(name), stored=offset)),
        )


class EndedError(Exception):
    """The node has ended before it was asked to."""


def _trimmed(state: State, *, name: str, count: int) -> State:
    topic = state.topic(name)
    kept = replace(topic, first=topic.first + count, keys=topic.keys[count:])
    return state.with_topic(name, kept)


def read_state(address: Endpoint) -> State:
    """Ask a node for all that it holds."""
    client = Client(7)
    client.connect(address)
    try:
        found = client.ask(GET_STREAM, GetStream(STREAM))
        state = State(has_stream=found is not None)
        for name in ("kept", "purged"):
            if found is None or client.ask(GET_TOPIC, GetTopic(STREAM, name)) is None:
                continue
            place = (STREAM, name, 0)
            seen = client.read_all(place)
            first = seen[0].offset if seen else 0
            offsets = [message.offset for message in seen]
            assert offsets == list(range(first, first + len(seen))), f"{name} has {offsets}"
            keys = tuple(message.key for message in seen)
            assert None not in keys, f"{name} holds bytes that nobody sent"
            topic = Topic(first, keys, client.stored_offset(place))  # type: ignore[arg-type]
            state = state.with_topic(name, topic)
        return state
    finally:
        client.close()


def check_goes_on(address: Endpoint, state: State) -> None:
    """Send one more batch where there is a topic, and see that it gets the next offset."""
    if not any(name == "kept" for name, _ in state.topics):
        return
    topic = state.topic("kept")
    producer = Producer(800, (STREAM, "kept", 0), messages=1, payload_bytes=100)
    producer.connect(address)
    send = producer.send()
    producer.close()
    if topic.keys or topic.first:
        assert send.base_offset == topic.first + len(topic.keys)
