"""A node of several shards is one node to its clients: whatever shard they live on."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.ids import GroupId, Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.base.placement import owner_of
from headrace.metadata.machine import MetadataMachine
from headrace.ports.bus import BusFrames, DropReason, MemberLost, SendToMember
from headrace.shard.bus.exchange import MainExchange, PeerExchange
from headrace.shard.bus.feed import FedMachine, Feed
from headrace.shard.bus.numbered import Incoming
from headrace.shard.consensus.clock import Clock
from headrace.shard.drops import Variant
from headrace.shard.turn import Turn
from headrace.wire.batches import decode_batch_header
from headrace.wire.bus.feed import FEED_OP
from headrace.wire.commands import messages, streams, system, topics, users
from headrace.wire.commands.counters import GET_COUNTERS, GetCounters
from headrace.wire.commands.session import LOGOUT
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.identifiers import First, ToPartition
from headrace.wire.numbers import FrameKind, Operation, UserStatus
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import read_answer
from tests.shard.several import HomedClient, Several
from tests.shard.test_node import ME
from tests.wire.bus_frames import bus_frame

PARTITIONS = 16
NEW_USER = users.CreateUser(username="guest", password=b"secret", status=UserStatus.ACTIVE)


def with_topic(node: Several, home: int = 0) -> HomedClient:
    client = node.client(home)
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PARTITIONS, "t"))
    node.rest()
    return client


def poll(client: HomedClient, partition: int) -> messages.PolledMessages:
    request = messages.PollMessages(
        consumer=ME,
        stream="s",
        topic="t",
        partition_id=partition,
        strategy=First(),
        count=100,
        auto_commit=False,
    )
    polled = client.ask(messages.POLL_MESSAGES, request)
    assert isinstance(polled, messages.PolledMessages)
    return polled


@pytest.mark.parametrize("home", [0, 1, 2])
def test_a_message_comes_back_whatever_shard_has_its_partition(home: int) -> None:
    node = Several(3)
    client = with_topic(node, home)
    owned = [len(member.shard.partitions.locals) for member in node.members]
    assert sum(owned) == PARTITIONS
    assert all(owned), "every shard has some"
    for partition in range(PARTITIONS):
        sent = client.send("s", "t", [b"to %d" % partition], to=ToPartition(partition))
        assert sent.base_offset == 0
        assert b"to %d" % partition in bytes(poll(client, partition).batches)


def test_a_message_that_crosses_is_stamped_when_it_arrives() -> None:
    """Not at the last tick: messages of one client come in order, whatever shard stamps them."""
    node = Several(2)
    client = with_topic(node, 0)
    to = node.partition_of(1)
    node.wall = arrived = node.members[1].shard.clock.time.now + 1_234
    client.send("s", "t", [b"on its way"], to=ToPartition(to))
    assert decode_batch_header(poll(client, to).batches).base_timestamp == arrived


def test_what_a_shard_does_not_know_is_refused_only_after_shard_0_was_asked() -> None:
    node = Several(3)
    maker = with_topic(node, 0)
    client = node.client(1)
    node.held.add((0, 1))  # Shard 1 hears nothing for a while, and less than a second.
    maker.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "new"))
    client.post(client.send_frame_of("s", "new", [b"early"]))
    assert not client.has_answer()
    node.held.clear()
    node.rest()
    (sent,) = messages.SEND_MESSAGES.decode_reply(read_answer(client.take()))
    assert sent.base_offset == 0
    with pytest.raises(RefusedError) as refused:
        client.send("s", "never", [b"nowhere"])
    assert refused.value.code in (Code.TOPIC_NAME_NOT_FOUND, Code.RESOURCE_NOT_FOUND)


def test_a_request_that_its_owner_does_not_answer_gets_57_at_its_deadline() -> None:
    """O4.3: the home is the one place where requests wait."""
    node = Several(3)
    client = with_topic(node, 1)
    partition = node.partition_of(2, PARTITIONS)
    node.held.add((1, 2))
    client.post(client.send_frame_of("s", "t", [b"late"], to=ToPartition(partition)))
    node.settle(990)
    assert not client.has_answer()
    node.settle(30)
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    assert refused.value.code == Code.TRANSIENT_NOT_COMMITTED
    node.held.clear()
    node.rest()
    assert not client.has_answer(), "a request is answered once"


def test_a_request_that_its_lane_refuses_gets_58_at_once() -> None:
    node = Several(3)
    client = with_topic(node, 1)
    node.full.add((1, 2))
    to = ToPartition(node.partition_of(2, PARTITIONS))
    with pytest.raises(RefusedError) as refused:
        client.send("s", "t", [b"no place"], to=to)
    assert refused.value.code == Code.TRANSIENT_NOT_ACCEPTED
    assert client.send("s", "t", [b"here"], to=ToPartition(node.partition_of(1))).base_offset == 0


def test_a_shard_whose_image_is_not_confirmed_serves_nothing_after_a_second() -> None:
    node = Several(2)
    client = with_topic(node, 1)
    to = ToPartition(node.partition_of(1))
    node.held.add((0, 1))
    node.settle(90)
    assert client.send("s", "t", [b"confirmed a moment ago"], to=to).base_offset == 0
    node.settle(30)
    with pytest.raises(RefusedError) as refused:
        client.send("s", "t", [b"too old"], to=to)
    assert refused.value.code == Code.TRANSIENT_NOT_ACCEPTED
    node.held.clear()
    node.settle()
    assert client.send("s", "t", [b"again"], to=to).base_offset == 1


def test_a_shard_that_hangs_is_not_heard_of_by_shard_0() -> None:
    """PR12: new connections have their home elsewhere then."""
    node = Several(3)
    node.settle(30)
    assert node.main.shard.hears(1)
    node.held.add((1, 0))
    node.settle(130)
    assert not node.main.shard.hears(1)
    assert node.main.shard.hears(2)
    node.held.clear()
    node.settle()
    assert node.main.shard.hears(1)


def test_a_shard_that_missed_ops_gets_them_again() -> None:
    """SH-2, O5.2: its image is the metadata of shard 0, op by op."""
    node = Several(2)
    client = with_topic(node, 0)
    node.full.add((0, 1))
    for number in range(5):
        client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 2, f"missed{number}"))
    image = node.image(1)
    assert image.commit < node.main.shard.metadata.commit
    node.full.clear()
    node.settle()
    assert image.commit == node.main.shard.metadata.commit
    assert image.machine.state_hash() == node.main.shard.metadata.machine.state_hash()


def test_a_login_on_another_shard_takes_the_session() -> None:
    """SH-2: logins are all at shard 0, so it knows who came earlier, wherever."""
    node = Several(3)
    first = node.client(1, client=77)
    second = node.client(2, client=77)
    assert second.ask(system.PING) is None
    with pytest.raises((RefusedError, EvictedError)):
        first.ask(streams.GET_STREAMS)
    assert second.ask(streams.GET_STREAMS) == ()


@pytest.mark.parametrize("home", [1, 2])
def test_who_logs_out_or_goes_is_gone_for_shard_0(home: int) -> None:
    node = Several(3)
    client = node.client(home, client=5)
    assert node.main.shard.metadata.sessions.is_connected(5)
    client.ask(LOGOUT)
    assert not node.main.shard.metadata.sessions.is_connected(5)
    client.login("iggy", b"iggy")
    node.close(client.connection)
    node.settle()
    assert not node.main.shard.metadata.sessions.is_connected(5)
    assert len(node.main.shard.front.connections) == 0


def test_a_deleted_user_is_served_by_no_shard() -> None:
    """SE-4 on every shard."""
    node = Several(3)
    root = with_topic(node, 0)
    root.ask(users.CREATE_USER, NEW_USER)
    guest = HomedClient(node, 2, 9)
    guest.login("guest", b"secret")
    root.ask(users.DELETE_USER, users.DeleteUser("guest"))
    node.settle()
    with pytest.raises((RefusedError, EvictedError, IndexError, KeyError)):
        guest.ask(streams.GET_STREAMS)
    assert [number for number, _ in node.members[2].closed] == [guest.connection]


def test_a_purge_is_answered_after_every_owner_has_applied_it() -> None:
    node = Several(3)
    client = with_topic(node, 0)
    for partition in range(PARTITIONS):
        client.send("s", "t", [b"old"], to=ToPartition(partition))
    node.held.add((0, 2))
    client.post(client.make_frame(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t")))
    node.settle(20)
    assert not client.has_answer()
    node.held.clear()
    node.settle()
    read_answer(client.take())
    assert all(poll(client, partition).messages_count == 0 for partition in range(PARTITIONS))


def test_what_was_acknowledged_survives_two_restarts_of_all_shards() -> None:
    node = Several(3)
    client = with_topic(node, 1)
    for number in range(2):
        for partition in range(PARTITIONS):
            client.send("s", "t", [b"kept"], to=ToPartition(partition))
        node.crash()
        client = node.client(1)
        for partition in range(PARTITIONS):
            assert poll(client, partition).messages_count == number + 1


def marks(node: Several, shard: int) -> Counter[str]:
    """Return how often a shard has reached its rare branches."""
    return Counter(node.members[shard].shard.marks.counts)


def test_an_owner_whose_image_is_behind_waits_for_what_the_home_knows() -> None:
    """O5.2: a client finds what it made, whatever shard serves it."""
    node = Several(3)
    client = with_topic(node, 1)
    node.held.add((0, 2))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PARTITIONS, "new"))
    group = pack_namespace(Namespace(StreamId(0), TopicId(1), PartitionId(0)))
    at = next(at for at in range(PARTITIONS) if owner_of(GroupId(group + at), 3) == 2)
    client.post(client.send_frame_of("s", "new", [b"early"], to=ToPartition(at)))
    assert not client.has_answer()
    assert marks(node, 2)["guests.early"] == 1
    node.held.clear()
    node.rest()
    (sent,) = messages.SEND_MESSAGES.decode_reply(read_answer(client.take()))
    assert sent.base_offset == 0


def test_counters_are_read_in_a_turn_that_has_answered_others() -> None:
    """SH-19: who was answered in this turn waits no more; its connection is there until its end."""
    node = Several(2)
    client = node.client(1)
    frames = [
        client.make_frame(streams.GET_STREAMS, None),
        client.make_frame(GET_COUNTERS, GetCounters(0)),
    ]
    client.post(*frames)
    node.settle()
    assert streams.GET_STREAMS.decode_reply(read_answer(client.take())) == ()
    counted = GET_COUNTERS.decode_reply(read_answer(client.take()))
    assert {each.name: each.value for each in counted.counters}["requests.waiting"] == 0


def test_what_no_member_sends_is_dropped_and_counted() -> None:
    node = Several(2)
    before = marks(node, 1)
    frames = ((0, b"nonsense"), (0, bus_frame(FrameKind.REPLICA_INBOUND_DONE)))
    node.members[1].step(BusFrames(frames))
    gained = marks(node, 1) - before
    assert (gained["bus.refused"], gained["bus.foreign"]) == (1, 1)


def test_a_member_that_is_lost_is_counted() -> None:
    node = Several(2)
    node.members[1].step(MemberLost(0, "closed"))
    assert marks(node, 1)["bus.member_lost"] == 1


def test_drops_are_counted_by_kind_and_reason() -> None:
    """SH-18: nothing is dropped where nothing was lost; a pair shows with its first drop."""
    node = Several(3)
    client = with_topic(node, 1)
    exchange = node.members[1].exchange
    assert list(exchange.drops.counts()) == []
    node.full.add((1, 2))
    with pytest.raises(RefusedError):
        client.send("s", "t", [b"x"], to=ToPartition(node.partition_of(2, PARTITIONS)))
    (drop,) = exchange.drops.counts()
    assert (drop.variant, drop.reason, drop.count) == (Variant.PARTITION, DropReason.FULL, 1)


def test_a_question_for_the_commit_says_nothing_of_the_shard_that_asks() -> None:
    node = Several(2)
    client = with_topic(node, 1)
    node.settle()
    main = node.main.exchange
    assert isinstance(main, MainExchange)
    peer = main.feed.peers[1]
    known = peer.op, peer.commit, peer.settled
    with pytest.raises(RefusedError):
        client.send("s", "never", [b"nowhere"])
    assert marks(node, 1)["doubts.asked"] == 1
    assert (peer.op, peer.commit, peer.settled) == known
    assert min(known) > 0


def test_a_guest_has_no_session_that_could_be_taken_from_it() -> None:
    """Its home takes it, when the eviction has come there."""
    node = Several(3)
    client = with_topic(node, 1)
    owner = node.members[2]
    owner.is_syncing = False
    to = ToPartition(node.partition_of(2, PARTITIONS))
    client.post(client.send_frame_of("s", "t", [b"x"], to=to))
    (number,) = owner.exchange.guests.numbers()
    exchange = owner.exchange
    assert isinstance(exchange, PeerExchange)
    exchange.sessions.release(owner.shard.front.connections.guests[number])
    assert exchange.sessions.departures.last == 0
    owner.is_syncing = True
    node.settle()
    read_answer(client.take())


def test_ops_that_are_applied_in_the_turn_of_an_image_are_fed_behind_it() -> None:
    machine, older = FedMachine(), MetadataMachine()
    older.apply(PrepareHeader(op=3, operation=Operation.LOGOUT), b"")
    machine.install(older.checkpoint())
    machine.apply(PrepareHeader(op=4, operation=Operation.LOGOUT), b"")
    turn = Turn(Clock(0))
    group: Any = SimpleNamespace(commit=4, state=machine.state)
    feed = Feed(group, machine, 2, turn)
    feed.departures = {1: Incoming()}
    feed.after_turn()
    feed.check()
    fed, _ = turn.out
    assert isinstance(fed, SendToMember)
    header = FEED_OP.decode(fed.parts[0])
    assert (header.previous, header.op) == (3, 4)
