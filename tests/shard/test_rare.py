"""What few requests meet in a shard: its bounds, and answers for which nobody waits."""

import pytest

from headrace.ports.credentials import CredentialsBusy
from headrace.shard.consensus import neighbours
from headrace.shard.front import connections as module
from headrace.shard.front import polls
from headrace.shard.front.answers import DEADLINE_TICKS
from headrace.shard.front.connections import Connections
from headrace.shard.front.credential import Credential
from headrace.wire.commands import messages, session, streams, tokens, topics, users
from headrace.wire.errors import Code, DecodeError, RefusedError
from headrace.wire.identifiers import Balanced, Consumer, First
from headrace.wire.numbers import ConsumerKind, Transport, UserStatus
from headrace.wire.replica.heartbeats import GroupBeat
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request
from tests.shard.trio import Trio
from tests.shard.whole import ROOT, VERSION, Client, Whole

NEW_USER = users.CreateUser(username="anna", password=b"secret", status=UserStatus.ACTIVE)


def with_topic(node: Whole) -> Client:
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    return client


def refusal_of(client: Client) -> Code:
    with pytest.raises(RefusedError) as caught:
        read_answer(client.take())
    return caught.value.code


# A busy credential hasher.


def make_busy(node: Whole) -> None:
    node.step(CredentialsBusy(node.unverified.pop().token))


def test_a_login_is_refused_while_the_hasher_is_busy() -> None:
    node = Whole()
    node.is_verifying = False
    client = Client(node, 7)
    request = session.Register(VERSION, password=session.PasswordLogin(*ROOT))
    client.post(client.make_frame(session.LOGIN_PASSWORD, request))
    make_busy(node)
    assert refusal_of(client) == Code.TRANSIENT_NOT_ACCEPTED
    assert node.shard.is_idle


def test_a_login_that_is_gone_is_not_refused() -> None:
    node = Whole()
    node.is_verifying = False
    client = Client(node, 7)
    request = session.Register(VERSION, password=session.PasswordLogin(*ROOT))
    client.post(client.make_frame(session.LOGIN_PASSWORD, request))
    client.close()
    make_busy(node)
    assert not client.has_answer()


def test_a_new_user_is_refused_while_the_hasher_is_busy() -> None:
    node = Whole()
    client = node.client()
    node.is_verifying = False
    client.post(client.make_frame(users.CREATE_USER, NEW_USER))
    make_busy(node)
    assert refusal_of(client) == Code.TRANSIENT_NOT_ACCEPTED
    assert node.shard.is_idle


# Requests that name nothing, or are cut off.


def test_a_flush_of_a_partition_that_is_not_there() -> None:
    client = with_topic(Whole())
    request = topics.FlushUnsavedBuffer("s", "t", 9, fsync=True)
    client.post(client.make_frame(topics.FLUSH_UNSAVED_BUFFER, request))
    assert refusal_of(client) == Code.PARTITION_NOT_FOUND


def test_a_send_without_a_routing() -> None:
    client = with_topic(Whole())
    send = messages.SEND_MESSAGES.operation
    header = encode_request(
        send, b"xx", client=client.client, session=client.session, request=9, code=0
    )
    client.post(header + b"xx")
    assert refusal_of(client) == Code.INVALID_COMMAND


def test_a_routing_that_is_longer_than_what_it_holds() -> None:
    client = with_topic(Whole())
    frame = bytes(client.send_frame_of("s", "t", [b"one"]))
    body = frame[256:]
    routing_bytes = int.from_bytes(body[:4], "little")
    longer = (routing_bytes + 1).to_bytes(4, "little") + body[4 : 4 + routing_bytes] + b"\0"
    with pytest.raises(DecodeError, match="used"):
        messages.SEND_MESSAGES.decode_request(memoryview(longer + body[4 + routing_bytes :]))


# Bounds.


def test_polls_of_the_disk_are_bounded() -> None:
    client = with_topic(Whole(disk_polls_max=0))
    consumer = Consumer(ConsumerKind.CONSUMER, 1)
    request = messages.PollMessages(
        consumer=consumer,
        stream="s",
        topic="t",
        partition_id=0,
        strategy=First(),
        count=1,
        auto_commit=False,
    )
    client.post(client.make_frame(messages.POLL_MESSAGES, request))
    assert refusal_of(client) == Code.TRANSIENT_NOT_ACCEPTED


