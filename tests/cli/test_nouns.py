"""What nouns do beyond what every verb is tested for. Share: check, about 10 s."""

import json
import os
import re

import pytest

import headrace
from headrace.cli.connect.contexts import Context, Contexts, load_contexts, save_contexts
from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal
from tests.node import Node

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(clean: headrace.Client) -> headrace.Client:
    clean.create_stream("shop")
    clean.create_topic("shop/orders", partitions=2)
    clean.send("shop/orders", ["one", "two", "three"], partition=0)
    return clean


def values(terminal: Terminal, *arguments: str) -> list[str]:
    told = terminal("message", "poll", *arguments, "-o", "jsonl")
    assert told.code == Exit.OK, told.err
    return [json.loads(line)["value"] for line in told.out.splitlines()]


# Messages.


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ([], ["one", "two", "three"]),
        (["0", "--first", "--count", "1"], ["one"]),
        (["0", "--last", "--count", "1"], ["three"]),
        (["0", "--offset", "1"], ["two", "three"]),
        (["0", "--time", "2020-01-01T00:00Z", "--count", "2"], ["one", "two"]),
        (["0", "--time", "2200-01-01"], []),
        (["1"], []),
    ],
)
def test_where_a_poll_begins(
    terminal: Terminal, shop: headrace.Client, flags: list[str], wanted: list[str]
) -> None:
    assert values(terminal, "shop/orders", *flags) == wanted


def test_a_poll_goes_on_where_its_consumer_was(terminal: Terminal, shop: headrace.Client) -> None:
    flags = ("shop/orders", "0", "--next", "--commit", "--consumer", "report", "--count", "2")
    assert values(terminal, *flags) == ["one", "two"]
    assert values(terminal, *flags) == ["three"]
    assert values(terminal, *flags) == []
    stored = shop.get_offset("shop/orders", 0, consumer="report")
    assert stored is not None
    assert stored.stored_offset == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--first", "--last"], "give one of"),
        (["--next"], "need the name of a --consumer"),
        (["--commit"], "need the name of a --consumer"),
        (["--time", "noon"], "'noon' is no time"),
        (["--count", "0"], "--count"),
    ],
)
def test_a_poll_that_makes_no_sense(terminal: Terminal, flags: list[str], words: str) -> None:
    told = terminal("message", "poll", "shop/orders", "0", *flags)
    assert told.code == Exit.USAGE
    assert words in told.err


def test_bytes_and_headers_of_messages(terminal: Terminal, shop: headrace.Client) -> None:
    shop.send("shop/orders", [b"\xff\x00"], partition=1, headers={"raw": b"\xfe", "n": 7})
    sent = terminal("message", "send", "shop/orders", "x", "--partition", "1", "--header", "a=b=c")
    assert sent.code == Exit.OK
    told = terminal("message", "poll", "shop/orders", "1", "-o", "json")
    first, second = json.loads(told.out)
    assert (first["value"], first["encoding"]) == ("/wA=", "base64")
    assert first["headers"] == {"n": 7, "raw": "/g=="}
    assert (second["value"], second["headers"]) == ("x", {"a": "b=c"})


def test_equal_keys_share_a_partition(terminal: Terminal, shop: headrace.Client) -> None:
    told = [
        terminal("message", "send", "shop/orders", "x", "--key", "ada", "-o", "json")
        for _ in range(3)
    ]
    assert len({json.loads(each.out)["partition"] for each in told}) == 1
    both = terminal("message", "send", "shop/orders", "x", "--key", "ada", "--partition", "0")
    assert both.code == Exit.USAGE


# Topics.


def test_a_topic_by_numbers_keeps_its_name(terminal: Terminal, shop: headrace.Client) -> None:
    numbers = f"{shop.get_stream('shop').stream.id}/{shop.get_topic('shop/orders').topic.id}"
    assert terminal("topic", "update", numbers, "--max-size", "2 GiB").code == Exit.OK
    found = shop.get_topic("shop/orders").topic
    assert (found.name, found.max_topic_size) == ("orders", 2 << 30)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--option", "durability"], "'durability' is not KEY=VALUE"),
        (["--durability", "persisted", "--option", "durability=persisted"], "given twice"),
        (["--option", "durability="], "durability has no value"),
        (["--durability", "hope"], "durability: 'hope' is not allowed: when a send is"),
        (["--option", "segment_size=1"], "segment_size: '1' is not allowed: bytes at which"),
        (["--option", "preallocate_segments=maybe"], "'maybe' is neither true nor false"),
        (["--partitions", "-1"], "--partitions"),
    ],
)
def test_options_that_no_topic_can_have(terminal: Terminal, flags: list[str], words: str) -> None:
    told = terminal("topic", "create", "shop/new", *flags)
    assert told.code == Exit.USAGE
    assert words in told.err


