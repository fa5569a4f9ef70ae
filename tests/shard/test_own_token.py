"""A session that deletes its own token stays for one thing: to log out, as `iggy logout` does."""

from headrace.wire.commands import tokens, users
from headrace.wire.commands.session import LOGIN_PASSWORD, LOGOUT, PasswordLogin, Register
from headrace.wire.commands.system import PING
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason
from tests.shard.test_not_done import create, is_over, poll, send, store, told, with_anna
from tests.shard.whole import VERSION, Client, Whole


def with_token(node: Whole) -> tuple[Client, Client]:
    """Give two clients of one token."""
    _, anna = with_anna(node)
    token = anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("tok", 0)).token
    first, second = Client(node, 601), Client(node, 602)
    first.login_by_token(token)
    second.login_by_token(token)
    return first, second


def test_a_session_that_deletes_its_own_token_may_log_out_and_nothing_else() -> None:
    node = Whole()
    first, second = with_token(node)
    assert first.ask(tokens.DELETE_TOKEN, tokens.DeleteToken("tok")) is None
    assert told(second.take()) == EvictionReason.NO_SESSION
    assert is_over(second)
    assert not first.has_answer()
    assert not is_over(first)
    register = Register(VERSION, password=PasswordLogin("anna", b"secret"))
    for frame in (
        send(first),
        store(first),
        create(first),
        poll(first),
        first.make_frame(LOGIN_PASSWORD, register),
    ):
        assert told(first.send_frame(frame)) == Code.UNAUTHORIZED
    assert told(first.send_frame(first.make_frame(PING, None))) is None
    node.tick(200)
    assert told(first.send_frame(first.make_frame(LOGOUT, None))) is None
    assert not is_over(first)
    first.login("anna", b"secret")
    first.send("s", "t", [b"again"])


def test_a_token_that_somebody_else_deletes_ends_its_sessions() -> None:
    node = Whole()
    _, anna = with_anna(node)
    token = anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("tok", 0)).token
    other = Client(node, 601)
    other.login_by_token(token)
    anna.ask(tokens.DELETE_TOKEN, tokens.DeleteToken("tok"))
    assert told(other.take()) == EvictionReason.NO_SESSION
    assert is_over(other)


def test_a_user_that_goes_with_its_token_is_not_kept_for_a_logout() -> None:
    node = Whole()
    root, _ = with_anna(node)
    first = Client(node, 601)
    anna = node.client(("anna", b"secret"), client=501)
    first.login_by_token(anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("tok", 0)).token)
    node.is_syncing = False
    first.post(first.make_frame(tokens.DELETE_TOKEN, tokens.DeleteToken("tok")))
    root.post(root.make_frame(users.DELETE_USER, users.DeleteUser("anna")))
    node.is_syncing = True
    node.tick(2)
    assert told(first.take()) is None
    assert told(first.take()) == EvictionReason.NO_SESSION
    assert is_over(first)
