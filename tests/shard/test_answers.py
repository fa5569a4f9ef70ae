"""Each of several requests on their way gets its own answer, whatever becomes of the others."""

import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.vsr.events import OwnOp
from headrace.wire.commands.session import LOGOUT
from headrace.wire.commands.streams import (
    CREATE_STREAM,
    DELETE_STREAM,
    CreateStream,
    DeleteStream,
)
from headrace.wire.commands.topics import CREATE_TOPIC, CreateTopic
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import Operation
from headrace.wire.replies import REPLY, read_answer
from tests.shard.whole import Client, Whole, hold


@pytest.fixture
def node() -> Whole:
    return Whole()


@pytest.fixture
def client(node: Whole) -> Client:
    made = node.client()
    made.ask(CREATE_STREAM, CreateStream("shop"))
    made.ask(CREATE_TOPIC, CreateTopic("shop", 1, "orders"))
    return made


def test_an_eviction_answers_the_request_that_it_is_for(node: Whole, client: Client) -> None:
    go_on = hold(node)
    client.post(client.make_frame(CREATE_STREAM, CreateStream("first")))
    first = client.number
    client.session -= 1
    client.post(client.make_frame(LOGOUT, None))
    with pytest.raises(EvictedError):
        read_answer(client.take())
    go_on()
    assert REPLY.decode(client.take()).request == first


def test_what_is_on_its_way_for_another_client_is_no_matter_of_an_eviction(
    node: Whole, client: Client
) -> None:
    """SE-9: who has nothing on its way logs in and asks again."""
    other = node.client()
    go_on = hold(node)
    client.post(client.make_frame(CREATE_STREAM, CreateStream("first")))
    for asking, reason in (
        (other, EvictionReason.SESSION_TOO_LOW),
        (client, EvictionReason.STALE_CLIENT),
    ):
        asking.session -= 1
        asking.post(asking.make_frame(LOGOUT, None))
        with pytest.raises(EvictedError) as evicted:
            read_answer(asking.take())
        assert evicted.value.reason == reason
    go_on()


def test_who_sends_to_a_partition_that_goes_is_told_at_once(node: Whole, client: Client) -> None:
    other = node.client()
    go_on = hold(node)
    other.post(other.make_frame(DELETE_STREAM, DeleteStream("shop")))
    client.post(client.send_frame_of("shop", "orders", [b"a"]))
    go_on()  # the deletion is synced first
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    assert refused.value.code == Code.TRANSIENT_NOT_COMMITTED


def test_an_op_of_the_server_that_finds_no_room_lets_requests_be(
    node: Whole, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = hold(node)
    client.post(client.make_frame(CREATE_STREAM, CreateStream("first")))
    plane = node.shard.metadata.plane
    with monkeypatch.context() as full:
        full.setattr(type(plane.shared), "has_room", lambda *_: False)
        plane.propose(METADATA_GROUP, OwnOp(Operation.DISCONNECT, b"", client.client))
        node.tick()
    go_on()
    assert REPLY.decode(client.take()).request == client.number
