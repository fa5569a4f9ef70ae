"""A full disk with full journals: what makes room still finds a place in them (O2.10)."""

from collections.abc import Callable

import pytest

from headrace.base.limits import GIB, KIB, MIB
from headrace.wire.commands import clients, groups, messages, session, streams, topics
from headrace.wire.commands.clock import ACCEPT_TIME
from headrace.wire.errors import Code, RefusedError
from headrace.wire.fields import FieldKind, make_field
from headrace.wire.identifiers import Consumer, First
from headrace.wire.numbers import ConsumerKind
from headrace.wire.options import Options, make_options
from headrace.wire.replies import read_answer
from headrace.wire.topic_options import UNLIMITED
from tests.shard.whole import ROOT, VERSION, Client, Whole

METADATA, DATA = 0, 1
NO_SPACE = Code.CANNOT_APPEND_MESSAGE
BATCH = [bytes(30_000)]
SLOW = Consumer(ConsumerKind.GROUP, "slow")


def is_refused(client: Client, frame: bytes | bytearray) -> bool:
    """Ask; whether it is refused for want of space. The answer comes in a few ticks."""
    client.post(frame)
    for _ in range(3):
        if not client.has_answer():
            client.node.tick()
    try:
        read_answer(client.take())
    except RefusedError as refusal:
        if refusal.code != NO_SPACE:
            raise
        return True
    return False


def fill(client: Client, make: Callable[[int], bytes | bytearray]) -> None:
    """Ask for something, larger at first and then smaller, until nothing fits any more."""
    for size in (10_000, 500, 1):
        for _ in range(20_000):
            if is_refused(client, make(size)):
                break
        else:
            raise AssertionError("the journal is never full")


def full_node(*, is_metadata_full: bool, is_held: bool = False) -> tuple[Whole, Client]:
    """Give a node whose disk and journals are full, with sealed segments.

    `is_held`: of a group that has read nothing but the first message.
    """
    node = Whole(
        journal_bytes=512 * KIB,
        segment_bytes_max=MIB,
        retained_bytes_max=MIB,
        tail_bytes_max=4096,
        retention_ticks=50,
    )
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "other"))
    for _ in range(100):
        client.send("s", "t", BATCH)
        node.tick()
    if is_held:
        client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "slow"))
        request = messages.StoreOffset(
            consumer=SLOW, stream="s", topic="t", partition_id=0, offset=0
        )
        client.ask(messages.STORE_OFFSET, request)
    node.tick(100)
    assert len(node.segments.logs) >= 3
    node.segments.is_full = node.disks[DATA].is_full = node.disks[METADATA].is_full = True
    fill(client, lambda size: client.send_frame_of("s", "t", [bytes(size)]))
    fill(client, lambda size: client.send_frame_of("s", "other", [bytes(size)]))
    if is_metadata_full:
        fill(client, lambda size: create_stream(client, size))
        assert is_refused(client, create_stream(client, 0))
    assert is_refused(client, client.send_frame_of("s", "t", [b"x"]))
    return node, client


def create_stream(client: Client, size: int) -> bytes:
    name = f"{client.number:08}" + "n" * min(size, 200)
    return client.make_frame(streams.CREATE_STREAM, streams.CreateStream(name))


def purge(client: Client) -> bytes:
    return client.make_frame(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t"))


def delete_segments(client: Client) -> bytes:
    return client.make_frame(topics.DELETE_SEGMENTS, topics.DeleteSegments("s", "t", 0, 2))


def option(key: str, value: int) -> Options:
    return make_options({key: make_field(value, FieldKind.UINT64)})


def shorten_expiry(client: Client) -> bytes:
    options = option("message_expiry", 1_000_000)
    return client.make_frame(topics.UPDATE_TOPIC, topics.UpdateTopic("s", "t", "t", options))


def shrink(client: Client) -> bytes:
    options = option("max_topic_size", 2 * GIB)
    return client.make_frame(topics.UPDATE_TOPIC, topics.UpdateTopic("s", "t", "t", options))


def delete_topic(client: Client) -> bytes:
    return client.make_frame(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))


