"""Nodes of several shards under measurement: where connections live, and laps that rely on it.

Shard 0 deals connections to the shards in turn, so the order of their opening decides where they
live. What the node tells of itself says where the last one is, and so where the next will be; it is
asked again when the connections of a lap are there.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.frames import REPLICATED, Account, Connection
from bench.load import Generator, Lap
from bench.rig import CpuWatch
from bench.rows import median
from bench.server import Server, make_command
from headrace.base.ids import GroupId, Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.base.placement import owner_of
from headrace.wire.commands.counters import GET_COUNTERS
from headrace.wire.commands.shards import GET_SHARDS

PARTITIONS = 32  # of a topic: enough that each shard owns as many as a case needs
COUNTER_FORWARDED = "requests.forwarded"
WAIT_SECONDS_MAX = 10.0
STRAYS_MAX = 2  # requests of a lap that cross though none should: the bench asks for counters


class HomeError(Exception):
    """Connections do not live where a case needs them; the message says where they do."""


class Topic(NamedTuple):
    """A topic, and the partitions of it that each shard owns."""

    name: str
    owned: tuple[tuple[int, ...], ...]

    def partitions(self, count: int) -> list[int]:
        """Return so many; the shards own them in turn, shard 0 the first."""
        shards = len(self.owned)
        return [self.owned[index % shards][index // shards] for index in range(count)]


class Side:
    """A node of so many shards."""

    def __init__(self, shards: int, folder: Path, account: Account, *, is_hasty: bool) -> None:
        """Start it.

        Raises:
            ServerError: It did not start.
        """
        folder.mkdir()
        self.shards = shards
        self.server = Server(make_command(shards, is_hasty=is_hasty), folder, account)
        self._stream: StreamId | None = None

    def create_topic(self, name: str, shards: int) -> Topic:
        """Create a topic; give the partitions that each shard owns, if there are so many."""
        with self.server.connect() as connection:
            if self._stream is None:
                self._stream = StreamId(connection.create_stream())
            topic = TopicId(connection.create_topic(name, REPLICATED, PARTITIONS))
        spaces = [
            Namespace(self._stream, topic, PartitionId(number)) for number in range(PARTITIONS)
        ]
        owners = [owner_of(GroupId(pack_namespace(each)), shards) for each in spaces]
        owned = [
            tuple(number for number, owner in enumerate(owners) if owner == shard)
            for shard in range(shards)
        ]
        return Topic(name, tuple(owned))

    @contextmanager
    def next_home(self, home: int) -> Iterator[Connection]:
        """Connect until the next connection will live at a shard; give the last one."""
        with ExitStack() as stack:
            before = [0] * self.shards
            for opened in range(1, self.shards + 1):
                beside = stack.enter_context(self.server.connect())
                now = self._settled(beside, opened)
                last = next(shard for shard in range(self.shards) if now[shard] > before[shard])
                if (last + 1) % self.shards == home % self.shards:
                    yield beside
                    return
                before = now
            raise HomeError(f"connections are not dealt in turn: {before}")

    def count_connections(self, connection: Connection) -> list[int]:
        """Return how many connections live at each shard."""
        return [each.connections_count for each in connection.call(GET_SHARDS, None).shards]

    def _settled(self, connection: Connection, expected: int) -> list[int]:
        """Wait until all others are gone; give how many connections live at each shard then."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while sum(counts := self.count_connections(connection)) != expected:
            if time.monotonic() > deadline:
                raise HomeError(f"connections of each shard: {counts}, opened: {expected}")
            time.sleep(0.01)
        return counts

    def count_forwarded(self, connection: Connection) -> int:
        """Return how many requests have crossed since the node started."""
        told = connection.call(GET_COUNTERS, None).counters
        return next((each.value for each in told if each.name == COUNTER_FORWARDED), 0)


class Arm:
    """The laps of one way to ask a node, and what they cost it."""

    def __init__(self, side: Side, generator: Generator, *, pause_seconds: float) -> None:
        self.side = side
        self.laps: list[Lap] = []
        self._generator = generator
        self._pause_seconds = pause_seconds
        self._crossed = 0
        self._cpu = CpuWatch(side.server)

    def run(self, connections: int, lapping: Callable[[], Lap], *, home: int = 0) -> None:
        """Run a lap whose first connection lives at a shard, and the others at all in turn.

        Raises:
            HomeError: They do not.
        """
        side, generator = self.side, self._generator
        with side.next_home(home) as beside:
            wanted = side.count_connections(beside)
            for index in range(connections):
                wanted[(home + index) % side.shards] += 1

            def begin() -> None:
                told = side.count_connections(beside)
                if told != wanted:
                    raise HomeError(f"connections of each shard: {told}, expected: {wanted}")
                self._crossed -= side.count_forwarded(beside)
                self._cpu.begin()

            generator.on_ready = begin
            try:
                self.laps.append(lapping())
            finally:
                generator.on_ready = None
            time.sleep(self._pause_seconds)
            self._cpu.end()
            self._crossed += side.count_forwarded(beside)

    @property
    def requests(self) -> int:
        """How many succeeded."""
        return sum(lap.requests for lap in self.laps)

    @property
    def errors(self) -> int:
        """How many did not."""
        return sum(lap.errors for lap in self.laps)

    @property
    def rate(self) -> float:
        """Requests per second."""
        return median(self.laps, lambda lap: lap.rate)

    @property
    def p50_us(self) -> float:
        """The usual latency."""
        return median(self.laps, lambda lap: lap.p50_us)

    @property
    def cpu_us(self) -> float:
        """Processor time of all processes of the node for one request."""
        return self._cpu.seconds / max(self.requests, 1) * 1e6

    @property
    def cores(self) -> float:
        """How many cores the node and the generator kept busy together."""
        spent = self._cpu.seconds + sum(lap.cpu_seconds for lap in self.laps)
        return spent / sum(lap.seconds for lap in self.laps)

    @property
    def crossed_share(self) -> float:
        """The part of the requests that another shard served than that of their connection."""
        return min(self._crossed / max(self.requests, 1), 1.0)

    def check_crossed(self, *, is_forwarded: bool) -> None:
        """Check that all requests have crossed, or none.

        Raises:
            HomeError: They have not, or some have.
        """
        expected = self.requests if is_forwarded else 0
        if abs(self._crossed - expected) > STRAYS_MAX * len(self.laps):
            raise HomeError(f"{self._crossed} of {self.requests} requests crossed, not {expected}")
