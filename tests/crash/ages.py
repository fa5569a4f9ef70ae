"""One life of a node with a copy of its folder at each of its ends: what back-ups are made of.

```
age 0  clean stop    topics, messages, stored offsets
age 1  kill          more of them; what is newest is in the journal alone
age 2  clean stop    a topic deleted and another made, segments deleted, a checkpoint or more
age 3  kill          a little more, and a change of the metadata that no partition knows of
```
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.base.endpoints import Endpoint
from headrace.wire.commands.streams import CREATE_STREAM, GET_STREAM, CreateStream, GetStream
from headrace.wire.commands.topics import (
    CREATE_TOPIC,
    DELETE_SEGMENTS,
    DELETE_TOPIC,
    GET_TOPIC,
    CreateTopic,
    DeleteSegments,
    DeleteTopic,
    GetTopic,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import FromOffset
from headrace.wire.options import make_options
from tests.crash.client import Client, Producer
from tests.crash.load import STREAM, Place, make_topics
from tests.crash.payloads import Seen, read_batches
from tests.crash.process import CrashNode

_EARLY, _LATE = "early", "late"
_TOPICS = ("persisted", "replicated", _EARLY, _LATE)
_LAST_STREAM = "last"
_IDLE_SECONDS = 0.3  # after which the journal has recorded what is synced (rule 5)


@dataclass(frozen=True)
class Held:
    """What a node holds, as a client sees it; a partition that gives an error is not whole."""

    topics: tuple[str, ...]
    has_last_stream: bool
    messages: dict[Place, list[Seen]]
    stored: dict[Place, int | None]
    broken: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Age:
    """A folder as it was left once, and what it held."""

    data: Path
    held: Held


def make_ages(folder: Path) -> list[Age]:
    """Live that life; give the copies, oldest first."""
    life = _Life(folder)
    try:
        return [life.age_0(), life.age_1(), life.age_2(), life.age_3()]
    finally:
        life.close()


class _Life:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._node = CrashNode(folder)
        self._admin = Client(1)
        self._producers: dict[str, Producer] = {}
        self._ages: list[Age] = []

    def close(self) -> None:
        if self._node.is_started:
            self._node.kill()
        for client in (self._admin, *self._producers.values()):
            client.close()

    def age_0(self) -> Age:
        self._start()
        make_topics(self._admin)
        self._create(_EARLY)
        for name in ("persisted", "replicated", _EARLY):
            self._produce(name)
        self._send(15, "persisted", "replicated", _EARLY)
        self._store(50)
        return self._end(is_clean=True)

    def age_1(self) -> Age:
        self._start()
        self._send(10, "persisted", "replicated", _EARLY)
        self._store(150)
        return self._end(is_clean=False)

    def age_2(self) -> Age:
        self._start()
        self._admin.ask(DELETE_TOPIC, DeleteTopic(STREAM, _EARLY))
        self._producers.pop(_EARLY).close()
        self._create(_LATE)
        self._produce(_LATE)
        self._store(400)
        self._admin.ask(DELETE_SEGMENTS, DeleteSegments(STREAM, "persisted", 0, 1))
        self._send(12, "persisted", "replicated", _LATE)
        return self._end(is_clean=True)

    def age_3(self) -> Age:
        self._start()
        self._send(3, "persisted", "replicated", _LATE)
        self._admin.ask(CREATE_STREAM, CreateStream(_LAST_STREAM))
        return self._end(is_clean=False)

    def _start(self) -> None:
        self._node.restart()
        self._admin.connect(self._node.tcp)
        for producer in self._producers.values():
            producer.resume(self._node.tcp)

    def _create(self, name: str) -> None:
        options = make_options({"durability": "persisted"})
        self._admin.ask(CREATE_TOPIC, CreateTopic(STREAM, 1, name, options))

    def _produce(self, name: str) -> None:
        number = 10 + len(self._ages) * 10 + len(self._producers)
        producer = Producer(number, (STREAM, name, 0), messages=20, payload_bytes=4_000)
        producer.connect(self._node.tcp)
        self._producers[name] = producer

    def _send(self, count: int, *names: str) -> None:
        for _ in range(count):
            for name in names:
                assert self._producers[name].send().outcome == "ok"

    def _store(self, offset: int) -> None:
        for name in ("persisted", "replicated"):
            self._admin.store_offset((STREAM, name, 0), offset)

    def _end(self, *, is_clean: bool) -> Age:
        held = read_held(self._node.tcp)
        assert not held.broken
        if is_clean:
            self._node.stop()
        else:
            time.sleep(_IDLE_SECONDS)
            self._node.kill()
        copy = self._folder / f"age {len(self._ages)}"
        shutil.copytree(self._node.data, copy)
        self._ages.append(Age(copy, held))
        return self._ages[-1]


def read_held(address: Endpoint) -> Held:
    """Ask a node for all that it holds."""
    client = Client(50)
    client.connect(address)
    try:
        topics = tuple(
            name for name in _TOPICS if client.ask(GET_TOPIC, GetTopic(STREAM, name)) is not None
        )
        places = [(STREAM, name, 0) for name in topics]
        read = {place: _read(client, place) for place in places}
        return Held(
            topics=topics,
            has_last_stream=client.ask(GET_STREAM, GetStream(_LAST_STREAM)) is not None,
            messages={place: seen for place, (seen, _) in read.items()},
            stored={place: client.stored_offset(place) for place in places},
            broken=tuple(place for place, (_, is_whole) in read.items() if not is_whole),
        )
    finally:
        client.close()


def _read(client: Client, place: Place) -> tuple[list[Seen], bool]:
    """Read a partition up to its end or to the first error; say which it was."""
    seen: list[Seen] = []
    try:
        while True:
            offset = seen[-1].offset + 1 if seen else 0
            polled = client.poll(place, FromOffset(offset), count=100)
            if not polled.messages_count:
                return seen, True
            seen += read_batches(polled.batches)
    except RefusedError as refusal:
        if refusal.code != Code.CANNOT_READ_MESSAGE:
            raise
        return seen, False