def test_a_list_of_nothing(terminal: Terminal, clean: headrace.Client) -> None:
    clean.create_stream("empty")
    assert terminal("topic", "list", "empty").code == Exit.OK
    assert terminal("topic", "list", "empty", "-o", "json").out == "[]\n"
    assert terminal("topic", "list", "empty", "-o", "jsonl").out == ""


# Groups.


def test_a_member_is_one_while_it_stays(terminal: Terminal, shop: headrace.Client) -> None:
    shop.create_group("shop/orders", "billing")
    told = terminal("group", "join", "shop/orders", "billing", "--for", "1 ms", "-o", "json")
    assert json.loads(told.out)["partitions"] == [0, 1]
    assert shop.get_group("shop/orders", "billing").members == ()
    wrong = terminal("group", "join", "shop/orders", "billing", "--for", "ever")
    assert wrong.code == Exit.USAGE


def test_the_members_of_a_group(terminal: Terminal, shop: headrace.Client) -> None:
    shop.create_group("shop/orders", "billing")
    shop.join_group("shop/orders", "billing")
    told = terminal("group", "get", "shop/orders", "billing", "-o", "json")
    (member,) = json.loads(told.out)["members"]
    assert member["partitions"] == [0, 1]
    me = terminal("client", "get", str(shop.get_me().client.client_id), "-o", "json")
    assert len(json.loads(me.out)["groups"]) == 1
    shop.leave_group("shop/orders", "billing")


def test_lag_falls_as_a_group_reads(terminal: Terminal, shop: headrace.Client) -> None:
    shop.create_group("shop/orders", "billing")

    def lag() -> int:
        told = terminal("group", "lag", "shop/orders", "billing", "-o", "json")
        found: int = json.loads(told.out)["lag"]
        return found

    assert lag() == 3
    shop.store_offset("shop/orders", 0, 1, group="billing")
    assert lag() == 1
    shop.send("shop/orders", ["four"], partition=1)
    assert lag() == 2
    shop.purge_topic("shop/orders")
    assert lag() == 0


def test_who_keeps_messages_beyond_the_limits_is_named(
    terminal: Terminal, clean: headrace.Client
) -> None:
    clean.create_stream("shop")
    clean.create_topic("shop/orders", options={"segment_size": "1 MiB"})
    for _ in range(3):
        clean.send("shop/orders", [b"x" * (1 << 20)], partition=0)
    clean.create_group("shop/orders", "billing")
    clean.store_offset("shop/orders", 0, 0, group="billing")
    assert "held_back" not in json.loads(terminal("topic", "get", "shop/orders", "-o", "json").out)
    clean.update_topic("shop/orders", options={"message_expiry": "1 us"})
    told = json.loads(terminal("topic", "get", "shop/orders", "-o", "json").out)
    (held,) = told["held_back"]
    size = held["held_bytes"]
    assert 2 << 20 < size < 3 << 20  # The first of three is read.
    assert (held["kind"], held["name"], held["stored_offset"]) == ("group", "billing", 0)
    lag = json.loads(terminal("group", "lag", "shop/orders", "billing", "-o", "json").out)
    assert (lag["lag"], lag["held_bytes"], lag["partitions"][0]["held_bytes"]) == (2, size, size)
    assert "billing" in terminal("topic", "get", "shop/orders").out
    clean.delete_offset("shop/orders", 0, group="billing")
    assert clean.get_holders("shop/orders").count == 0


# Users.


def test_permissions_hold_where_they_were_given(
    terminal: Terminal, shop: headrace.Client, node: Node
) -> None:
    terminal("user", "create", "ada", "secret-of-ada")
    told = terminal(
        "user", "permissions", "ada", "--stream", "shop#orders:read_topic,send_messages"
    )
    assert told.code == Exit.OK, told.err
    ada = ("--username", "ada", "--password", "secret-of-ada")
    assert terminal("message", "send", "shop/orders", "x", *ada).code == Exit.OK
    refused = terminal("topic", "purge", "shop/orders", "--yes", *ada)
    assert refused.code == Exit.AUTH
    assert "it needs manage_streams or manage_topics everywhere" in refused.err
    assert "manage_topic for the topic" in refused.err


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--stream", "nothing:p_msg"], Exit.NOT_FOUND, "stream id not found"),
        (["--stream", "shop#nothing:p_msg"], Exit.NOT_FOUND, "topic id not found"),
        (["--stream", "shop:m_srv"], Exit.USAGE, "in the stream shop; did you mean manage_stream?"),
        (["--stream", "shop:xyzzy"], Exit.USAGE, "not a permission in the stream shop. There are"),
        (["--stream", "shop#orders:r_str"], Exit.USAGE, "in the topic shop/orders"),
        (["--stream", "shop:p_msg", "--stream", "shop:s_msg"], Exit.USAGE, "given twice"),
        (["--stream", "shop#orders#orders"], Exit.USAGE, "given twice in"),
    ],
)
def test_permissions_that_cannot_be(
    terminal: Terminal, shop: headrace.Client, flags: list[str], code: Exit, words: str
) -> None:
    told = terminal("user", "permissions", "iggy", *flags)
    assert told.code == code
    assert words in told.err


