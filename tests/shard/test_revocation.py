"""Logins that fail, and sessions that end because what they rest on has changed (SE-1 to SE-5)."""

import msgspec
import pytest

from headrace.base.limits import MIB
from headrace.shard.front.answers import DEADLINE_TICKS
from headrace.shard.logins.revocation import ENDED
from headrace.wire.commands import groups, messages, streams, tokens, topics, users
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    LOGOUT,
    PasswordLogin,
    Register,
    TokenLogin,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.identifiers import Consumer, First, Next
from headrace.wire.numbers import ConsumerKind, UserStatus
from headrace.wire.permissions import GlobalPermissions, Permissions
from headrace.wire.replies import REPLY, read_answer
from tests.shard.whole import ROOT, VERSION, Client, Whole

ELSEWHERE = "192.0.2.1:4000"
EVERYTHING = Permissions(everywhere=GlobalPermissions(send_messages=True, poll_messages=True))
POLL = messages.PollMessages(
    consumer=Consumer(ConsumerKind.CONSUMER, 1),
    stream="s",
    topic="t",
    partition_id=0,
    strategy=First(),
    count=10,
    auto_commit=False,
)


def with_anna(node: Whole) -> tuple[Client, Client]:
    """Give root, and another user who may send and poll."""
    root = node.client()
    root.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    root.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    root.ask(users.CREATE_USER, make_user("anna"))
    return root, node.client(("anna", b"secret"), client=500)


def make_user(username: str) -> users.CreateUser:
    return users.CreateUser(
        username=username, password=b"secret", status=UserStatus.ACTIVE, permissions=EVERYTHING
    )


def evicted(client: Client) -> EvictionReason | None:
    """Give why a client was evicted without having asked."""
    with pytest.raises(EvictedError) as caught:
        read_answer(client.take())
    return caught.value.reason


def assert_ended(client: Client) -> None:
    assert evicted(client) == EvictionReason.NO_SESSION
    assert (client.connection, ENDED) in client.node.closed
    assert client.node.shard.front.connections.of_client(client.client) is None


# Sessions.


@pytest.mark.parametrize(
    ("command", "request_"),
    [
        (users.DELETE_USER, users.DeleteUser("anna")),
        (users.UPDATE_USER, users.UpdateUser(user="anna", status=UserStatus.INACTIVE)),
        (users.CHANGE_PASSWORD, users.ChangePassword("anna", b"secret", b"another")),
    ],
    ids=["deleted", "disabled", "password changed"],
)
def test_a_session_ends_with_what_it_rests_on(command: object, request_: object) -> None:
    node = Whole()
    root, anna = with_anna(node)
    root.ask(command, request_)  # type: ignore[arg-type]
    assert_ended(anna)
    root.send("s", "t", [b"root goes on"])


def test_who_changes_the_own_password_goes_on_and_the_others_end() -> None:
    node = Whole()
    _, anna = with_anna(node)
    other = node.client(("anna", b"secret"), client=501)
    anna.ask(users.CHANGE_PASSWORD, users.ChangePassword("anna", b"secret", b"another"))
    assert_ended(other)
    anna.send("s", "t", [b"still here"])


def test_another_name_or_other_permissions_end_nothing() -> None:
    node = Whole()
    root, anna = with_anna(node)
    root.ask(users.UPDATE_USER, users.UpdateUser(user="anna", username="anne"))
    anna.send("s", "t", [b"x"])
    root.ask(users.UPDATE_PERMISSIONS, users.UpdatePermissions("anne", None))
    with pytest.raises(RefusedError, match=str(int(Code.UNAUTHORIZED))):
        anna.send("s", "t", [b"no more"])
    with pytest.raises(RefusedError, match=str(int(Code.UNAUTHORIZED))):
        anna.ask(messages.POLL_MESSAGES, POLL)
    root.ask(users.UPDATE_PERMISSIONS, users.UpdatePermissions("anne", EVERYTHING))
    anna.send("s", "t", [b"again"])


