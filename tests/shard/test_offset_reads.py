"""An offset that a poll stores is seen by the next question for it, which waits for that."""

import pytest

from headrace.wire.commands import groups, messages, streams, topics
from headrace.wire.commands.messages import StoredOffset
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer, Next
from headrace.wire.numbers import ConsumerKind
from headrace.wire.replies import read_answer
from tests.shard.whole import Client, Whole

DATA = 1
ME = Consumer(ConsumerKind.CONSUMER, 1)
OTHER = Consumer(ConsumerKind.CONSUMER, 2)
GROUP = Consumer(ConsumerKind.GROUP, "g")


def make_poll(who: Consumer) -> messages.PollMessages:
    return messages.PollMessages(
        consumer=who,
        stream="s",
        topic="t",
        partition_id=0,
        strategy=Next(),
        count=2,
        auto_commit=True,
    )


def poll(client: Client, who: Consumer = ME) -> messages.PolledMessages:
    polled = client.ask(messages.POLL_MESSAGES, make_poll(who))
    assert isinstance(polled, messages.PolledMessages)
    return polled


def frame_of_get(client: Client, who: Consumer = ME) -> bytes:
    return client.make_frame(messages.GET_OFFSET, messages.GetOffset(who, "s", "t", 0))


def read_offset(frame: bytes) -> StoredOffset | None:
    return messages.GET_OFFSET.decode_reply(read_answer(frame))


@pytest.fixture
def node() -> Whole:
    return Whole()


@pytest.fixture
def client(node: Whole) -> Client:
    made = node.client()
    made.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    made.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    made.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    made.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    made.send("s", "t", [b"one", b"two", b"three"])
    return made


@pytest.mark.parametrize("who", [ME, GROUP], ids=["consumer", "group"])
def test_it_waits_until_the_offset_is_stored(node: Whole, client: Client, who: Consumer) -> None:
    asking = node.client(client=700)
    node.disks[DATA].is_syncing = False
    assert poll(client, who).messages_count == 2
    asking.post(frame_of_get(asking, who))
    assert not asking.has_answer()
    node.disks[DATA].is_syncing = True
    node.tick()
    assert read_offset(asking.take()) == StoredOffset(0, 2, 1)
    assert read_offset(asking.send_frame(frame_of_get(asking, who))) == StoredOffset(0, 2, 1)


def test_nobody_waits_for_the_offset_of_another(node: Whole, client: Client) -> None:
    node.disks[DATA].is_syncing = False
    assert poll(client).messages_count == 2
    assert read_offset(client.send_frame(frame_of_get(client, OTHER))) is None


def test_polls_and_questions_wait_in_order(node: Whole, client: Client) -> None:
    node.disks[DATA].is_syncing = False
    asking = node.client(client=700)
    assert poll(client).messages_count == 2
    asking.post(frame_of_get(asking))
    client.post(client.make_frame(messages.POLL_MESSAGES, make_poll(ME)))
    assert not asking.has_answer()
    assert not client.has_answer()
    node.disks[DATA].is_syncing = True
    node.tick()
    assert read_offset(asking.take()) == StoredOffset(0, 2, 1)
    polled = messages.POLL_MESSAGES.decode_reply(read_answer(client.take()))
    assert polled.messages_count == 1


def test_what_changed_while_it_waited_is_looked_at_again(node: Whole, client: Client) -> None:
    asking = node.client(client=700)
    node.disks[DATA].is_syncing = False
    assert poll(client, GROUP).messages_count == 2
    asking.post(frame_of_get(asking, GROUP))
    assert not asking.has_answer()
    client.ask(groups.DELETE_GROUP, groups.DeleteGroup("s", "t", "g"))
    node.disks[DATA].is_syncing = True
    node.tick()
    assert read_offset(asking.take()) is None


def test_a_partition_that_goes_away_meanwhile(node: Whole, client: Client) -> None:
    asking = node.client(client=700)
    node.disks[DATA].is_syncing = False
    assert poll(client).messages_count == 2
    asking.post(frame_of_get(asking))
    assert not asking.has_answer()
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    node.tick()
    with pytest.raises(RefusedError) as refused:
        read_answer(asking.take())
    assert refused.value.code == Code.PARTITION_NOT_FOUND