def test_passwords_from_the_input(terminal: Terminal, clean: headrace.Client) -> None:
    assert terminal("user", "create", "ada", typed="secret-of-ada\n").code == Exit.OK
    typed = "secret-of-ada\nanother-secret\n"
    assert terminal("user", "password", "ada", typed=typed).code == Exit.OK
    ada = ("--username", "ada", "--password", "another-secret")
    assert terminal("user", "get", "ada", *ada).code == Exit.OK


# Contexts and logins.


def test_a_login_serves_later_commands(
    lone_terminal: Terminal, node: Node, clean: headrace.Client
) -> None:
    address = ("--address", str(node.tcp))
    assert lone_terminal("login", *address, "--username", "iggy", "--password", "iggy").code == 0
    kept = load_contexts(os.environ).get("default")
    assert kept.address == str(node.tcp)
    assert kept.password is None
    assert lone_terminal("stream", "list").code == Exit.OK
    shown = lone_terminal("context", "show")
    assert kept.token is not None
    assert kept.token not in shown.out
    assert [each.name for each in clean.get_tokens()] == [kept.token_name]

    assert lone_terminal("login").code == Exit.OK  # again: the first token is no longer needed
    again = load_contexts(os.environ).get("default")
    assert again.token_name != kept.token_name
    assert [each.name for each in clean.get_tokens()] == [again.token_name]

    assert lone_terminal("logout").code == Exit.OK
    assert clean.get_tokens() == ()
    assert load_contexts(os.environ).get("default") == Context(str(node.tcp))
    assert lone_terminal("session", "status").code == Exit.AUTH
    assert lone_terminal("logout").code == Exit.NOT_FOUND


def test_a_login_that_was_revoked_is_only_forgotten(
    terminal: Terminal, clean: headrace.Client
) -> None:
    terminal("login")
    for token in clean.get_tokens():
        clean.delete_token(token.name)
    told = terminal("logout", "-o", "json")
    assert told.code == Exit.OK, told.err
    assert json.loads(told.out)["is_revoked"] is False


def test_a_login_to_a_node_that_is_gone(lone_terminal: Terminal) -> None:
    gone = Context("127.0.0.1:1", "ada", token="t", token_name="cli-1", token_expires_at=0)
    save_contexts(os.environ, Contexts("gone", {"gone": gone}))
    assert lone_terminal("session", "status").code == Exit.OK
    told = lone_terminal("logout")
    assert told.code == Exit.UNAVAILABLE
    assert "to forget the login here: --local" in told.err
    assert lone_terminal("logout", "--local").code == Exit.OK
    assert load_contexts(os.environ).get("gone") == Context("127.0.0.1:1")


def test_a_login_that_has_expired(lone_terminal: Terminal) -> None:
    old = Context("127.0.0.1:1", "ada", token="t", token_name="cli-1", token_expires_at=1)
    save_contexts(os.environ, Contexts("old", {"old": old}))
    told = lone_terminal("session", "status")
    assert told.code == Exit.AUTH
    assert "the login of ada in the context old has expired: headrace login" in told.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("create a/b", "is no name of a context"),
        ("create default", "there is a context default already"),
        ("create x --address nonsense", "--address: 'nonsense' has no port"),
        ("create x --token t --username u", "not both"),
        ("delete default --yes", "holds nothing that could be deleted"),
        ("delete nothing --yes", "no context 'nothing'"),
    ],
)
def test_contexts_that_cannot_be(lone_terminal: Terminal, arguments: str, words: str) -> None:
    told = lone_terminal("context", *arguments.split())
    assert told.code != Exit.OK
    assert words in told.err


def test_secrets_of_a_context_from_the_input(lone_terminal: Terminal) -> None:
    told = lone_terminal("context", "create", "x", "--token", "-", "--use", typed="hidden\n")
    assert told.code == Exit.OK
    assert "hidden" not in told.out
    contexts = load_contexts(os.environ)
    assert (contexts.current, contexts.get("x").token) == ("x", "hidden")
    assert re.search("is current +yes", lone_terminal("context", "show").out)
