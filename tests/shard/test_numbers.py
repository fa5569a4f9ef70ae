"""One number, several requests: a number is spent where a success under it was written (O4.2)."""

from typing import Any

import pytest

from headrace.shard.front.answers import DEADLINE_TICKS
from headrace.wire.commands import groups, messages, session, streams, topics
from headrace.wire.commands.command import Command
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer, ToPartition
from headrace.wire.numbers import ConsumerKind
from headrace.wire.replies import REPLY, read_answer
from headrace.wire.requests import REQUEST
from tests.shard.test_node import poll, with_topic
from tests.shard.trio import COUNT, STREAM, TOPIC, Trio
from tests.shard.whole import ROOT, Client, Whole, hold

MINE = Consumer(ConsumerKind.CONSUMER, 1)
N = 9  # above all that the set-up has used


@pytest.fixture
def node() -> Whole:
    return Whole()


@pytest.fixture
def client(node: Whole) -> Client:
    return with_topic(node, 2)


def count(client: Client, partition: int = 0) -> int:
    topic = client.ask(topics.GET_TOPIC, topics.GetTopic("s", "t"))
    return int(topic.partitions[partition].messages_count)


def again(client: Client, *, is_closed: bool = True) -> Client:
    """Give the same client on another connection."""
    if is_closed:
        client.close()
    made = Client(client.node, client.client)
    made.login(*ROOT)
    return made


def store(offset: int) -> messages.StoreOffset:
    return messages.StoreOffset(consumer=MINE, stream="s", topic="t", partition_id=0, offset=offset)


def stored(client: Client) -> int | None:
    wanted = messages.GetOffset(consumer=MINE, stream="s", topic="t", partition_id=0)
    found = client.ask(messages.GET_OFFSET, wanted)
    return None if found is None else int(found.stored_offset)


def code_of(frame: bytes) -> Code:
    with pytest.raises(RefusedError) as refused:
        read_answer(frame)
    return refused.value.code


# Spent: what comes next on that connection is new.


def test_a_thousand_equal_sends_under_one_number_are_a_thousand_messages(client: Client) -> None:
    offsets = [client.send("s", "t", [b"tick"], number=N).base_offset for _ in range(1000)]
    assert offsets == list(range(1000))
    assert count(client) == 1000


def test_different_requests_under_one_number_are_all_carried_out(client: Client) -> None:
    """As a client does that numbers its metadata requests alone: all kinds, both partitions."""
    for number, payload in enumerate((b"a", b"b", b"a")):
        assert client.send("s", "t", [payload], number=N).base_offset == number
    assert client.send("s", "t", [b"a"], number=N, to=ToPartition(1)).base_offset == 0
    for offset in (2, 1, 2):
        assert not read_answer(
            client.send_frame(client.make_frame(messages.STORE_OFFSET, store(offset), N))
        )
        assert stored(client) == offset
    delete = messages.DeleteOffset(consumer=MINE, stream="s", topic="t", partition_id=0)
    frame = client.make_frame(messages.DELETE_OFFSET, delete, N)
    assert not read_answer(client.send_frame(frame))
    assert stored(client) is None
    assert code_of(client.send_frame(frame)) == Code.CONSUMER_OFFSET_NOT_FOUND
    trim = client.make_frame(
        topics.DELETE_SEGMENTS,
        topics.DeleteSegments("s", "t", 0, 1),
        N,
    )
    assert not read_answer(client.send_frame(trim))
    client.send_frame(client.make_frame(streams.CREATE_STREAM, streams.CreateStream("x"), N))
    assert client.send("s", "t", [b"a"], number=N + 1).base_offset == 3


def test_a_committed_rejection_spends_the_number_too(node: Whole, client: Client) -> None:
    """Else whoever asks for the same later would be told what was true then."""
    client.send("s", "t", [b"a"])
    delete = messages.DeleteOffset(consumer=MINE, stream="s", topic="t", partition_id=0)
    frame = client.make_frame(messages.DELETE_OFFSET, delete, N)
    assert code_of(client.send_frame(frame)) == Code.CONSUMER_OFFSET_NOT_FOUND
    node.client().ask(messages.STORE_OFFSET, store(0))
    assert not read_answer(client.send_frame(frame))
    assert stored(client) is None


def test_what_is_remembered_for_a_number_stays(client: Client) -> None:
    first = client.send("s", "t", [b"first"], number=N)
    client.send("s", "t", [b"second"], number=N)
    client.send("s", "t", [b"first"], number=N)
    client = again(client)
    assert client.send("s", "t", [b"first"], number=N) == first
    assert count(client) == 3


