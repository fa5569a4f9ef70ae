"""What few logins meet: a body of two meanings, a full table, a node that is cut off."""

from functools import partial

import pytest

from headrace.ports.host import StopWanted
from headrace.shard import metadata_group
from headrace.vsr.sessions import ClientTable
from headrace.wire.commands import session, streams, tokens, users
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason
from tests.shard.test_gone import begin_login, end_login
from tests.shard.test_not_done import create, is_over, make_user, told, with_anna
from tests.shard.trio import Trio
from tests.shard.whole import ROOT, VERSION, Client, Whole, hold

# With it a login by token can be read as one by an empty password too: the shape does not travel.
AMBIGUOUS = "\0" * 256


def login_frame(client: Client, user: str, password: bytes) -> bytes:
    login = session.Register(VERSION, password=session.PasswordLogin(user, password))
    return client.make_frame(session.LOGIN_PASSWORD, login)


def token_frame(client: Client, token: str, context: str = "") -> bytes:
    login = session.Register(VERSION, token=session.TokenLogin(token.encode(), context))
    return client.make_frame(session.LOGIN_PASSWORD, login)


# A token that may be a name and a password.


def test_a_body_that_is_no_password_is_tried_as_a_token() -> None:
    node = Whole()
    token = node.client().ask(tokens.CREATE_TOKEN, tokens.CreateToken("tok", 0)).token
    client = Client(node, 700)
    node.is_verifying = False
    client.post(token_frame(client, token, AMBIGUOUS))
    assert len(node.unverified) == 1, "it is tried as a password first"
    node.is_verifying = True
    node.step(node.unverified.pop())
    end_login(client)
    client.ask(streams.CREATE_STREAM, streams.CreateStream("by token"))


def test_a_body_that_is_neither_names_no_secret_in_the_audit_log() -> None:
    node = Whole()
    client = Client(node, 700)
    answer = client.send_frame(token_frame(client, "no such token", AMBIGUOUS))
    assert told(answer) == EvictionReason.INVALID_CREDENTIALS
    assert "no such token" not in repr(node.audited[-1])
    assert node.audited[-1].outcome == "wrong credentials"


# One login at a time, of a protocol that is known.


def test_a_connection_logs_in_once_at_a_time() -> None:
    node = Whole()
    client = Client(node, 700)
    node.is_verifying = False
    client.post(login_frame(client, *ROOT))
    assert told(client.send_frame(login_frame(client, *ROOT))) == Code.TRANSIENT_NOT_COMMITTED
    assert len(node.unverified) == 1
    node.step(node.unverified.pop())
    end_login(client)


def test_a_client_of_another_protocol_is_told_so() -> None:
    client = Client(Whole(), 700)
    version = session.ClientVersion(9 << 24, "tests", "0.1.0")
    login = session.Register(version, password=session.PasswordLogin(*ROOT))
    answer = client.send_frame(client.make_frame(session.LOGIN_PASSWORD, login))
    assert told(answer) == EvictionReason.INCOMPATIBLE_PROTOCOL


def test_a_node_that_has_stopped_orders_nothing_for_clients_that_leave() -> None:
    node = Whole()
    client = node.client(client=7)
    node.step(StopWanted())
    assert node.shard.is_stopped
    head = node.shard.metadata.replica.op
    client.close()
    node.tick(200)
    assert node.shard.metadata.replica.op == head
    node.end()
    node.start()
    assert not node.shard.metadata.sessions.is_connected(7)


# A change of a password.


def change(client: Client, before: bytes, after: bytes) -> None:
    request = users.ChangePassword("anna", before, after)
    client.post(client.make_frame(users.CHANGE_PASSWORD, request))


def hash_of_anna(node: Whole) -> str:
    found = node.shard.metadata.state.users.find("anna")
    assert found is not None
    return found.password_hash


def test_of_two_changes_of_one_password_the_second_is_refused_and_ends_nothing() -> None:
    """Both knew the password when they asked, and only one of them knows it by now."""
    node = Whole()
    root, anna = with_anna(node)
    go_on = hold(node)
    change(anna, b"secret", b"first")
    change(root, b"secret", b"second")
    go_on()
    assert told(anna.take()) is None
    assert told(root.take()) == Code.INVALID_CREDENTIALS
    assert hash_of_anna(node) == "hash of first"
    assert not is_over(anna)
    assert told(anna.send_frame(create(anna))) is None


def test_a_password_is_changed_though_who_asked_is_gone() -> None:
    node = Whole()
    _, anna = with_anna(node)
    other = node.client(("anna", b"secret"), client=501)
    go_on = hold(node)
    change(anna, b"secret", b"another")
    anna.close()
    assert hash_of_anna(node) == "hash of secret"
    go_on()
    assert hash_of_anna(node) == "hash of another"
    assert told(other.take()) == EvictionReason.NO_SESSION
    assert is_over(other)


def test_a_stronger_hash_of_one_user_is_nothing_to_the_login_of_another() -> None:
    node = Whole()
    root, _ = with_anna(node)
    root.ask(users.CREATE_USER, make_user("bert"))
    late = Client(node, 700)
    node.is_verifying = False
    late.post(login_frame(late, *ROOT))
    node.is_verifying = node.is_strengthening = True
    node.client(("anna", b"secret"), client=701)
    assert hash_of_anna(node) == "strong hash of secret"
    node.step(node.unverified.pop())
    end_login(late)
    late.ask(streams.CREATE_STREAM, streams.CreateStream("of root"))


# Who logs in, and where.


def test_a_login_that_finds_no_room_in_the_table_may_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_group, "ClientTable", partial(ClientTable, 2))
    node = Whole()
    first, _ = node.client(client=7), node.client(client=8)
    late = Client(node, 9)
    assert told(late.send_frame(login_frame(late, *ROOT))) == Code.TRANSIENT_NOT_ACCEPTED
    assert node.shard.front.connections.of_client(9) is None
    first.close()
    late.login(*ROOT)


def test_a_second_login_of_a_client_that_goes_away_leaves_the_first_connected() -> None:
    node = Whole()
    first, second = node.client(client=7), Client(node, 7)
    go_on = hold(node)
    begin_login(second)
    second.close()
    session_before = node.shard.metadata.sessions.session_of(7, 0)
    go_on()
    assert node.shard.metadata.sessions.session_of(7, 0) > session_before
    node.tick(200)
    assert node.shard.metadata.sessions.is_connected(7)
    assert node.shard.front.connections.of_client(7) is not None
    first.close()
    node.tick(200)
    assert not node.shard.metadata.sessions.is_connected(7)


def test_a_node_that_is_cut_off_does_not_call_a_token_wrong() -> None:
    trio = Trio()
    node = trio.nodes[0]
    answers = []
    for ticks_alone in (0, 260):  # A lease is good for 250.
        node.tick(ticks_alone)
        is_current = node.shard.metadata.is_current
        client = Client(node, 900)
        client.post(token_frame(client, "no such token"))
        answers.append((is_current, told(client.take())))
    assert answers == [
        (True, EvictionReason.INVALID_TOKEN),
        (False, Code.TRANSIENT_NOT_ACCEPTED),
    ]
