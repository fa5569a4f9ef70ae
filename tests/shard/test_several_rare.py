"""What shards of a node rarely tell each other: twice, late, in part, or of who is gone."""

from collections import deque

import msgspec
import pytest

from headrace.base.connection_numbers import make_connection_id
from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.ports.bus import BusFrames, BusRefused, DropReason, MemberLost
from headrace.ports.network import CloseWanted
from headrace.shard.bus import doubts, feed, reporter
from headrace.shard.bus.exchange import PeerExchange
from headrace.shard.front import others
from headrace.shard.metadata_group import MetadataGroup
from headrace.wire.bus.feed import Subject
from headrace.wire.bus.gathered import ANSWERS, SCOPE, Scope
from headrace.wire.codec import decode_exactly, encode
from headrace.wire.commands import messages, streams, system, topics, users
from headrace.wire.commands.holders import GET_HOLDERS, GetHolders
from headrace.wire.commands.session import LOGIN_PASSWORD, LOGOUT, PasswordLogin, Register
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.identifiers import ToPartition
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation, SnapshotCompression, SnapshotType
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request
from tests.shard.several import HomedClient, Several, group_of
from tests.shard.test_not_done import told
from tests.shard.test_parked_ends import ANNE
from tests.shard.test_rare_orders import POLL
from tests.shard.test_several import PARTITIONS, marks, with_topic
from tests.shard.whole import ROOT, VERSION
from tests.wire.bus_frames import bus_frame


def code_of(client: HomedClient) -> Code:
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    return refused.value.code


def arrive(node: Several, sender: int, target: int, *frames: bytes) -> None:
    """Have frames come to a shard in one turn."""
    node.members[target].step(BusFrames(tuple((sender, bytearray(each)) for each in frames)))


def taken(node: Several, sender: int, target: int, kind: FrameKind) -> list[bytes]:
    """Return the frames of a kind that lie in a lane."""
    return [each for each in node.lanes[sender, target] if each[KIND_OFFSET] == kind]


def login_frame(client: HomedClient) -> bytes:
    request = Register(VERSION, password=PasswordLogin(*ROOT))
    return client.make_frame(LOGIN_PASSWORD, request)


# Requests in doubt.


def test_requests_in_doubt_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "_DOUBTS_MAX", 1)
    node = Several(2)
    first, second = with_topic(node, 1), node.client(1)
    node.held.add((1, 0))
    first.post(first.send_frame_of("s", "never", [b"nowhere"]))
    second.post(second.send_frame_of("s", "never", [b"nowhere"]))
    assert not first.has_answer()
    assert code_of(second) == Code.TRANSIENT_NOT_ACCEPTED
    node.held.clear()
    node.rest()
    assert code_of(first) in (Code.TOPIC_NAME_NOT_FOUND, Code.RESOURCE_NOT_FOUND)


def test_each_request_in_doubt_has_an_answer_of_its_own() -> None:
    node = Several(2)
    clients = [with_topic(node, 1), node.client(1)]
    node.held.add((1, 0))
    for client in clients:
        client.post(client.send_frame_of("s", "never", [b"nowhere"]))
    node.held.clear()
    node.rest()
    for client in clients:
        assert code_of(client) in (Code.TOPIC_NAME_NOT_FOUND, Code.RESOURCE_NOT_FOUND)


def test_who_goes_while_the_image_comes_is_not_judged_again() -> None:
    node = Several(2)
    maker = with_topic(node, 0)
    client = node.client(1)
    node.full.add((0, 1))
    maker.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "new"))
    node.full.clear()
    client.post(client.send_frame_of("s", "new", [b"early"]))
    node.rest()
    assert not client.has_answer()  # Shard 0 has decided more than the image has.
    node.close(client.connection)
    node.settle()
    assert node.image(1).commit == node.main.shard.metadata.commit
    assert maker.ask(streams.GET_STREAM, streams.GetStream("s")).topics[1].messages_count == 0


