"""A request that is sent again with its number is answered as it was, whatever it changed (O4)."""

from typing import Any

import pytest

from headrace.wire.commands import groups, messages, tokens, users
from headrace.wire.commands.command import Command
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer
from headrace.wire.numbers import ConsumerKind, UserStatus
from headrace.wire.replies import read_answer
from tests.shard.test_node import with_topic
from tests.shard.whole import Client, Whole

OURS = Consumer(ConsumerKind.GROUP, "g")


def with_anna(node: Whole) -> Client:
    made = users.CreateUser(username="anna", password=b"secret", status=UserStatus.ACTIVE)
    node.client().ask(users.CREATE_USER, made)
    return node.client(("anna", b"secret"), client=500)


def reconnected(client: Client, password: bytes = b"secret") -> Client:
    """Give the same client on another connection; the first is lost."""
    client.close()
    again = Client(client.node, client.client)
    again.login("anna", password)
    return again


def test_a_changed_password_is_not_judged_by_itself() -> None:
    """The old password is not the current one any more, because the request was carried out."""
    node = Whole()
    anna = with_anna(node)
    change = users.ChangePassword("anna", b"secret", b"another")
    assert not read_answer(anna.send_frame(anna.make_frame(users.CHANGE_PASSWORD, change, 7)))
    anna = reconnected(anna, b"another")
    assert not read_answer(anna.send_frame(anna.make_frame(users.CHANGE_PASSWORD, change, 7)))


def test_a_token_is_told_once_and_never_a_wrong_one() -> None:
    node = Whole()
    anna = with_anna(node)
    frame = anna.make_frame(tokens.CREATE_TOKEN, tokens.CreateToken("mine", 0), 7)
    assert read_answer(anna.send_frame(frame))
    with pytest.raises(RefusedError) as refused:
        read_answer(anna.send_frame(frame))
    assert refused.value.code == Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS


def test_a_token_that_was_under_way_is_not_mistaken_for_another() -> None:
    """The first was ordered and its connection lost; who asks again must not get another secret."""
    node = Whole()
    anna = with_anna(node)
    node.is_syncing = False
    create = tokens.CreateToken("mine", 0)
    anna.post(anna.make_frame(tokens.CREATE_TOKEN, create, 7))
    other = Client(node, anna.client)
    other.session = anna.session
    node.is_syncing = True
    node.tick()
    other.login("anna", b"secret")
    frame = other.make_frame(tokens.CREATE_TOKEN, create, 7)
    with pytest.raises(RefusedError) as refused:
        read_answer(other.send_frame(frame))
    assert refused.value.code == Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS


def test_a_token_that_is_asked_for_twice_at_once_is_told_once() -> None:
    """Both questions get a secret of their own; only that of the first becomes the token."""
    node = Whole()
    anna = with_anna(node)
    node.is_verifying = False
    frame = anna.make_frame(tokens.CREATE_TOKEN, tokens.CreateToken("mine", 0), 7)
    anna.post(frame)
    anna.post(frame)
    first, second = node.unverified
    node.step(first)
    token = tokens.CREATE_TOKEN.decode_reply(read_answer(anna.take())).token
    node.step(second)
    with pytest.raises(RefusedError) as refused:
        read_answer(anna.take())
    assert refused.value.code == Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS
    node.is_verifying = True
    Client(node, 501).login_by_token(token)


@pytest.mark.parametrize("command", [messages.STORE_OFFSET, messages.DELETE_OFFSET])
def test_an_offset_that_was_stored_is_told_to_its_former_owner(
    command: Command[Any, Any],
) -> None:
    """Others have joined since: a new request is refused, the old one is not."""
    node = Whole()
    root = with_topic(node)
    root.send("s", "t", [b"one", b"two"])
    root.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    store = messages.StoreOffset(consumer=OURS, stream="s", topic="t", partition_id=0, offset=1)
    delete = messages.DeleteOffset(consumer=OURS, stream="s", topic="t", partition_id=0)
    root.ask(messages.STORE_OFFSET, store)
    request = store if command is messages.STORE_OFFSET else delete
    frame = root.make_frame(command, request)
    first = root.send_frame(frame)
    other = node.client(client=700)
    other.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    number = root.number
    root.close()
    root = node.client(client=root.client)
    frame = root.make_frame(command, request, number)
    root.number = number
    assert root.send_frame(frame)[256:] == first[256:]
    with pytest.raises(RefusedError, match="5009"):
        root.ask(command, request)
