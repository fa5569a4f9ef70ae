"""Stages of a turn that only time wakes."""

from typing import TYPE_CHECKING

import pytest

from headrace.shard.logins.revocation import ENDED
from headrace.wire.commands import groups, messages, tokens
from headrace.wire.identifiers import Consumer
from headrace.wire.numbers import ConsumerKind, Operation
from tests.shard.test_node import with_topic
from tests.shard.test_not_done import send, told, with_anna
from tests.shard.test_rare_orders import POLL
from tests.shard.whole import Client, Whole

if TYPE_CHECKING:
    from headrace.vsr.events import OwnOp


def test_an_op_of_the_server_that_found_no_place_is_proposed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"one"])
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    consumer = Consumer(ConsumerKind.GROUP, "g")
    stored = messages.StoreOffset(
        consumer=consumer, stream="s", topic="t", partition_id=0, offset=0
    )
    client.ask(messages.STORE_OFFSET, stored)
    (local,) = node.shard.partitions.locals.values()
    assert local.machine.stored_group_ids() == [0]
    lost: list[OwnOp] = []
    with monkeypatch.context() as full:
        full.setattr(node.shard.data_plane, "propose", lambda _group, own: lost.append(own))
        client.ask(groups.DELETE_GROUP, groups.DeleteGroup("s", "t", "g"))
    assert [own.operation for own in lost] == [Operation.FORGET_GROUP_OFFSETS]
    node.tick(101)
    assert local.machine.stored_group_ids() == []


def test_a_write_on_its_way_is_told_its_outcome_before_its_token_ends_the_session() -> None:
    node = Whole()
    _, anna = with_anna(node)
    made = anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("short", 5_000_000)).token
    client = Client(node, 601)
    client.login_by_token(made)
    node.is_syncing = False
    client.post(send(client))
    node.tick(600)
    assert node.shard.front.connections.of_client(client.client) is None  # it is over
    assert not client.has_answer()
    assert not node.closed
    node.is_syncing = True
    node.tick()
    assert told(client.take()) is None
    assert node.closed == [(client.connection, ENDED)]


def test_the_offset_of_a_poll_from_the_disk_is_stored_in_the_turn_that_answers_it() -> None:
    """O3.6: nobody waits for a tick."""
    node = Whole(tail_bytes_max=0)
    _, anna = with_anna(node)
    node.tick(100)
    (replica,) = node.shard.data_plane.groups.values()
    ordered = replica.op
    assert anna.ask(messages.POLL_MESSAGES, POLL).messages_count == 1
    assert replica.commit_min == replica.op == ordered + 1