def test_who_goes_before_the_op_comes_is_not_judged_again() -> None:
    node = Several(2)
    maker = with_topic(node, 0)
    client = node.client(1)
    node.held.add((0, 1))
    maker.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "new"))
    ops = taken(node, 0, 1, FrameKind.FEED_OP)
    node.lanes[0, 1].clear()
    node.held.clear()
    client.post(client.send_frame_of("s", "new", [b"early"]))
    node.rest()
    node.close(client.connection)
    arrive(node, 0, 1, *ops)
    node.settle()
    assert node.image(1).commit == node.main.shard.metadata.commit
    assert not client.has_answer()


# Frames that nobody sends.


def test_a_request_of_nobody_that_is_none_gets_no_answer() -> None:
    node = Several(2)
    home = make_connection_id(0, 7)
    fields = {"home": 0, "connection": home, "operation": Operation.STORE_CONSUMER_OFFSET}
    frame = encode_request(
        Operation.STORE_CONSUMER_OFFSET, b"", client=0, session=0, request=1, code=0
    )
    arrive(node, 0, 1, bus_frame(FrameKind.FORWARDED_REQUEST, frame, **fields))
    assert node.members[1].exchange.guests.numbers() == []
    assert node.lanes[1, 0] == deque()


def test_a_request_in_the_name_of_another_shard_is_dropped_and_counted() -> None:
    node = Several(3)
    before = marks(node, 1)
    home = make_connection_id(2, 7)
    arrive(node, 0, 1, bus_frame(FrameKind.FORWARDED_REQUEST, home=2, connection=home))
    assert (marks(node, 1) - before)["bus.refused"] == 1


def test_only_the_home_of_a_connection_tells_that_it_is_gone() -> None:
    node = Several(3)
    client = node.client(2)
    before = marks(node, 0)
    arrive(node, 1, 0, bus_frame(FrameKind.CONNECTION_GONE, connection=client.connection))
    assert (marks(node, 0) - before)["bus.refused"] == 1
    assert client.ask(streams.GET_STREAMS) == ()


def test_a_departure_before_which_one_is_missing_is_not_taken() -> None:
    node = Several(2)
    client = node.client(1)
    arrive(node, 1, 0, bus_frame(FrameKind.CONNECTION_GONE, connection=client.connection, number=2))
    node.settle()
    assert client.ask(streams.GET_STREAMS) == ()


def test_a_guest_is_not_sent_on() -> None:
    """O5.6: one hop is enough."""
    node = Several(3)
    client = with_topic(node, 1)
    node.held.add((1, 2))
    at = node.partition_of(2, PARTITIONS)
    request = msgspec.structs.replace(POLL, partition_id=at, auto_commit=False)
    client.post(client.make_frame(messages.POLL_MESSAGES, request))
    (frame,) = taken(node, 1, 2, FrameKind.FORWARDED_REQUEST)
    arrive(node, 1, 0, frame)
    (reply,) = taken(node, 0, 1, FrameKind.FORWARDED_REPLY)
    with pytest.raises(RefusedError) as refused:
        read_answer(reply[HEADER_BYTES:])
    assert refused.value.code == Code.TRANSIENT_NOT_ACCEPTED
    node.held.clear()
    node.rest()
    read_answer(client.take())


def test_a_lane_that_refuses_a_request_which_was_answered_changes_nothing() -> None:
    node = Several(2)
    client = node.client(1)
    kind = FrameKind.FORWARDED_REQUEST
    node.members[1].step(BusRefused(0, kind, 999, DropReason.FULL, METADATA_GROUP))
    assert client.ask(streams.GET_STREAMS) == ()


def test_a_member_that_is_no_shard_is_fed_nothing() -> None:
    node = Several(2)
    node.main.step(MemberLost(9, "closed"))
    assert marks(node, 0)["bus.member_lost"] == 1
    assert node.client(1).ask(streams.GET_STREAMS) == ()


# Connections.


def test_the_server_closes_connections_wherever_they_live() -> None:
    node = Several(2)
    client = node.client(1)
    node.main.step(CloseWanted(client.connection, "enough"))
    node.main.step(CloseWanted(make_connection_id(1, 999), "enough"))
    node.rest()
    assert node.members[1].closed == [(client.connection, "enough")]


