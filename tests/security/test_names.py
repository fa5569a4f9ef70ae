"""Names from clients: stored as they are, or refused; never a part of a path."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.wire.commands import groups, messages, streams, tokens, topics, users
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import ToPartition
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request
from tests.e2e.raw import RawClient
from tests.known_secrets import make_password
from tests.node import running_node
from tests.security.house import House
from tests.security.requests import BATCH

pytestmark = pytest.mark.slow

PLAIN = "plain"
# What has broken out of somebody's folder, log or terminal before.
NASTY = (
    "../../../escaped",
    "..",
    ".",
    "/",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "..\\..\\escaped",
    "%2e%2e%2fescaped",
    "nul\x00byte",
    "\x00",
    "line\nbreak",
    "carriage\rreturn",
    "bell\x07",
    "\x1b[31mred",
    "\x7f",
    "\x85next line",
    "\u202eright to left",
    "\ufeffmark",
    "e\u0301 and \u00e9",
    "\U0001f426",
    "name\u2028separator",
    "-rf",
    "~root",
    "$(id)",
    "`id`",
    "'; drop table users; --",
    "{name}",
    "%s%n",
    "journal.0",
    "superblock",
    "CON",
    " ",
    " padded ",
    "0",
    "4294967295",
    "x" * 255,
    "\u00e9" * 127,
)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Kind(NamedTuple):
    """Something that has a name: how it is made, and how the names of all are read."""

    create: Callable[[RawClient, str], object]
    names: Callable[[RawClient], list[str]]
    refusal: Code
    bytes_allowed: range


def _create_user(client: RawClient, name: str) -> object:
    made = users.CreateUser(
        username=name, password=make_password("named"), status=UserStatus.ACTIVE
    )
    return client.call(users.CREATE_USER, made)


def _create_topic(client: RawClient, name: str) -> object:
    client.call(topics.CREATE_TOPIC, topics.CreateTopic(PLAIN, 1, name))
    send = messages.SendMessages(PLAIN, name, ToPartition(0), 1, BATCH)
    return client.call(messages.SEND_MESSAGES, send)


KINDS = {
    "stream": Kind(
        lambda client, name: client.call(streams.CREATE_STREAM, streams.CreateStream(name)),
        lambda client: [each.name for each in client.call(streams.GET_STREAMS, None)],
        Code.INVALID_STREAM_NAME,
        range(1, 256),
    ),
    "topic": Kind(
        _create_topic,
        lambda client: [
            each.name for each in client.call(topics.GET_TOPICS, topics.GetTopics(PLAIN))
        ],
        Code.INVALID_TOPIC_NAME,
        range(1, 256),
    ),
    "group": Kind(
        lambda client, name: client.call(
            groups.CREATE_GROUP, groups.CreateGroup(PLAIN, PLAIN, name)
        ),
        lambda client: [
            each.name for each in client.call(groups.GET_GROUPS, groups.GetGroups(PLAIN, PLAIN))
        ],
        Code.INVALID_CONSUMER_GROUP_NAME,
        range(1, 256),
    ),
    "user": Kind(
        _create_user,
        lambda client: [each.username for each in client.call(users.GET_USERS, None)],
        Code.INVALID_USERNAME,
        range(3, 51),
    ),
    "token": Kind(
        lambda client, name: client.call(tokens.CREATE_TOKEN, tokens.CreateToken(name, 0)),
        lambda client: [each.name for each in client.call(tokens.GET_TOKENS, None)],
        Code.INVALID_PERSONAL_ACCESS_TOKEN_NAME,
        range(3, 31),
    ),
}


def shapes(folder: Path) -> set[str]:
    """Give the paths below a folder with every number as N: what kinds of paths there are."""
    return {re.sub(r"\d+", "N", str(path.relative_to(folder))) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """A node with one plain thing of each kind; at the end nothing but numbers is in its paths."""
    with running_node() as node, House(node) as made:
        root = made.root
        root.call(streams.CREATE_STREAM, streams.CreateStream(PLAIN))
        for kind in ("topic", "group", "user", "token"):
            KINDS[kind].create(root, PLAIN)
        root.call(
            topics.FLUSH_UNSAVED_BUFFER, topics.FlushUnsavedBuffer(PLAIN, PLAIN, 0, fsync=True)
        )
        plain = shapes(node.data.parent)
        outside = sorted(node.data.parent.parent.glob("*escaped*"))
        yield made
        assert shapes(node.data.parent) <= plain
        assert sorted(node.data.parent.parent.glob("*escaped*")) == outside


def check_kept_or_refused(client: RawClient, kind: Kind, name: str) -> None:
    """A name that is fine is stored as it is; any other is refused and leaves nothing."""
    before = kind.names(client)
    is_fine = not CONTROL.search(name) and len(name.encode()) in kind.bytes_allowed
    if name in before:
        return
    if is_fine:
        kind.create(client, name)
        assert sorted(kind.names(client)) == sorted([*before, name])
        return
    with pytest.raises(RefusedError) as caught:
        kind.create(client, name)
    assert caught.value.code == kind.refusal
    assert kind.names(client) == before


@pytest.mark.parametrize("kind", KINDS)
def test_nasty_names(house: House, kind: str) -> None:
    for name in NASTY:
        check_kept_or_refused(house.root, KINDS[kind], name)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.text(min_size=1, max_size=60).filter(lambda name: len(name.encode()) <= 255))
@example(name="../" * 20)
def test_any_names(house: House, kind: str, name: str) -> None:
    check_kept_or_refused(house.root, KINDS[kind], name)


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\xc0\xae\xc0\xae/", b"\xed\xa0\x80", b""])
def test_what_is_no_text_is_refused(house: House, raw: bytes) -> None:
    """Not UTF-8, overlong, a lone surrogate, nothing."""
    client = house.root
    body = bytes([len(raw)]) + raw
    client.request += 1
    header = encode_request(
        Operation.CREATE_STREAM,
        body,
        client=client.client,
        session=client.session,
        request=client.request,
        code=streams.CREATE_STREAM.code,
    )
    client.connection.send(header + body)
    frame = client.connection.receive()
    assert frame is not None
    with pytest.raises(RefusedError):
        read_answer(frame)


def test_names_are_the_same_after_a_restart() -> None:
    """Share: interop, about 5 s: a kill, and a stop that writes a snapshot."""
    with running_node() as node:
        with House(node) as house:
            for name in (*NASTY, PLAIN):
                with suppress(RefusedError):
                    KINDS["stream"].create(house.root, name)
            kept = KINDS["stream"].names(house.root)
        assert len(kept) > len(NASTY) // 2
        for end in (node.kill, node.stop):
            end()
            node.start()
            with House(node) as house:
                assert KINDS["stream"].names(house.root) == kept
