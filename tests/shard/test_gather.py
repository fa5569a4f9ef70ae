"""O5.9: what is gathered from the shards names those that did not answer."""

import pytest

from headrace.ports.bus import MemberLost
from headrace.wire.commands import clients, streams, system, topics
from headrace.wire.commands.counters import GET_COUNTERS, GetCounters
from headrace.wire.commands.reconcile import GET_RECONCILE
from headrace.wire.commands.shards import GET_SHARDS
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import ToPartition
from headrace.wire.replies import read_answer
from tests.shard.several import Several
from tests.shard.test_several import PARTITIONS, with_topic


@pytest.mark.parametrize("home", [0, 2])
def test_sizes_are_those_of_all_shards(home: int) -> None:
    node = Several(3)
    client = with_topic(node, home)
    for partition in range(PARTITIONS):
        client.send("s", "t", [b"one"], to=ToPartition(partition))
    assert client.ask(streams.GET_STREAMS)[0].messages_count == PARTITIONS
    found = client.ask(topics.GET_TOPIC, topics.GetTopic("s", "t"))
    assert [each.messages_count for each in found.partitions] == [1] * PARTITIONS
    assert client.ask(system.GET_STATS).messages_count == PARTITIONS
    assert client.ask(clients.GET_ME).client.client_id > 0


def test_every_shard_is_told_of() -> None:
    node = Several(3)
    client = with_topic(node, 1)
    found = client.ask(GET_SHARDS)
    assert [each.shard for each in found.shards] == [0, 1, 2]
    assert sum(each.partitions_count for each in found.shards) == PARTITIONS
    assert [each.connections_count for each in found.shards] == [0, 1, 0]
    reconciled = client.ask(GET_RECONCILE)
    assert sum(each.wanted for each in reconciled.shards) == PARTITIONS
    assert (found.missing, reconciled.missing) == ((), ())
    counters = {each.name: each.value for each in client.ask(GET_COUNTERS).counters}
    assert counters["partitions.open"] == PARTITIONS
    assert client.ask(GET_COUNTERS, GetCounters(2)).counters
    with pytest.raises(RefusedError) as refused:
        client.ask(GET_COUNTERS, GetCounters(3))
    assert refused.value.code == Code.RESOURCE_NOT_FOUND


def test_a_silent_shard_is_named_after_three_seconds_and_late_answers_are_dropped() -> None:
    node = Several(3)
    client = with_topic(node, 0)
    node.held.add((2, 0))
    client.post(client.make_frame(GET_SHARDS, None))
    node.settle(299)
    assert not client.has_answer()
    node.settle(1)
    found = GET_SHARDS.decode_reply(read_answer(client.take()))
    assert (found.missing, [each.shard for each in found.shards]) == ((2,), [0, 1])
    node.held.clear()
    node.settle()
    assert node.main.shard.marks.counts["gather.late"] > 0
    assert client.ask(GET_SHARDS).missing == ()


def test_a_shard_that_has_ended_is_named_at_once() -> None:
    node = Several(3)
    client = with_topic(node, 0)
    node.main.step(MemberLost(2, "ended"))
    assert client.ask(GET_SHARDS).missing == (2,)


def test_a_full_lane_is_asked_again() -> None:
    node = Several(2)
    client = with_topic(node, 0)
    node.full.add((0, 1))
    client.post(client.make_frame(GET_SHARDS, None))
    node.full.clear()
    node.settle(12)
    assert GET_SHARDS.decode_reply(read_answer(client.take())).missing == ()
    rows = node.main.exchange.drops.rows()
    assert ("gather", "full") in [(variant, reason) for variant, reason, _ in rows]
