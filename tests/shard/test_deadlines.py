"""Every request is answered by its deadline, whatever it waits for and though that never comes."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from headrace.ports.network import RepliesWritten
from headrace.shard.front.answers import DEADLINE_TICKS
from headrace.wire.commands import messages, session, streams, system, tokens, topics, users
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer, First, Next
from headrace.wire.numbers import ConsumerKind, SnapshotCompression, SnapshotType, UserStatus
from headrace.wire.replies import read_answer
from tests.shard.whole import ROOT, VERSION, Client, Whole

METADATA, DATA = 0, 1


def stick_disk(store: int) -> Callable[[Whole], None]:
    def stick(node: Whole) -> None:
        node.disks[store].is_syncing = False

    return stick


def stick_secrets(node: Whole) -> None:
    node.is_verifying = False


def stick_segments(node: Whole) -> None:
    node.is_reading_segments = False


def stick_readers(node: Whole) -> None:
    node.step(RepliesWritten(0, 1 << 40))


def stick_host(node: Whole) -> None:
    node.is_archiving = False


def loosen(node: Whole) -> None:
    """Have everything answered that was held back."""
    node.is_verifying = node.is_reading_segments = node.is_archiving = True
    for disk in node.disks:
        disk.is_syncing = True
    node.step(RepliesWritten(0, 0))
    for event in [*node.unverified, *node.unmade]:
        node.step(event)
    node.tick(200)


def is_idle(node: Whole) -> bool:
    return node.shard.is_idle


def login(client: Client) -> bytes:
    password = session.PasswordLogin(*ROOT)
    return client.make_frame(
        session.LOGIN_PASSWORD, session.Register(VERSION, password=password), 0
    )


def create_user(client: Client) -> bytes:
    user = users.CreateUser(username="anna", password=b"secret", status=UserStatus.ACTIVE)
    return client.make_frame(users.CREATE_USER, user)


def change_password(client: Client) -> bytes:
    change = users.ChangePassword(ROOT[0], ROOT[1], b"another")
    return client.make_frame(users.CHANGE_PASSWORD, change)


def poll(client: Client, start: First | Next) -> bytes:
    request = messages.PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 1),
        stream="s",
        topic="t",
        partition_id=0,
        strategy=start,
        count=1,
        auto_commit=isinstance(start, Next),
    )
    return client.make_frame(messages.POLL_MESSAGES, request)


def poll_behind_commit(client: Client) -> bytes:
    """Poll once, so that the next poll waits for the offset of this one to be stored."""
    read_answer(client.send_frame(poll(client, Next())))
    return poll(client, Next())


def offset_behind_commit(client: Client) -> bytes:
    """Poll once, so that the question for the offset waits until this one is stored."""
    read_answer(client.send_frame(poll(client, Next())))
    consumer = Consumer(ConsumerKind.CONSUMER, 1)
    return client.make_frame(messages.GET_OFFSET, messages.GetOffset(consumer, "s", "t", 0))


def flush(client: Client) -> bytes:
    return client.make_frame(
        topics.FLUSH_UNSAVED_BUFFER, topics.FlushUnsavedBuffer("s", "t", 0, fsync=True)
    )


def store_offset(client: Client) -> bytes:
    consumer = Consumer(ConsumerKind.CONSUMER, 1)
    request = messages.StoreOffset(
        consumer=consumer, stream="s", topic="t", partition_id=0, offset=1
    )
    return client.make_frame(messages.STORE_OFFSET, request)


class Kind(NamedTuple):
    """One way to wait: what never comes, what is asked, and the answer at the deadline."""

    stick: Callable[[Whole], None]
    ask: Callable[[Client], bytes | bytearray]
    code: Code
    is_logged_in: bool = True


UNKNOWN, NOT_DONE = Code.TRANSIENT_NOT_COMMITTED, Code.TRANSIENT_NOT_ACCEPTED
KINDS = {
    "send": Kind(stick_disk(DATA), lambda c: c.send_frame_of("s", "t", [b"x"]), UNKNOWN),
    "store offset": Kind(stick_disk(DATA), store_offset, UNKNOWN),
    "create stream": Kind(
        stick_disk(METADATA),
        lambda c: c.make_frame(streams.CREATE_STREAM, streams.CreateStream("other")),
        UNKNOWN,
    ),
    "purge": Kind(
        stick_disk(DATA),
        lambda c: c.make_frame(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t")),
        UNKNOWN,
    ),
    "purge of a stream": Kind(
        stick_disk(DATA),
        lambda c: c.make_frame(streams.PURGE_STREAM, streams.PurgeStream("s")),
        UNKNOWN,
    ),
    "logout": Kind(stick_disk(METADATA), lambda c: c.make_frame(session.LOGOUT, None), UNKNOWN),
    "login: password": Kind(stick_secrets, login, NOT_DONE, is_logged_in=False),
    "login: session": Kind(stick_disk(METADATA), login, UNKNOWN, is_logged_in=False),
    "create user": Kind(stick_secrets, create_user, NOT_DONE),
    "change password": Kind(stick_secrets, change_password, NOT_DONE),
    "create token": Kind(
        stick_secrets,
        lambda c: c.make_frame(tokens.CREATE_TOKEN, tokens.CreateToken("mine", 0)),
        NOT_DONE,
    ),
    "poll: segments": Kind(stick_segments, lambda c: poll(c, First()), NOT_DONE),
    "get offset": Kind(stick_disk(DATA), offset_behind_commit, NOT_DONE),
    "poll: room": Kind(stick_readers, lambda c: poll(c, First()), NOT_DONE),
    "poll: next": Kind(stick_disk(DATA), poll_behind_commit, NOT_DONE),
    "flush": Kind(stick_segments, flush, UNKNOWN),
    "snapshot": Kind(
        stick_host,
        lambda c: c.make_frame(
            system.GET_SNAPSHOT,
            system.GetSnapshot(SnapshotCompression.STORED, (SnapshotType.TEST,)),
        ),
        NOT_DONE,
    ),
}


def make_node() -> tuple[Whole, Client]:
    """Give a node whose topic has messages that memory does not hold any more."""
    node = Whole(tail_bytes_max=4096)
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    for _ in range(10):
        client.send("s", "t", [bytes(2000)])
        node.tick(10)
    client.post(client.send_frame_of("s", "t", [b"unsaved"]))
    client.take()
    return node, client


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_never_comes_is_answered_at_the_deadline(kind: Kind) -> None:
    node, client = make_node()
    if not kind.is_logged_in:
        client = Client(node, 4000)
    kind.stick(node)
    client.post(kind.ask(client))
    node.tick(DEADLINE_TICKS - 1)
    assert not client.has_answer()
    assert not is_idle(node)
    node.tick(2)
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    assert refused.value.code == kind.code
    assert is_idle(node)
    loosen(node)
    assert not client.has_answer(), "a second answer"
    if not kind.is_logged_in:
        client.login(*ROOT)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_nobody_waits_on_a_connection_that_is_gone(kind: Kind) -> None:
    node, client = make_node()
    if not kind.is_logged_in:
        client = Client(node, 4000)
    kind.stick(node)
    client.post(kind.ask(client))
    assert not is_idle(node)
    client.close()
    assert is_idle(node)
    node.tick(DEADLINE_TICKS + 2)
    loosen(node)
    assert not client.has_answer()


def test_a_request_has_one_deadline_however_often_it_waits() -> None:
    """A password is compared, then hashed, then changed: together in one deadline."""
    node, client = make_node()
    stick_secrets(node)
    client.post(change_password(client))
    node.tick(DEADLINE_TICKS - 20)
    node.step(node.unverified.pop())
    assert len(node.unverified) == 1, "the new password is hashed now"
    node.tick(10)
    node.disks[METADATA].is_syncing = False
    node.step(node.unverified.pop())
    assert not client.has_answer()
    node.tick(11)
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    assert refused.value.code == UNKNOWN


def test_what_was_refused_at_its_deadline_is_not_done_later() -> None:
    node, client = make_node()
    stick_secrets(node)
    client.post(create_user(client))
    node.tick(DEADLINE_TICKS + 1)
    with pytest.raises(RefusedError):
        read_answer(client.take())
    loosen(node)
    assert [user.username for user in client.ask(users.GET_USERS)] == [ROOT[0]]