def test_a_revoked_token_ends_its_own_sessions_alone() -> None:
    node = Whole()
    _, anna = with_anna(node)
    made = {
        name: anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken(name, 0)).token
        for name in ("one", "two")
    }
    first, second = Client(node, 601), Client(node, 602)
    first.login_by_token(made["one"])
    second.login_by_token(made["two"])
    anna.ask(tokens.DELETE_TOKEN, tokens.DeleteToken("one"))
    assert_ended(first)
    second.send("s", "t", [b"x"])
    anna.send("s", "t", [b"x"])
    with pytest.raises(EvictedError):
        Client(node, 603).login_by_token(made["one"])


def test_a_token_that_expires_ends_its_sessions_within_a_second() -> None:
    node = Whole()
    _, anna = with_anna(node)
    made = anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("short", 5_000_000)).token
    client = Client(node, 601)
    client.login_by_token(made)
    node.tick(350)
    client.send("s", "t", [b"x"])
    node.tick(250)
    assert_ended(client)
    anna.send("s", "t", [b"x"])


def test_a_number_that_is_used_again_brings_no_session_back() -> None:
    """SE-5: the user is deleted and another one gets its number, all in one turn."""
    node = Whole()
    root, anna = with_anna(node)
    delete = root.make_frame(users.DELETE_USER, users.DeleteUser("anna"))
    root.post(delete)
    root.take()
    made = root.ask(users.CREATE_USER, make_user("bert"))
    assert made.user.id == 1
    assert_ended(anna)
    with pytest.raises(EvictedError):
        Client(node, 500).login("anna", b"secret")


def test_what_was_on_its_way_is_not_done_for_the_next_user_of_the_number() -> None:
    """SE-5: three requests in one turn, ordered before any of them is applied."""
    node = Whole()
    root, anna = with_anna(node)
    second = node.client(client=400)
    delete = root.make_frame(users.DELETE_USER, users.DeleteUser("anna"))
    create = second.make_frame(users.CREATE_USER, make_user("bert"))
    token = anna.make_frame(tokens.DELETE_TOKEN, tokens.DeleteToken("none"))
    node.is_syncing = False
    root.post(delete)
    second.post(create)
    anna.post(token)
    node.is_syncing = True
    node.tick()
    assert node.shard.metadata.state.users.find(1).name == "bert"  # type: ignore[union-attr]
    refused = read_refusal(anna.take())
    assert refused in (Code.UNAUTHORIZED, EvictionReason.NO_SESSION)


def read_refusal(frame: bytes) -> Code | EvictionReason | None:
    try:
        read_answer(frame)
    except RefusedError as error:
        return error.code
    except EvictedError as error:
        return error.reason
    return None


def test_a_login_that_was_overtaken_gets_no_session() -> None:
    """The password is right when it is compared, and changed before the session is there."""
    node = Whole()
    root, _ = with_anna(node)
    late = Client(node, 700)
    register = Register(VERSION, password=PasswordLogin("anna", b"secret"))
    node.is_syncing = False
    change = users.ChangePassword("anna", b"secret", b"another")
    root.post(root.make_frame(users.CHANGE_PASSWORD, change))
    late.post(late.make_frame(LOGIN_PASSWORD, register))
    node.is_syncing = True
    node.tick()
    assert evicted(late) == EvictionReason.NO_SESSION
    assert node.shard.marks.counts["login.overtaken"] == 1


def test_a_poll_that_waits_for_the_disk_is_asked_again() -> None:
    node = Whole(tail_bytes_max=1)
    root, anna = with_anna(node)
    root.send("s", "t", [b"x" * 2000])
    node.tick(10)
    node.is_reading_segments = False
    anna.post(anna.make_frame(messages.POLL_MESSAGES, POLL))
    root.ask(users.UPDATE_PERMISSIONS, users.UpdatePermissions("anna", None))
    node.is_reading_segments = True
    node.tick()
    assert REPLY.decode(anna.take()).status == Code.UNAUTHORIZED


