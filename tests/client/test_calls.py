"""The calls: every command of the protocol has one, and both clients have them all."""

import inspect
from types import ModuleType

import pytest

from headrace.client.aio.client import AsyncClient
from headrace.client.calls import groups, messages, segments, streams, system, users
from headrace.client.calls.messages import Sent, send_batch
from headrace.client.calls.names import join_topic, make_consumer, split_topic
from headrace.client.errors import NotFound, ProtocolBroken
from headrace.client.session.call import Call
from headrace.client.sync.client import Client
from headrace.wire.commands.messages import SEND_MESSAGES, Confirmation
from headrace.wire.commands.session import COMMANDS as SESSION_COMMANDS
from headrace.wire.commands.table import COMMANDS
from headrace.wire.commands.topics import CREATE_TOPIC
from headrace.wire.errors import DecodeError
from headrace.wire.fields import FieldKind
from headrace.wire.numbers import ConsumerKind

MODULES = (streams, groups, users, system)
TOPIC = "shop/orders"
ASKED_FURTHER = ("get_topic",)  # its method asks more when the answer is empty
# One set of arguments for each call.
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "create_stream": ("shop",),
    "get_stream": ("shop",),
    "rename_stream": ("shop", "store"),
    "delete_stream": (7,),
    "purge_stream": ("shop",),
    "create_topic": (TOPIC,),
    "get_topic": (TOPIC,),
    "get_holders": (TOPIC,),
    "get_topics": ("shop",),
    "update_topic": (TOPIC,),
    "delete_topic": (TOPIC,),
    "purge_topic": (TOPIC,),
    "create_partitions": (TOPIC, 1),
    "delete_partitions": (TOPIC, 1),
    "delete_segments": (TOPIC, 0, 1),
    "flush_partition": (TOPIC, 0),
    "create_group": (TOPIC, "g"),
    "get_group": (TOPIC, "g"),
    "get_groups": (TOPIC,),
    "delete_group": (TOPIC, "g"),
    "join_group": (TOPIC, "g"),
    "leave_group": (TOPIC, "g"),
    "sync_group": (TOPIC, "g"),
    "get_offset": (TOPIC, 0),
    "store_offset": (TOPIC, 0, 5),
    "delete_offset": (TOPIC, 0),
    "create_user": ("ada", "secret"),
    "get_user": ("ada",),
    "update_user": ("ada",),
    "delete_user": ("ada",),
    "update_permissions": ("ada", None),
    "create_token": ("laptop",),
    "delete_token": ("laptop",),
    "get_client": (3,),
}
KEYWORDS: dict[str, dict[str, object]] = {
    "change_password": {"current": "a", "new": "b", "user": "ada"},
    **{name: {"consumer": "me"} for name in ("get_offset", "store_offset", "delete_offset")},
}


def builders(*modules: ModuleType) -> dict[str, object]:
    return {
        name: made
        for module in modules
        for name, made in vars(module).items()
        if inspect.isfunction(made)
        and made.__module__ == module.__name__
        and not name.startswith("_")
    }


def build(name: str, make: object) -> Call[object]:
    assert callable(make)
    call = make(*ARGUMENTS.get(name, ()), **KEYWORDS.get(name, {}))
    assert isinstance(call, Call)
    return call


def test_every_command_but_login_and_logout_has_a_call() -> None:
    calls = [build(name, make) for name, make in builders(*MODULES).items()]
    calls.append(messages.poll(TOPIC))
    calls.append(messages.send_batch(TOPIC, 0, b"", 1))
    calls.append(segments.plan_page(TOPIC, 0, start=0))
    wanted = set(COMMANDS) - {command.code for command in SESSION_COMMANDS}
    assert {call.command.code for call in calls} == wanted


@pytest.mark.parametrize("face", [Client, AsyncClient])
def test_both_faces_have_every_call_as_a_method(face: type) -> None:
    for name, make in builders(*MODULES).items():
        method = getattr(face, name)
        assert name in ASKED_FURTHER or method.__wrapped__ is make
        assert method.__doc__
        assert callable(make)
        assert list(inspect.signature(method).parameters) == [
            "self",
            *inspect.signature(make).parameters,
        ]


def test_every_call_can_be_read_back_by_the_server() -> None:
    for name, make in builders(*MODULES).items():
        call = build(name, make)
        call.command.decode_request(memoryview(call.body + call.batch))


def test_a_call_does_not_show_its_body() -> None:
    assert "secret" not in repr(users.create_user("ada", "secret"))


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="get stream 'shop'"):
        streams.get_stream("shop").read(memoryview(b""))


def test_options_travel_in_the_kind_that_they_have() -> None:
    call = streams.create_topic(
        TOPIC, options={"segment_size": 1 << 20, "message_expiry": "7 days", "unknown": 1}
    )
    request = CREATE_TOPIC.decode_request(memoryview(call.body))
    kinds = {option.key: option.value.kind for option in request.options}
    assert kinds == {
        "segment_size": FieldKind.UINT64,
        "message_expiry": FieldKind.STRING,
        "unknown": FieldKind.UINT8,
    }


def test_names_of_topics() -> None:
    assert split_topic("shop/orders") == ("shop", "orders")
    assert split_topic(("a/b", 3)) == ("a/b", 3)
    assert join_topic((1, "orders")) == "1/orders"
    for wrong in ("shop", "/orders", "shop/", "a/b/c", ""):
        with pytest.raises(ValueError, match="stream/topic"):
            split_topic(wrong)


def test_who_consumes() -> None:
    assert make_consumer("me", None).kind == ConsumerKind.CONSUMER
    assert make_consumer(None, 3).kind == ConsumerKind.GROUP
    for consumer, group in (("me", "us"), (None, None)):
        with pytest.raises(ValueError, match="one of the two"):
            make_consumer(consumer, group)


def test_a_topic_known_by_number_needs_its_name_to_be_updated() -> None:
    with pytest.raises(ValueError, match="needs its name"):
        streams.update_topic((1, 2))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_confirmation_is_read_as_its_command_reads_it(count: int) -> None:
    sent = tuple(Confirmation(1, 2, 3, 2**63 + number) for number in range(count))
    payload = memoryview(SEND_MESSAGES.encode_reply(sent))
    call = send_batch("shop/orders", 3, b"", 5)
    if count == 1:
        assert call.read(payload) == Sent(3, 2**63, 5)
    else:
        with pytest.raises(ProtocolBroken, match=f"{count} confirmations of one batch"):
            call.read(payload)
    with pytest.raises(DecodeError):
        call.read(payload[:-1])
