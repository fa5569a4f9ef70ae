"""A node of several shards under random requests and faults: what holds once the faults stop."""

from collections import Counter

import pytest

from headrace.base.connection_numbers import home_of
from headrace.base.prng import Prng
from headrace.ports.network import RequestsArrived
from headrace.shard.bus.exchange import MainExchange, PeerExchange
from headrace.wire.commands import messages, streams, topics
from headrace.wire.errors import RefusedError, RemoteError
from headrace.wire.evictions import EvictedError
from headrace.wire.identifiers import First, FromOffset, Strategy, ToPartition
from headrace.wire.replies import read_answer
from tests.shard.several import HomedClient, Several
from tests.shard.test_node import ME

PARTITIONS = 6
STEPS = 60
FIRST = First()
ACTIONS = (
    *("send",) * 8,
    *("poll",) * 3,
    *("create", "delete", "hold", "release", "fill", "free", "free"),
    *("pass",) * 4,
    *("reopen", "reopen", "crash"),
)


class Asked:
    """What a client has asked for and is not answered yet."""

    def __init__(self, partition: int = -1, payload: bytes = b"") -> None:
        self.partition = partition  # of a send; -1: it is something else
        self.payload = payload


class Run:
    """One node, its clients, and what they were told."""

    def __init__(self, seed: int, *, has_full_lanes: bool) -> None:
        self.prng = Prng(seed)
        self.node = Several(self.prng.between(2, 4))
        self.has_full_lanes = has_full_lanes
        self.made = 0
        self.clients = [self._connect() for _ in range(3)]
        self.asked: dict[int, list[Asked]] = {}  # by connection, in the order of the requests
        self.stored: dict[int, dict[int, bytes]] = {at: {} for at in range(PARTITIONS)}
        self.sent: Counter[bytes] = Counter()
        self.answers = 0
        self.clients[0].ask(streams.CREATE_STREAM, streams.CreateStream("s"))
        self.clients[0].ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PARTITIONS, "t"))
        self.node.settle()

    def _connect(self) -> HomedClient:
        self.made += 1
        return self.node.client(self.prng.below(self.node.count), client=100 + self.made)

    def _draw_client(self) -> HomedClient:
        return self.clients[self.prng.below(len(self.clients))]

    def _draw_lane(self) -> tuple[int, int]:
        sender = self.prng.below(self.node.count)
        target = (sender + self.prng.between(1, self.node.count - 1)) % self.node.count
        return sender, target

    def go(self) -> None:
        """Do all steps, then let the faults end."""
        for _ in range(STEPS):
            getattr(self, ACTIONS[self.prng.below(len(ACTIONS))])()
            self.take_answers()
            check_ends(self.node)
        self.node.held.clear()
        self.node.full.clear()
        for _ in range(11):
            self.node.settle(100)  # Nobody waits longer than 1,000 ticks.
            self.take_answers()
            if not any(self.asked.values()):
                break
        self.node.settle(15)

    def _post(self, client: HomedClient, frame: bytes | bytearray, asked: Asked) -> None:
        self.asked.setdefault(client.connection, []).append(asked)
        # As `client.post`, but what is on its way stays there now and then.
        arrived = RequestsArrived(((client.connection, bytearray(frame)),))
        if self.prng.below(2):
            self.node.step(arrived)
        else:
            self.node.members[home_of(client.connection)].step(arrived)

    def send(self) -> None:
        client, partition = self._draw_client(), self.prng.below(PARTITIONS)
        if self.asked.get(client.connection):
            return  # Clients are in lockstep.
        payload = b"message %d" % len(self.sent)
        self.sent[payload] += 1
        frame = client.send_frame_of("s", "t", [payload], to=ToPartition(partition))
        self._post(client, frame, Asked(partition, payload))

    def poll(self) -> None:
        client = self._draw_client()
        if not self.asked.get(client.connection):
            partition = self.prng.below(PARTITIONS)
            frame = client.make_frame(messages.POLL_MESSAGES, poll_of(partition))
            self._post(client, frame, Asked())

    def create(self) -> None:
        client = self._draw_client()
        if not self.asked.get(client.connection):
            topic = topics.CreateTopic("s", 2, f"topic{self.prng.below(3)}")
            self._post(client, client.make_frame(topics.CREATE_TOPIC, topic), Asked())

    def delete(self) -> None:
        client = self._draw_client()
        if not self.asked.get(client.connection):
            topic = topics.DeleteTopic("s", f"topic{self.prng.below(3)}")
            self._post(client, client.make_frame(topics.DELETE_TOPIC, topic), Asked())

    def hold(self) -> None:
        self.node.held.add(self._draw_lane())

    def release(self) -> None:
        self.node.held.clear()
        self.node.rest()

    def fill(self) -> None:
        if self.has_full_lanes:
            self.node.full.add(self._draw_lane())

    def free(self) -> None:
        self.node.full.clear()

    def let_pass(self) -> None:
        is_long = self.prng.below(10) == 0  # so long that images are too old
        self.node.settle(120 if is_long else self.prng.between(1, 30))

    def reopen(self) -> None:
        at = self.prng.below(len(self.clients))
        self.node.close(self.clients[at].connection)
        self.node.settle(self.prng.below(3))
        self.node.held.clear()
        self.node.full.clear()
        self.asked.pop(self.clients[at].connection, None)
        self.node.settle(15)
        self.clients[at] = self._connect()

    def crash(self) -> None:
        self.node.held.clear()
        self.node.full.clear()
        self.node.crash(is_power_cut=bool(self.prng.below(2)))
        self.asked.clear()
        self.clients = [self._connect() for _ in self.clients]

    def take_answers(self) -> None:
        """Take what has come: each answers the oldest request of its connection."""
        for client in self.clients:
            while client.has_answer():
                self.answers += 1
                asked = self.asked[client.connection].pop(0)
                try:
                    body = read_answer(client.take())
                except (RefusedError, RemoteError, EvictedError):
                    continue
                if asked.partition >= 0:
                    (told,) = messages.SEND_MESSAGES.decode_reply(body)
                    at = self.stored[asked.partition]
                    assert told.base_offset not in at, "an offset is given once"
                    at[told.base_offset] = asked.payload

    def check(self) -> None:
        """Assert what must hold at rest, without faults."""
        node = self.node
        left = {number: len(each) for number, each in self.asked.items() if each}
        gone = {number for each in node.members for number, _ in each.closed}
        assert left.keys() <= gone, "every request is answered"
        check_ends(node)
        machine = node.main.shard.metadata.machine
        for shard in range(1, node.count):
            image = node.image(shard)
            assert image.machine.state_hash() == machine.state_hash()
            assert image.commit == node.main.shard.metadata.commit
        for member in node.members:
            exchange = member.exchange
            assert exchange.guests.numbers() == []
            assert exchange.guests._early == []
            assert exchange.tickets() == []
            assert exchange.forwards._held == []
            assert member.shard.is_idle
            if isinstance(exchange, PeerExchange):
                assert exchange._doubts.tickets() == []
            if not self.has_full_lanes:
                assert list(exchange.drops.counts()) == []
        self._read_back()

    def _read_back(self) -> None:
        client = self.node.client(self.prng.below(self.node.count))
        for partition, stored in self.stored.items():
            for offset, payload in stored.items():
                asked = poll_of(partition, FromOffset(offset), count=1)
                polled = client.ask(messages.POLL_MESSAGES, asked)
                assert polled.messages_count == 1
                assert payload in bytes(polled.batches), "it is polled back at its offset"