@pytest.mark.parametrize("is_parked", [False, True])
def test_a_poll_that_waits_is_not_served_once_the_partition_is_dealt_to_another(
    is_parked: bool,
) -> None:
    """CG-14: not when the disk answers, nor when the offset before it is stored."""
    node = Whole(tail_bytes_max=MIB if is_parked else 1)
    client, other = node.client(), node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    for member in (client, other):
        member.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    for _ in range(2):
        client.send("s", "t", [b"x" * 2000])
    node.tick(10)
    poll = msgspec.structs.replace(
        POLL,
        consumer=Consumer(ConsumerKind.GROUP, "g"),
        strategy=Next(),
        count=1,
        auto_commit=True,
    )
    frame = client.make_frame(messages.POLL_MESSAGES, poll)
    node.is_reading_segments = node.is_syncing = False
    leave = client.make_frame(groups.LEAVE_GROUP, groups.LeaveGroup("s", "t", "g"))
    client.post(*[frame] * (1 + is_parked), leave)
    node.is_syncing = True
    node.tick()
    node.is_reading_segments = True
    node.tick()
    polled = [
        messages.POLL_MESSAGES.decode_reply(read_answer(answer))
        for answer in node.inbox[client.connection]
        if REPLY.decode(answer).operation == messages.POLL_MESSAGES.operation
    ]
    assert [each.messages_count for each in polled] == [1, 0][not is_parked :]
    assert polled[-1].partition_id == messages.RESYNC_PARTITION


def test_only_who_holds_a_session_is_trusted() -> None:
    node = Whole()
    first = node.client(client=9)
    assert node.trusted[first.connection]
    second = node.client(client=9)  # takes the session over
    assert not node.trusted[first.connection]
    assert node.trusted[second.connection]
    second.ask(LOGOUT)
    assert not node.trusted[second.connection]


# Hashes.


def test_a_weak_hash_is_made_strong_by_a_login_and_ends_no_session() -> None:
    """SE-1, also for logins that were under way when the first one changed the hash."""
    node = Whole()
    root, anna = with_anna(node)
    node.is_strengthening = True
    node.is_verifying = False
    late = Client(node, 700)
    register = Register(VERSION, password=PasswordLogin("anna", b"secret"))
    late.post(late.make_frame(LOGIN_PASSWORD, register))
    node.is_verifying = True
    assert node.shard.metadata.state.users.find("anna").password_hash == "hash of secret"  # type: ignore[union-attr]
    node.client(("anna", b"secret"), client=701)
    assert node.shard.metadata.state.users.find("anna").password_hash == "strong hash of secret"  # type: ignore[union-attr]
    node.step(node.unverified.pop())
    assert read_refusal(late.take()) is None
    anna.send("s", "t", [b"still here"])
    root.send("s", "t", [b"still here"])
    node.crash()
    node.client(("anna", b"secret"), client=702)


# Lockout.


def test_after_five_failures_even_the_right_password_waits() -> None:
    node = Whole()
    with_anna(node)
    for number in range(5):
        with pytest.raises(EvictedError):
            Client(node, 600 + number, ELSEWHERE).login("anna", b"wrong")
    with pytest.raises(RefusedError, match=str(int(Code.TRANSIENT_NOT_ACCEPTED))):
        Client(node, 610, ELSEWHERE).login("anna", b"secret")
    with pytest.raises(RefusedError):
        Client(node, 611).login("anna", b"secret")
    assert node.shard.marks.counts["login.paused"] == 2
    node.client(client=612)  # root, from loopback
    node.tick(101)
    Client(node, 613, ELSEWHERE).login("anna", b"secret")