def test_a_read_does_not_spend_the_number_that_it_carries(node: Whole, client: Client) -> None:
    """Reads carry the number that the next request takes."""
    go_on = hold(node)
    frame = client.send_frame_of("s", "t", [b"a"], number=N)
    client.post(frame)
    node.tick(DEADLINE_TICKS + 1)
    assert code_of(client.take()) == Code.TRANSIENT_NOT_COMMITTED
    read_answer(client.send_frame(client.make_frame(streams.GET_STREAMS, None, N)))
    go_on()
    read_answer(client.send_frame(frame))
    assert count(client) == 1


# Not spent: a repetition is answered from memory, another body is another request.


@pytest.mark.parametrize("is_answered", [True, False], ids=["after the answer", "before the sync"])
def test_a_cut_and_the_same_request_again_is_one_message(
    node: Whole, client: Client, *, is_answered: bool
) -> None:
    """The connection ends before the sync, or with the answer on its way."""
    go_on = hold(node)
    frame = client.send_frame_of("s", "t", [b"once"], number=N)
    client.post(frame)
    assert not client.has_answer()
    if is_answered:
        go_on()
        assert client.has_answer()
    client.close()
    node.is_syncing = True
    client = again(client)
    assert client.send("s", "t", [b"once"], number=N).base_offset == 0
    assert count(client) == 1


def test_a_cut_between_many_requests_repeats_the_first_only_once(node: Whole) -> None:
    """Every cut: each request of a client that numbers, sent again after its connection ended."""
    client = with_topic(node)
    for number in range(N, N + 20):
        client.post(client.send_frame_of("s", "t", [b"equal"], number=number))
        client = again(client)
        assert client.send("s", "t", [b"equal"], number=number).base_offset == number - N
    assert count(client) == 20


