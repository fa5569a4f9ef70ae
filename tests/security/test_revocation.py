"""What is taken from a user is taken from its open connections too, from the answer on (SE-4).

Nothing here waits for a time to pass: once root has its answer, the very next request of the user
finds the change in force, and a connection that asks for nothing is told by itself. On a node of
several shards that holds on all of them within a second.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

import pytest

from headrace.wire.commands import messages, streams, tokens, topics, users
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import UserStatus
from headrace.wire.replies import read_answer
from tests import crossings
from tests.e2e.raw import RawClient
from tests.known_secrets import make_password
from tests.node import SHARDS, running_node
from tests.security.house import DONE, STREAM, TOPIC, House, ask
from tests.security.levels import give_everywhere, give_stream, give_topic
from tests.security.requests import REQUESTS

pytestmark = pytest.mark.slow

ALLOWED = give_everywhere("poll_messages", "send_messages")
LAG_SECONDS_MAX = 0.0 if SHARDS == 1 else 1.0
# Who has a request on its way to another shard when its session ends cannot know whether it is
# done: it is told that it was away for too long (SE-9).
OVER = ("evicted NO_SESSION",) if SHARDS == 1 else ("evicted NO_SESSION", "evicted STALE_CLIENT")
_numbers = itertools.count()
A = TypeVar("A")


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """A node of its own: what users may do here changes all the time."""
    with running_node() as node, House(node) as made:
        made.root.call(streams.CREATE_STREAM, streams.CreateStream(STREAM))
        made.root.call(topics.CREATE_TOPIC, topics.CreateTopic(STREAM, 1, TOPIC))
        yield made
        crossings.note(node)


@pytest.fixture
def user(house: House) -> str:
    """The name of a new user who may send and poll."""
    name = f"user-{next(_numbers)}"
    house.add_user(name, ALLOWED)
    return name


def send(house: House, client: RawClient) -> str:
    return ask(client, messages.SEND_MESSAGES, REQUESTS[messages.SEND_MESSAGES.code](house))


def poll(house: House, client: RawClient) -> str:
    return ask(client, messages.POLL_MESSAGES, REQUESTS[messages.POLL_MESSAGES.code](house))


def order(_: House, client: RawClient) -> str:
    return ask(client, tokens.CREATE_TOKEN, tokens.CreateToken(f"token-{next(_numbers)}", 0))


def read(_: House, client: RawClient) -> str:
    return ask(client, tokens.GET_TOKENS, None)


ACTS = {act.__name__: act for act in (send, poll, order, read)}


def log_in_by_token(house: House, user: str) -> RawClient:
    """Give a client that is in by a token named `key` of the user."""
    with_password = house.log_in(user)
    token = with_password.call(tokens.CREATE_TOKEN, tokens.CreateToken("key", 0)).token
    with_password.close()
    client = house.connect()
    client.login(token=token)
    return client


# What ends a session, by whatever it was opened.


def change_password(house: House, user: str) -> None:
    old, new = make_password(user), make_password(f"{user}-changed")
    house.root.call(users.CHANGE_PASSWORD, users.ChangePassword(user, old, new))


def disable(house: House, user: str) -> None:
    house.root.call(users.UPDATE_USER, users.UpdateUser(user=user, status=UserStatus.INACTIVE))


def delete(house: House, user: str) -> None:
    house.root.call(users.DELETE_USER, users.DeleteUser(user))


def delete_and_create_again(house: House, user: str) -> None:
    """The number is the lowest that is free, so it is used again at once (MD-2)."""
    number = house.root.call(users.GET_USER, users.GetUser(user))
    delete(house, user)
    again = house.add_user(f"{user}-heir", ALLOWED)
    assert number is not None
    assert again == number.user.id


def delete_and_create_the_same(house: House, user: str) -> None:
    """Another user with the number, the name and the password of the first."""
    delete(house, user)
    house.add_user(user, ALLOWED)


def revoke_token(house: House, user: str) -> None:
    owner = house.log_in(user)
    owner.call(tokens.DELETE_TOKEN, tokens.DeleteToken("key"))
    owner.close()


Take = Callable[[House, str], None]
TAKEN: dict[str, Take] = {
    take.__name__: take
    for take in (
        change_password,
        disable,
        delete,
        delete_and_create_again,
        delete_and_create_the_same,
    )
}


def check_told(client: RawClient) -> None:
    """The connection must say that the session is over, and end."""
    frame = client.connection.receive()
    if frame is not None:
        with pytest.raises(EvictedError) as caught:
            read_answer(frame)
        assert caught.value.reason == EvictionReason.NO_SESSION
        assert client.connection.receive() is None
    client.close()


def is_over(house: House, client: RawClient, act: str) -> bool:
    """Whether a request of a session that has ended is not carried out.

    The connection is told first: that is the answer that comes, or the connection has closed.
    """
    try:
        answer = settled(lambda: ACTS[act](house, client), lambda answer: answer != DONE)
    except AssertionError:  # It was closed before the request left.
        return True
    finally:
        client.close()
    return answer in OVER


def settled(answer: Callable[[], A], is_wanted: Callable[[A], bool]) -> A:
    """Return an answer; the last of a second, where shards may learn of a change one by one."""
    deadline = time.monotonic() + LAG_SECONDS_MAX
    while not is_wanted(found := answer()) and time.monotonic() < deadline:
        pass
    return found


def count_messages(house: House) -> int:
    found = house.root.call(topics.GET_TOPIC, topics.GetTopic(STREAM, TOPIC))
    assert found is not None
    return found.topic.messages_count


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("take", TAKEN)
def test_the_next_request_of_an_open_session_is_refused(
    house: House, user: str, take: str, act: str
) -> None:
    client = house.log_in(user)
    assert ACTS[act](house, client) == DONE
    before = count_messages(house)
    TAKEN[take](house, user)
    assert is_over(house, client, act)
    if SHARDS == 1:
        assert count_messages(house) == before


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("take", [*TAKEN.values(), revoke_token], ids=lambda take: take.__name__)
def test_a_session_by_token_ends_with_its_user_and_its_token(
    house: House, user: str, take: Take, act: str
) -> None:
    client = log_in_by_token(house, user)
    assert ACTS[act](house, client) == DONE
    take(house, user)
    assert is_over(house, client, act)


@pytest.mark.parametrize("take", TAKEN)
def test_a_connection_that_asks_for_nothing_is_told(house: House, user: str, take: str) -> None:
    clients = [house.log_in(user) for _ in range(3)]
    TAKEN[take](house, user)
    for client in clients:
        check_told(client)


def test_a_token_that_is_revoked_ends_only_its_own_sessions(house: House, user: str) -> None:
    by_token = log_in_by_token(house, user)
    by_password = house.log_in(user)
    revoke_token(house, user)
    check_told(by_token)
    assert send(house, by_password) == DONE
    by_password.close()


def test_others_go_on(house: House, user: str) -> None:
    other = f"{user}-other"
    house.add_user(other, ALLOWED)
    bystander = house.log_in(other)
    for take in (change_password, disable, delete):
        take(house, user)
        assert send(house, bystander) == DONE
    bystander.close()


def test_who_changes_its_own_password_stays_in_and_its_other_sessions_end(
    house: House, user: str
) -> None:
    here, elsewhere = house.log_in(user), house.log_in(user)
    new = make_password(f"{user}-new")
    here.call(users.CHANGE_PASSWORD, users.ChangePassword(user, make_password(user), new))
    check_told(elsewhere)
    assert send(house, here) == DONE
    here.close()


def test_a_token_of_a_deleted_user_is_nobodys(house: House, user: str) -> None:
    owner = house.log_in(user)
    token = owner.call(tokens.CREATE_TOKEN, tokens.CreateToken("key", 0)).token
    owner.close()
    delete_and_create_the_same(house, user)
    client = house.connect()
    with pytest.raises(EvictedError) as caught:
        client.login(token=token)
    assert caught.value.reason == EvictionReason.INVALID_TOKEN
    client.close()


def test_permissions_are_those_of_now(house: House, user: str) -> None:
    """The session goes on; what it may do changes with the answer, both ways."""
    client = house.log_in(user)
    steps = [
        (None, "refused UNAUTHORIZED", "refused UNAUTHORIZED"),
        (give_stream("send_messages"), DONE, "refused UNAUTHORIZED"),
        (give_topic("poll_messages"), "refused UNAUTHORIZED", DONE),
        (give_topic("poll_messages", topic_id=7), "refused UNAUTHORIZED", "refused UNAUTHORIZED"),
        (ALLOWED, DONE, DONE),
    ]
    for given, sending, polling in steps:
        house.root.call(users.UPDATE_PERMISSIONS, users.UpdatePermissions(user, given))
        wanted = (sending, polling)
        assert settled(lambda: (send(house, client), poll(house, client)), wanted.__eq__) == wanted
    client.close()


def test_permissions_end_with_their_stream(house: House, user: str) -> None:
    """The next stream has the number of the last one, and none of its permissions (MD-2)."""
    made = house.root.call(streams.CREATE_STREAM, streams.CreateStream("brief"))
    given = give_stream("manage_stream", stream_id=made.id)
    house.root.call(users.UPDATE_PERMISSIONS, users.UpdatePermissions(user, given))
    client = house.log_in(user)
    assert ask(client, streams.GET_STREAM, streams.GetStream(made.id)) == DONE
    house.root.call(streams.DELETE_STREAM, streams.DeleteStream(made.id))
    again = house.root.call(streams.CREATE_STREAM, streams.CreateStream("another"))
    assert again.id == made.id
    assert ask(client, streams.GET_STREAM, streams.GetStream(made.id)) == "refused UNAUTHORIZED"
    house.root.call(streams.DELETE_STREAM, streams.DeleteStream(again.id))
    client.close()


def test_what_was_taken_stays_taken_after_a_restart() -> None:
    with running_node() as node:
        with House(node) as house:
            house.add_user("kept")
            house.add_user("disabled")
            owner = house.log_in("kept")
            token = owner.call(tokens.CREATE_TOKEN, tokens.CreateToken("key", 0)).token
            owner.call(tokens.DELETE_TOKEN, tokens.DeleteToken("key"))
            owner.close()
            disable(house, "disabled")
        node.kill()
        node.start()
        with closing(RawClient(node.tcp, 1)) as client:
            with pytest.raises(EvictedError):
                client.login(token=token)
            with pytest.raises((EvictedError, RefusedError)):
                client.login(username="disabled", password=make_password("disabled"))
            client.login(username="kept", password=make_password("kept"))