setattr(Run, "pass", Run.let_pass)


def poll_of(partition: int, strategy: Strategy = FIRST, count: int = 1000) -> messages.PollMessages:
    return messages.PollMessages(
        consumer=ME,
        stream="s",
        topic="t",
        partition_id=partition,
        strategy=strategy,
        count=count,
        auto_commit=False,
    )


def check_ends(node: Several) -> None:
    """Assert what holds between the two ends of the bus, whatever is on its way."""
    main = node.main.exchange
    assert isinstance(main, MainExchange)
    commit = node.main.shard.metadata.commit
    for shard in range(1, node.count):
        peer, image = node.members[shard].exchange, node.image(shard)
        assert isinstance(peer, PeerExchange)
        orders, taken = main._homes.orders[shard], peer.sessions.orders.taken
        assert orders.taken <= taken <= orders.last, "what is known, taken and sent"
        departures, taken = peer.sessions.departures, main._homes.departures[shard].taken
        assert departures.taken <= taken <= departures.last, "what is known, taken and sent"
        assert image.commit <= commit, "an image is never ahead"
        assert main.feed.peers[shard].op <= image.last_op, "a shard has what it said"
        machine = node.main.shard.metadata.machine
        if image.last_op == machine.op:
            assert image.machine.state_hash() == machine.state_hash(), "equal ops, equal state"


@pytest.mark.parametrize("has_full_lanes", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_node_comes_to_rest_with_all_that_it_has_told(seed: int, has_full_lanes: bool) -> None:
    run = Run(seed, has_full_lanes=has_full_lanes)
    run.go()
    run.check()
    assert run.answers > 10, "something was asked"