def test_a_departure_that_a_lane_dropped_is_told_again() -> None:
    node = Several(2)
    client = node.client(1, client=5)
    node.full.add((1, 0))
    node.close(client.connection)
    node.settle(3)
    assert node.main.shard.metadata.sessions.is_connected(5)
    node.full.clear()
    node.settle()
    assert not node.main.shard.metadata.sessions.is_connected(5)
    assert node.main.left == [client.connection]


def test_a_login_and_the_end_of_its_connection_come_together() -> None:
    node = Several(2)
    client = HomedClient(node, 1, 5)
    node.held.add((1, 0))
    client.post(login_frame(client))
    node.close(client.connection)
    node.settle(3)
    node.held.clear()
    node.settle()
    assert not node.main.shard.metadata.sessions.is_connected(5)
    assert node.client(1, client=5).ask(streams.GET_STREAMS) == ()


def test_a_login_that_is_none_and_the_end_of_its_connection_come_together() -> None:
    node = Several(2)
    client = HomedClient(node, 1, 5)
    node.held.add((1, 0))
    client.post(
        encode_request(Operation.REGISTER, b"?", client=5, session=0, request=0, code=0) + b"?"
    )
    node.close(client.connection)
    node.held.clear()
    node.settle()
    assert not client.has_answer()
    assert node.client(1, client=5).ask(streams.GET_STREAMS) == ()


def test_a_connection_logs_in_once_at_a_time() -> None:
    node = Several(2)
    client = HomedClient(node, 1, 5)
    node.held.add((1, 0))
    client.post(login_frame(client))
    client.post(login_frame(client))
    assert code_of(client) == Code.TRANSIENT_NOT_COMMITTED
    node.held.clear()
    node.rest()
    assert read_answer(client.take())


def test_an_order_is_carried_out_once_and_not_for_who_is_gone() -> None:
    node = Several(2)
    client = HomedClient(node, 1, 5)
    node.held.add((0, 1))
    client.post(login_frame(client))
    orders = taken(node, 0, 1, FrameKind.CONNECTION_ORDER)
    assert len(orders) == 2  # Trust it, and tell it so.
    node.close(client.connection)
    node.held.clear()
    node.rest()
    arrive(node, 0, 1, *orders)
    node.settle()
    assert not node.members[1].inbox.get(client.connection)
    assert not node.main.shard.metadata.sessions.is_connected(5)


def test_who_was_evicted_by_an_owner_must_log_in_again() -> None:
    """A guest has no session of its own: its home takes that of whom it stands for."""
    node = Several(3)
    client = with_topic(node, 1)
    to = ToPartition(node.partition_of(2, PARTITIONS))
    node.held.add((1, 2))
    for number in range(2):
        client.post(client.send_frame_of("s", "t", [b"%d" % number], to=to))
    tickets = node.members[1].exchange.tickets()
    assert len(tickets) == 2
    kind, number = FrameKind.FORWARDED_REPLY, client.connection
    replies = [bus_frame(kind, ticket=each, connection=number, home=1) for each in tickets]
    arrive(node, 2, 1, *replies)
    node.rest()
    for _ in replies:
        with pytest.raises(EvictedError):
            read_answer(client.take())
    assert not node.main.shard.metadata.sessions.is_connected(client.client)
    client.login(*ROOT)
    assert len(client.ask(streams.GET_STREAMS)) == 1


def test_a_guest_whose_connection_is_gone_has_no_session_to_lose() -> None:
    node = Several(2)
    client = with_topic(node, 1)
    node.main.is_syncing = False
    to = ToPartition(node.partition_of(0, PARTITIONS))
    client.post(client.send_frame_of("s", "t", [b"x"], to=to))
    exchange = node.main.exchange
    (number,) = exchange.guests.numbers()
    node.close(client.connection)
    exchange.forwards.release(node.main.shard.front.connections.guests[number])
    node.main.is_syncing = True
    node.settle()
    assert not client.has_answer()
    assert not node.main.shard.metadata.sessions.is_connected(client.client)


