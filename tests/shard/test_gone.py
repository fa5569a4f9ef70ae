"""The node knows who has a connection, in whatever order logins and losses come (O4.1)."""

import pytest

from headrace.wire.commands import groups
from headrace.wire.commands.session import LOGIN_PASSWORD, PasswordLogin, Register
from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.topics import CREATE_TOPIC, CreateTopic
from headrace.wire.replies import read_answer
from tests.shard.whole import ROOT, VERSION, Client, Whole, hold

MEMBER = 0xBEEF
SECOND_TICKS = 100


@pytest.fixture
def node() -> Whole:
    return Whole()


@pytest.fixture
def admin(node: Whole) -> Client:
    made = node.client()
    made.ask(CREATE_STREAM, CreateStream("shop"))
    made.ask(CREATE_TOPIC, CreateTopic("shop", 1, "orders"))
    made.ask(groups.CREATE_GROUP, groups.CreateGroup("shop", "orders", "readers"))
    return made


def begin_login(client: Client) -> None:
    login = Register(VERSION, password=PasswordLogin(*ROOT))
    client.post(client.make_frame(LOGIN_PASSWORD, login))


def end_login(client: Client) -> None:
    client.session = LOGIN_PASSWORD.decode_reply(read_answer(client.take())).session


def is_connected(node: Whole, client: int = MEMBER) -> bool:
    return node.shard.metadata.sessions.is_connected(client)


def check_that_it_leaves(node: Whole, admin: Client, member: Client) -> None:
    """A member that goes leaves its group, whatever was before."""
    member.ask(groups.JOIN_GROUP, groups.JoinGroup("shop", "orders", "readers"))
    node.tick(2 * SECOND_TICKS)
    readers = groups.GetGroup("shop", "orders", "readers")
    assert len(admin.ask(groups.GET_GROUP, readers).members) == 1
    member.close()
    node.tick(2 * SECOND_TICKS)
    assert admin.ask(groups.GET_GROUP, readers).members == ()


def test_the_old_connection_is_lost_while_the_client_logs_in_again(
    node: Whole, admin: Client
) -> None:
    old = node.client(client=MEMBER)
    new = Client(node, MEMBER)
    go_on = hold(node)
    begin_login(new)
    old.close()
    go_on()
    end_login(new)
    assert is_connected(node)
    check_that_it_leaves(node, admin, new)


def test_a_loss_that_takes_long_is_not_told_again_behind_the_next_login(
    node: Whole, admin: Client
) -> None:
    old = node.client(client=MEMBER)
    new = Client(node, MEMBER)
    go_on = hold(node)
    old.close()
    begin_login(new)
    node.tick(3 * SECOND_TICKS)
    go_on()
    end_login(new)
    assert is_connected(node)
    check_that_it_leaves(node, admin, new)


def test_who_leaves_before_the_login_is_done_is_not_connected(node: Whole) -> None:
    new = Client(node, MEMBER)
    go_on = hold(node)
    begin_login(new)
    new.close()
    node.tick(3 * SECOND_TICKS)
    go_on()
    node.tick(2 * SECOND_TICKS)
    assert node.shard.metadata.sessions.user_of(MEMBER) is not None  # it was registered
    assert not is_connected(node)


def test_a_login_that_takes_too_long_leaves_nobody_connected(node: Whole) -> None:
    """The client is told that nobody knows; it may log in again."""
    new = Client(node, MEMBER)
    go_on = hold(node)
    begin_login(new)
    node.tick(12 * SECOND_TICKS)
    go_on()
    node.tick(2 * SECOND_TICKS)
    assert not is_connected(node)
    new.take()
    new.login(*ROOT)
    assert is_connected(node)


def test_a_member_leaves_though_the_table_does_not_take_it_for_connected(
    node: Whole, admin: Client
) -> None:
    """A backup lets a client in with the session that it has, and no op says so (CR10).

    The table takes it for disconnected since it lost the connection before. When that backup leads
    the client may join a group, and must leave it with this connection.
    """
    member = node.client(client=MEMBER)
    node.shard.metadata.sessions.disconnect(MEMBER)
    assert not is_connected(node)
    check_that_it_leaves(node, admin, member)