def test_what_was_said_of_damage_is_forgotten_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "_DAMAGES_MAX", 1)
    node = Whole()
    with_topic(node)
    local = next(iter(node.shard.partitions.locals.values()))
    for first in (1, 1, 2, 1):
        facts = {"first_offset": first, "last_offset": first, "what": "wrong bytes"}
        error = RefusedError(Code.CANNOT_READ_MESSAGE, **facts)
        node.shard.front.polls._note_damage(local, error)
    assert [finding.text[:12] for finding in node.shard.take_findings()] == [
        "offsets 1 to",
        "offsets 2 to",
        "offsets 1 to",
    ]


def test_the_addresses_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADDRESSES_MAX", 2)
    connections = Connections()
    for number in (1, 2, 3):
        opened = connections.open(number, Transport.TCP, f"10.0.0.{number}:1", 0)
        credential = Credential(0, 0, "hash")
        connections.bind(opened, client=number, credential=credential, session=number)
    connections.check(0)
    assert [connections.address_of(number) for number in (1, 2, 3)] == [
        "",
        "10.0.0.2:1",
        "10.0.0.3:1",
    ]


def test_only_a_bound_connection_can_be_answered_for() -> None:
    connections = Connections()
    connections.open(1, Transport.TCP, "10.0.0.1:1", 0)
    for number in (1, 2):
        with pytest.raises(RefusedError) as caught:
            connections.bound(number)
        assert caught.value.code == Code.UNAUTHENTICATED


def test_what_is_heard_of_groups_that_are_not_here_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbours, "_UNHEARD_GROUPS_MAX", 2)
    heard = Trio().nodes[0].shard.data_plane._neighbours
    for group in (101, 102, 103):
        heard._keep(1, GroupBeat(group, view=1, commit=0, is_declined=False))
    heard.check()
    assert list(heard._unheard) == [102, 103]


# Answers that nobody waits for.


def test_a_request_that_is_answered_does_not_go_on() -> None:
    node = Whole()
    node.client()
    answers = node.shard.front.answers
    answered = answers.next_ticket - 1
    answers.resume(answered, lambda: pytest.fail("nobody waits"))
    answers.refuse_waiting(answered, Code.TRANSIENT_NOT_ACCEPTED)
    assert node.shard.start() == []


def test_a_logout_in_the_name_of_another_client_ends_no_session() -> None:
    node = Whole()
    anna, other = node.client(client=7), node.client(client=8)
    frame = encode_request(
        session.LOGOUT.operation,
        b"",
        client=anna.client,
        session=anna.session,
        request=9,
        code=session.LOGOUT.code,
    )
    read_answer(other.send_frame(frame))
    assert node.shard.metadata.sessions.is_connected(anna.client)
    for client in (anna, other):
        client.ask(streams.CREATE_STREAM, streams.CreateStream(f"of {client.client}"))


# What is remembered goes with what it is about.


def test_the_turns_of_balanced_sends_go_with_their_topic() -> None:
    node = Whole()
    client = with_topic(node)
    turns = node.shard.front.sends._turns
    for name in ("one", "two"):
        client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 2, name))
    found = [client.send("s", "one", [b"x"], to=Balanced()).partition_id for _ in range(3)]
    assert found == [0, 1, 0]
    client.send("s", "two", [b"x"], to=Balanced())
    assert len(turns) == 2
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "one"))
    client.send("s", "two", [b"x"], to=Balanced())
    assert list(turns.values()) == [2]
    client.ask(streams.DELETE_STREAM, streams.DeleteStream("s"))
    with_topic(node).send("s", "t", [b"x"], to=Balanced())
    assert list(turns.values()) == [1]


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_secret_of_a_token_is_forgotten_with_its_order(is_closed: bool) -> None:
    """Of an order that nobody hears of, nobody is told the secret."""
    node = Whole()
    client = node.client(client=7)
    secrets = node.shard._room.users._secrets
    node.is_syncing = False
    client.post(client.make_frame(tokens.CREATE_TOKEN, tokens.CreateToken("tok", 0)))
    assert len(secrets) == 1
    if is_closed:
        client.close()
    else:
        node.tick(DEADLINE_TICKS + 100)
        assert refusal_of(client) == Code.TRANSIENT_NOT_COMMITTED
    assert not secrets
    node.is_syncing = True
    node.tick()
    assert not secrets