def test_a_session_that_two_take_is_taken_once() -> None:
    node = Several(2)
    client = node.client(1, client=5)
    home = node.members[1].exchange
    assert isinstance(home, PeerExchange)
    node.held.add((1, 0))
    connection = node.members[1].shard.front.connections.get(client.connection)
    assert connection is not None
    home.sessions.release(connection)
    node.members[1].tick()
    node.client(0, client=5)  # takes the session from it on shard 0
    node.held.clear()
    node.settle()
    assert node.main.shard.metadata.sessions.is_connected(5)
    client.client = 6
    client.login(*ROOT)
    assert client.ask(streams.GET_STREAMS) == ()


def test_an_answer_for_who_is_gone_is_dropped() -> None:
    node = Several(3)
    client = with_topic(node, 1)
    node.held.add((2, 1))
    to = ToPartition(node.partition_of(2, PARTITIONS))
    client.post(client.send_frame_of("s", "t", [b"x"], to=to))
    node.close(client.connection)
    node.held.clear()
    node.rest()
    assert not client.has_answer()
    assert node.members[1].exchange.tickets() == []


def test_a_request_that_comes_twice_is_served_once() -> None:
    node = Several(3)
    client = with_topic(node, 1)
    owner = node.members[2]
    owner.is_syncing = False
    node.held.add((1, 2))
    to = ToPartition(node.partition_of(2, PARTITIONS))
    client.post(client.send_frame_of("s", "t", [b"x"], to=to))
    (frame,) = taken(node, 1, 2, FrameKind.FORWARDED_REQUEST)
    node.held.clear()
    node.rest()
    arrive(node, 1, 2, frame)
    owner.is_syncing = True
    node.settle()
    read_answer(client.take())
    assert not client.has_answer()


def with_send_on_its_way(node: Several) -> HomedClient:
    """Return a client whose user is gone, and whose send has not been answered yet."""
    root = with_topic(node, 0)
    root.ask(users.CREATE_USER, ANNE)
    client = HomedClient(node, 1, 9)
    client.login("anne", b"secret")
    node.members[2].is_syncing = False
    to = ToPartition(node.partition_of(2, PARTITIONS))
    client.post(client.send_frame_of("s", "t", [b"on its way"], to=to))
    root.ask(users.DELETE_USER, users.DeleteUser("anne"))
    node.settle(3)
    assert node.members[1].closed == []
    return client


def test_who_is_over_is_closed_once_it_was_told_everything() -> None:
    """SE-4, SE-9: it sends nothing twice, and hears what became of what it sent."""
    node = Several(3)
    client = with_send_on_its_way(node)
    assert told(client.take()) == EvictionReason.STALE_CLIENT
    client.post(client.make_frame(LOGOUT, None))
    node.settle(3)
    assert told(client.take()) is None
    assert not client.has_answer()
    node.members[2].is_syncing = True
    node.settle(3)
    assert told(client.take()) is None
    assert [number for number, _ in node.members[1].closed] == [client.connection]


def test_who_is_over_may_go_by_itself() -> None:
    node = Several(3)
    client = with_send_on_its_way(node)
    node.close(client.connection)
    node.settle(3)
    assert node.members[1].closed == []
    assert node.main.left == [client.connection]


# The feed.


def test_an_image_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_PIECE_BYTES", 64)
    node = Several(2)
    with_topic(node, 0)
    node.crash()
    assert node.image(1).machine.state_hash() == node.main.shard.metadata.machine.state_hash()


def test_an_image_whose_piece_was_dropped_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_PIECE_BYTES", 64)
    node = Several(2)
    with_topic(node, 0)
    node.held.add((0, 1))
    node.crash()
    pieces = taken(node, 0, 1, FrameKind.FEED_IMAGE)
    assert len(pieces) > 2
    node.lanes[0, 1].remove(pieces[1])
    node.held.clear()
    node.settle()
    metadata = node.main.shard.metadata
    assert node.image(1).machine.state_hash() == metadata.machine.state_hash()
    arrive(node, 0, 1, pieces[1])  # of nothing that is coming
    node.settle()
    assert node.image(1).commit == metadata.commit