@pytest.mark.parametrize("is_metadata_full", [False, True])
@pytest.mark.parametrize("make", [purge, delete_segments, shorten_expiry, shrink, delete_topic])
def test_what_makes_room_finds_a_place_and_sends_go_on(
    make: Callable[[Client], bytes], is_metadata_full: bool
) -> None:
    node, client = full_node(is_metadata_full=is_metadata_full)
    files = len(node.segments.logs)
    assert not is_refused(client, make(client))
    node.tick(110)  # A shorter expiry waits for the next pass of retention.
    assert len(node.segments.logs) < files
    # The files that are gone have made space.
    node.segments.is_full = node.disks[DATA].is_full = node.disks[METADATA].is_full = False
    node.tick(250)
    assert not is_refused(client, client.send_frame_of("s", "other", [b"again"]))
    assert not is_refused(client, create_stream(client, 0))
    node.crash(is_power_cut=True)
    node.client(client=77).send("s", "other", [b"and after a start"])


@pytest.mark.parametrize(
    "options",
    [
        make_options({}),
        option("message_expiry", UNLIMITED),
        option("max_topic_size", UNLIMITED),
        make_options({"retention_consumers": "respect"}),
    ],
)
def test_a_change_that_keeps_as_much_leaves_the_reserve(options: Options) -> None:
    _, client = full_node(is_metadata_full=True)
    update = topics.UpdateTopic("s", "t", "renamed", options)
    assert is_refused(client, client.make_frame(topics.UPDATE_TOPIC, update))


def delete_offset(client: Client) -> bytes:
    request = messages.DeleteOffset(consumer=SLOW, stream="s", topic="t", partition_id=0)
    return client.make_frame(messages.DELETE_OFFSET, request)


def delete_group(client: Client) -> bytes:
    return client.make_frame(groups.DELETE_GROUP, groups.DeleteGroup("s", "t", "slow"))


def ignore_consumers(client: Client) -> bytes:
    options = make_options({"retention_consumers": "ignore"})
    return client.make_frame(topics.UPDATE_TOPIC, topics.UpdateTopic("s", "t", "t", options))


@pytest.mark.parametrize("make", [delete_offset, delete_group, ignore_consumers])
def test_what_a_consumer_keeps_can_be_freed_on_a_full_disk(
    make: Callable[[Client], bytes],
) -> None:
    """O3.4: retention waits for the group, and the ways out find room in the journals."""
    node, client = full_node(is_metadata_full=True, is_held=True)
    files = len(node.segments.logs)
    assert not is_refused(client, shorten_expiry(client))
    node.tick(110)
    assert len(node.segments.logs) == files
    assert not is_refused(client, make(client))
    node.tick(110)
    assert len(node.segments.logs) < files


def test_a_newcomer_gets_in_and_makes_room() -> None:
    node, _ = full_node(is_metadata_full=True)
    files = len(node.segments.logs)
    newcomer = node.client(client=9000)
    assert not is_refused(newcomer, purge(newcomer))
    node.tick(10)
    assert len(node.segments.logs) < files


def test_logins_leave_room_for_what_makes_room() -> None:
    node, client = full_node(is_metadata_full=True)
    for number in range(2_000):
        newcomer = Client(node, 9000 + number)
        request = session.Register(VERSION, password=session.PasswordLogin(*ROOT))
        if is_refused(newcomer, newcomer.make_frame(session.LOGIN_PASSWORD, request, 0)):
            break
    else:
        raise AssertionError("logins fill the reserve")
    assert not is_refused(client, purge(client))


def test_sessions_end_though_the_journal_is_full() -> None:
    node, client = full_node(is_metadata_full=True)
    assert not is_refused(client, client.make_frame(session.LOGOUT, None))
    assert not node.shard.metadata.sessions.is_connected(client.client)


def test_lost_connections_leave_their_groups_though_the_journal_is_full() -> None:
    node, client = full_node(is_metadata_full=True)
    assert node.shard.metadata.sessions.is_connected(client.client)
    client.close()
    node.tick(2)
    assert not node.shard.metadata.sessions.is_connected(client.client)


def test_without_space_polls_and_lists_are_answered() -> None:
    _, client = full_node(is_metadata_full=True)
    poll = messages.PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 1),
        stream="s",
        topic="t",
        partition_id=0,
        strategy=First(),
        count=10,
        auto_commit=False,
    )
    assert client.ask(messages.POLL_MESSAGES, poll).messages_count > 0
    assert client.ask(clients.GET_CLIENTS)


def test_a_leap_can_be_accepted_on_a_full_disk() -> None:
    """What has expired while the node was down makes room, once its operator says so (CK1)."""
    node, client = full_node(is_metadata_full=True)
    node.clock_ahead = 86_400_000_000
    node.tick(5)
    assert not is_refused(client, client.make_frame(ACCEPT_TIME, None))
    node.tick(5)
    assert node.shard.clock.time.lead == 0