def test_a_user_who_does_not_exist_waits_as_well() -> None:
    node = Whole()
    for number in range(5):
        with pytest.raises(EvictedError) as caught:
            Client(node, 600 + number).login("nobody", b"wrong")
        assert caught.value.reason == EvictionReason.INVALID_CREDENTIALS
    with pytest.raises(RefusedError, match=str(int(Code.TRANSIENT_NOT_ACCEPTED))):
        Client(node, 610).login("nobody", b"wrong")


def test_of_guesses_that_come_at_once_only_five_are_answered() -> None:
    node = Whole()
    with_anna(node)
    node.is_verifying = False
    guesses = [b"wrong"] * 8 + [b"secret"]
    clients = [Client(node, 600 + number, ELSEWHERE) for number in range(len(guesses))]
    for client, guess in zip(clients, guesses, strict=True):
        register = Register(VERSION, password=PasswordLogin("anna", guess))
        client.post(client.make_frame(LOGIN_PASSWORD, register))
    for event in node.unverified:
        node.step(event)
    told = [read_refusal(client.take()) for client in clients]
    assert told == [EvictionReason.INVALID_CREDENTIALS] * 5 + [Code.TRANSIENT_NOT_ACCEPTED] * 4


def test_a_session_cannot_guess_by_changing_passwords() -> None:
    node = Whole()
    _, anna = with_anna(node)
    guess = users.ChangePassword("anna", b"wrong", b"another")
    for _ in range(5):
        with pytest.raises(RefusedError, match=str(int(Code.INVALID_CREDENTIALS))):
            anna.ask(users.CHANGE_PASSWORD, guess)
    with pytest.raises(RefusedError, match=str(int(Code.TRANSIENT_NOT_ACCEPTED))):
        anna.ask(users.CHANGE_PASSWORD, guess)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_session_rests_on_its_own_login_whatever_else_the_connection_tries(
    is_taken: bool,
) -> None:
    """A second login while the first is ordered would leave what the session rests on in doubt.

    It would take the connection over, or be refused because its client id is another user's: then
    the session of the first user was not ended when that user was deleted.
    """
    node = Whole()
    root, anna = with_anna(node)
    root.ask(users.CREATE_USER, make_user("bob"))
    token = anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("token", 0)).token
    both = Client(node, 501)
    by_token = both.make_frame(LOGIN_PASSWORD, Register(VERSION, token=TokenLogin(token.encode())))
    both.client = root.client if is_taken else 502
    by_password = both.make_frame(
        LOGIN_PASSWORD, Register(VERSION, password=PasswordLogin("bob", b"secret"))
    )
    node.is_verifying = False
    both.post(by_token, by_password)
    assert read_refusal(both.take()) == Code.TRANSIENT_NOT_COMMITTED
    assert read_refusal(both.take()) is None
    assert not node.unverified, "no password is compared for a connection that logs in already"
    found = node.shard.front.connections.of_client(501)
    anna_id = node.shard.metadata.state.users.find("anna").id  # type: ignore[union-attr]
    assert found is not None
    assert found.credential is not None
    assert found.user_id == found.credential.user_id == anna_id
    assert not node.shard.metadata.sessions.is_connected(502)
    root.ask(users.DELETE_USER, users.DeleteUser("anna"))
    assert node.shard.front.connections.of_client(501) is None
    assert evicted(both) == EvictionReason.STALE_CLIENT  # One of its logins is in doubt.


def test_a_login_whose_deadline_has_passed_makes_way_for_the_next() -> None:
    node = Whole()
    client = Client(node, 700)
    register = Register(VERSION, password=PasswordLogin(*ROOT))
    node.is_verifying = False
    client.post(client.make_frame(LOGIN_PASSWORD, register))
    node.tick(DEADLINE_TICKS + 1)
    assert read_refusal(client.take()) == Code.TRANSIENT_NOT_ACCEPTED
    node.is_verifying = True
    client.login(*ROOT)
    node.step(node.unverified.pop())  # The hasher's answer to the first comes late.
    assert not client.has_answer()
    node.shard.check()