def test_what_was_fed_before_takes_nothing_back() -> None:
    node = Several(2)
    client = with_topic(node, 0)
    node.held.add((0, 1))
    node.crash()
    images = taken(node, 0, 1, FrameKind.FEED_IMAGE)
    node.held.clear()
    node.rest()
    client = node.client(0)
    node.held.add((0, 1))
    client.ask(streams.CREATE_STREAM, streams.CreateStream("later"))
    ops = taken(node, 0, 1, FrameKind.FEED_OP)
    node.held.clear()
    node.rest()
    image = node.image(1)
    known = image.machine.state_hash()
    arrive(node, 0, 1, *images, *ops)
    assert image.machine.state_hash() == known == node.main.shard.metadata.machine.state_hash()


# Questions.


def with_lag(node: Several) -> HomedClient:
    """Return a client that has asked for what shard 2 can tell once its image is there."""
    client = with_topic(node, 0)
    node.full.add((0, 2))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PARTITIONS, "new"))
    node.full.clear()
    client.post(client.make_frame(streams.GET_STREAMS, None))
    node.deliver()
    return client


def test_a_question_waits_for_the_metadata_of_who_asks() -> None:
    node = Several(3)
    client = with_lag(node)
    assert not client.has_answer()
    assert marks(node, 2)["reports.early"] == 1
    node.settle()
    assert len(streams.GET_STREAMS.decode_reply(read_answer(client.take()))) == 1
    assert marks(node, 0)["gather_missing_total"] == 0


def test_a_question_that_finds_no_place_to_wait_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter, "EARLY_MAX", 0)
    node = Several(3)
    client = with_lag(node)
    assert marks(node, 2)["reports.too_many"] == 1
    node.settle(200)
    assert len(streams.GET_STREAMS.decode_reply(read_answer(client.take()))) == 1
    assert marks(node, 0)["gather_missing_total"] == 0


def test_a_question_that_nobody_waits_for_any_more_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter, "EARLY_TICKS", 3)
    node = Several(3)
    client = with_lag(node)
    node.held |= {(0, 2), (2, 0)}
    node.settle(10)
    node.held.clear()
    node.settle(300)
    assert len(streams.GET_STREAMS.decode_reply(read_answer(client.take()))) == 1


def test_a_shard_whose_answer_no_lane_takes_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Several(3)
    client = with_topic(node, 0)
    monkeypatch.setattr(reporter, "FRAME_BYTES_MAX", HEADER_BYTES)
    client.post(client.make_frame(streams.GET_STREAMS, None))
    node.settle(400)
    assert len(streams.GET_STREAMS.decode_reply(read_answer(client.take()))) == 1
    assert marks(node, 0)["gather_missing_total"] == 2


def test_nobody_waits_for_the_figures_of_a_shard_that_ended() -> None:
    node = Several(3)
    client = with_topic(node, 0)
    node.held |= {(0, 1), (0, 2)}
    client.post(client.make_frame(streams.GET_STREAMS, None))
    for member in (1, 2):
        kind = FrameKind.GATHER
        node.main.step(BusRefused(member, kind, 0, DropReason.DISCONNECTED, METADATA_GROUP))
    assert len(streams.GET_STREAMS.decode_reply(read_answer(client.take()))) == 1
    node.main.step(MemberLost(1, "closed"))
    assert len(client.ask(streams.GET_STREAMS)) == 1


def test_a_shard_that_has_answered_is_not_waited_for_again() -> None:
    node = Several(3)
    client = with_topic(node, 0)
    node.held.add((0, 1))
    client.post(client.make_frame(streams.GET_STREAMS, None))
    node.rest()
    kind = FrameKind.GATHER
    for reason in (DropReason.FULL, DropReason.DISCONNECTED):
        node.main.step(BusRefused(2, kind, 0, reason, METADATA_GROUP))
    assert not client.has_answer()
    node.held.clear()
    node.rest()
    assert len(streams.GET_STREAMS.decode_reply(read_answer(client.take()))) == 1
    assert marks(node, 0)["gather_missing_total"] == 0


def test_who_goes_while_figures_are_gathered_is_answered_nothing() -> None:
    node = Several(3)
    client = with_topic(node, 0)
    node.held.add((0, 1))
    client.post(client.make_frame(streams.GET_STREAMS, None))
    node.close(client.connection)
    node.settle(2)
    node.held.clear()
    node.settle()
    assert not client.has_answer()