@pytest.mark.parametrize("code", [Code.TRANSIENT_NOT_COMMITTED, Code.TRANSIENT_NOT_ACCEPTED])
def test_an_answer_that_leaves_the_outcome_open_spends_nothing(
    node: Whole, client: Client, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = client.send_frame_of("s", "t", [b"once"], number=N)
    if code == Code.TRANSIENT_NOT_COMMITTED:
        go_on = hold(node)
        client.post(frame)
        node.tick(DEADLINE_TICKS + 1)
        assert code_of(client.take()) == code
        go_on()
    else:
        with monkeypatch.context() as starting:
            starting.setattr(node.shard.data_plane.inbox, "has_begun", False)
            assert code_of(client.send_frame(frame)) == code
    assert [client.send("s", "t", [b"once"], number=N).base_offset for _ in "12"] == [0, 1]
    assert count(client) == 2  # The second is new: the first was answered.


def test_another_connection_of_the_client_has_spent_nothing(client: Client) -> None:
    assert client.send("s", "t", [b"once"], number=N).base_offset == 0
    other = again(client, is_closed=False)
    assert other.send("s", "t", [b"once"], number=N).base_offset == 0
    assert other.send("s", "t", [b"other"], number=N).base_offset == 1
    assert count(other) == 2


def test_another_body_on_another_connection_is_another_request(client: Client) -> None:
    """Status 4 until now: the second send of many a client ended there."""
    client.send("s", "t", [b"one"], number=N)
    client = again(client)
    assert client.send("s", "t", [b"two"], number=N).base_offset == 1
    batches = bytes(poll(client).batches)
    assert 0 < batches.index(b"one") < batches.index(b"two")


def test_numbers_of_one_client_say_nothing_of_those_of_the_next(client: Client) -> None:
    """Two clients, one after the other on one connection."""
    client.send("s", "t", [b"a"], number=N)
    client.number = N
    client.ask(session.LOGOUT)
    client.client += 1
    client.login(*ROOT)
    frame = client.send_frame_of("s", "t", [b"b"], number=N)
    go_on = hold(client.node)
    client.post(frame)
    client.node.tick(DEADLINE_TICKS + 1)
    assert code_of(client.take()) == Code.TRANSIENT_NOT_COMMITTED
    go_on()
    read_answer(client.send_frame(frame))
    assert count(client) == 2


# Answers find who waits for them.


def test_an_answer_that_nobody_waits_for_is_not_the_next_ones(node: Whole, client: Client) -> None:
    """The first got 57 and its sync comes now; the second goes elsewhere under the same number."""
    go_on = hold(node)
    client.post(client.send_frame_of("s", "t", [b"slow"], number=N))
    node.tick(DEADLINE_TICKS + 1)
    assert code_of(client.take()) == Code.TRANSIENT_NOT_COMMITTED
    client.post(client.send_frame_of("s", "t", [b"next"], number=N, to=ToPartition(1)))
    go_on()
    (told,) = messages.SEND_MESSAGES.decode_reply(read_answer(client.take()))
    assert told.partition_id == 1
    assert not client.has_answer()
    assert (count(client), count(client, 1)) == (1, 1)


def test_a_second_request_under_a_number_that_waits_is_told_to_wait(
    node: Whole, client: Client
) -> None:
    go_on = hold(node)
    frame = client.send_frame_of("s", "t", [b"once"], number=N)
    client.post(frame, frame)
    assert code_of(client.take()) == Code.TRANSIENT_NOT_COMMITTED
    go_on()
    assert REPLY.decode(client.take()).status == 0
    assert count(client) == 1


def test_an_answer_of_the_session_before_spends_nothing(node: Whole, client: Client) -> None:
    """Who has logged in anew may ask again before it reads that answer."""
    go_on = hold(node)
    frame = client.send_frame_of("s", "t", [b"once"], number=N)
    client.post(frame)
    node.disks[1].is_syncing = False
    node.is_syncing = True
    again(client, is_closed=False)  # takes the session
    client.login(*ROOT)
    renewed = client.send_frame_of("s", "t", [b"once"], number=N)
    node.disks[1].is_syncing = True
    go_on()
    (first,) = messages.SEND_MESSAGES.decode_reply(read_answer(client.take()))
    (second,) = messages.SEND_MESSAGES.decode_reply(read_answer(client.send_frame(renewed)))
    assert first == second
    assert count(client) == 1


# Clients cannot say so themselves, and every replica decides alike.


def test_a_client_cannot_mark_its_own_requests(client: Client) -> None:
    frame = client.send_frame_of("s", "t", [b"once"], number=N)
    frame[REQUEST.at("is_anew")] = 1
    read_answer(client.send_frame(frame))
    client = again(client)
    frame = client.send_frame_of("s", "t", [b"once"], number=N)
    frame[REQUEST.at("is_anew")], frame[REQUEST.at("ticket")] = 1, 77
    read_answer(client.send_frame(frame))
    assert count(client) == 1
    metadata = bytearray(client.make_frame(streams.CREATE_STREAM, streams.CreateStream("y"), N + 1))
    metadata[REQUEST.at("is_anew")], metadata[REQUEST.at("ticket")] = 1, 77
    read_answer(client.send_frame(metadata))
    assert client.ask(streams.GET_STREAM, streams.GetStream("y")) is not None


def test_a_start_replays_requests_under_a_used_number(node: Whole, client: Client) -> None:
    offsets = [client.send("s", "t", [b"equal"], number=N).base_offset for _ in range(5)]
    assert offsets == list(range(5))
    node.crash(is_power_cut=True)
    client = again(client, is_closed=False)
    assert count(client) == 5
    assert client.send("s", "t", [b"equal"], number=N).base_offset == 0


def test_every_replica_takes_requests_under_a_used_number() -> None:
    """The backups apply what the primary took, and remember the first."""
    trio = Trio()
    client = trio.login(0)
    offsets = [client.send(STREAM, TOPIC, [b"equal"], number=N).base_offset for _ in range(5)]
    assert offsets == list(range(5))
    trio.tick(200)
    replicas = [trio.groups(node)[1] for node in range(COUNT)]
    assert not any(each.state.is_halted for each in replicas)
    assert len({each.commit_min for each in replicas}) == 1
    assert len({each.state.table.encode() for each in replicas}) == 1


@pytest.mark.parametrize("command", [messages.STORE_OFFSET, messages.DELETE_OFFSET])
def test_a_new_store_of_a_former_owner_is_refused_though_its_number_was_used(
    client: Client, command: Command[Any, Any]
) -> None:
    """The number is spent here, so this is no repetition: the partition is another's."""
    ours = Consumer(ConsumerKind.GROUP, "g")
    client.send("s", "t", [b"one", b"two"])
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    kept = messages.StoreOffset(consumer=ours, stream="s", topic="t", partition_id=0, offset=1)
    gone = messages.DeleteOffset(consumer=ours, stream="s", topic="t", partition_id=0)
    frame = client.make_frame(messages.STORE_OFFSET, kept, N)
    assert not read_answer(client.send_frame(frame))
    request = kept if command is messages.STORE_OFFSET else gone
    other = client.node.client(client=700)
    other.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    answer = client.send_frame(client.make_frame(command, request, N))
    assert code_of(answer) == Code.CONSUMER_GROUP_PARTITION_NOT_OWNED