def test_figures_that_come_when_others_may_have_decided_more_are_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O6.2."""
    node = Several(3)
    client = with_topic(node, 0)
    node.held.add((0, 1))
    client.post(client.make_frame(streams.GET_STREAMS, None))
    monkeypatch.setattr(MetadataGroup, "is_current", property(lambda _: False))
    node.held.clear()
    node.rest()
    assert code_of(client) == Code.TRANSIENT_NOT_ACCEPTED


def test_a_topic_that_is_not_there_has_no_owners() -> None:
    client = with_topic(Several(3), 0)
    assert client.ask(topics.GET_TOPIC, topics.GetTopic("s", "never")) is None


def test_figures_of_partitions_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "_SPARE_ROWS", 0)
    node = Several(3)
    client = with_topic(node, 0)
    for number in range(4):
        client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PARTITIONS, f"more{number}"))
        node.settle(2)
    assert len(client.ask(topics.GET_TOPICS, topics.GetTopics("s"))) == 5
    for number in range(4):
        client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", f"more{number}"))
        node.settle(2)
    client.send("s", "t", [b"x"], to=ToPartition(node.partition_of(2, PARTITIONS)))
    (topic,) = client.ask(topics.GET_TOPICS, topics.GetTopics("s"))
    assert topic.messages_count == 1


def test_a_snapshot_tells_of_all_shards() -> None:
    client = with_topic(Several(3), 0)
    for kind in (SnapshotType.RESOURCE_USAGE, SnapshotType.TEST):
        request = system.GetSnapshot(SnapshotCompression.STORED, (kind,))
        assert client.ask(system.GET_SNAPSHOT, request)


def test_who_keeps_messages_is_told_of_all_shards() -> None:
    node = Several(3)
    client = with_topic(node, 0)
    for partition in range(PARTITIONS):
        client.send("s", "t", [b"x"], to=ToPartition(partition))
    assert client.ask(GET_HOLDERS, GetHolders("s", "t")).count == 0
    scope = bus_frame(
        FrameKind.GATHER, body=encode(SCOPE, Scope(0, 77)), subject=Subject.HOLDERS, commit=0
    )
    arrive(node, 0, 1, scope)  # of a topic that has gone since
    (answer,) = taken(node, 1, 0, FrameKind.GATHERED)
    assert decode_exactly(ANSWERS[Subject.HOLDERS], answer[HEADER_BYTES:]).count == 0


# What a shard without the metadata does with its partitions.


def test_the_offset_of_a_poll_from_the_disk_is_stored_in_the_turn_that_answers_it() -> None:
    node = Several(2, tail_bytes_max=0)
    client = with_topic(node, 1)
    at = node.partition_of(1, PARTITIONS)
    client.send("s", "t", [b"x"], to=ToPartition(at))
    node.settle(100)
    replica = node.members[1].shard.data_plane.groups[group_of(at)]
    ordered = replica.op
    request = msgspec.structs.replace(POLL, partition_id=at)
    assert client.ask(messages.POLL_MESSAGES, request).messages_count == 1
    assert replica.commit_min == replica.op == ordered + 1


def test_a_flush_is_answered_by_the_shard_that_has_the_partition() -> None:
    node = Several(2)
    client = with_topic(node, 1)
    for shard in (0, 1):
        at = node.partition_of(shard, PARTITIONS)
        client.send("s", "t", [b"x"], to=ToPartition(at))
        request = topics.FlushUnsavedBuffer("s", "t", at, fsync=True)
        assert client.ask(topics.FLUSH_UNSAVED_BUFFER, request) is None


def test_a_frame_of_another_node_for_a_partition_of_another_shard_is_counted_and_dropped() -> None:
    node = Several(2)
    with_topic(node, 0)
    group = group_of(node.partition_of(0, PARTITIONS))
    parking = node.members[1].shard.partitions.parking
    parking.take_frame(1, FrameKind.PREPARE, PrepareHeader(group=group, origin=99), b"astray")
    (drop,) = node.members[1].exchange.drops.counts()
    assert (drop.reason, drop.count) == (DropReason.MISROUTED, 1)
