"""Every counter of a shard, asked by a client."""

import pytest

from headrace.ports.host import HostFacts, HostSampled
from headrace.wire.commands import topics, users
from headrace.wire.commands.counters import GET_COUNTERS
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import UserStatus
from tests.shard.test_node import with_topic
from tests.shard.whole import Client, Whole

ALICE = users.CreateUser(username="alice", password=b"secret-1", status=UserStatus.ACTIVE)


def read(client: Client) -> dict[str, int]:
    return {each.name: each.value for each in client.ask(GET_COUNTERS).counters}


def test_marks_of_all_parts_and_what_is_now() -> None:
    node = Whole(profile="dev")
    client = with_topic(node, partitions=2)
    client.send("s", "t", [b"x"])
    found = read(client)
    assert client.ask(GET_COUNTERS).profile == "dev"
    assert list(found) == sorted(found)
    assert found["partitions.materialised"] == 2
    assert found["partitions.open"] == 2
    assert found["connections.open"] == 1
    assert found["requests.waiting"] == 0
    assert found["requests.received"] == 5  # login, stream, topic, send, counters
    assert found["partitions.fenced_now"] == 0
    assert found["metadata.commit"] >= 3
    assert found["memory.tail_bytes"] > 0
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    node.tick(100)
    assert read(client)["partitions.removed"] == 2


def test_equal_names_of_several_parts_are_added_up() -> None:
    node = Whole()
    client = node.client()
    shard = node.shard
    for probes in (shard.marks, shard.metadata.plane.probes, shard.data_plane.store.probes):
        probes.hit("frame.refused")
    node.step(HostSampled(HostFacts(counters=(("frame.refused", 4), ("syncs", 9)))))
    found = read(client)
    assert (found["frame.refused"], found["syncs"]) == (7, 9)


def test_who_may_not_read_the_server_is_refused() -> None:
    node = Whole()
    root = node.client()
    root.ask(users.CREATE_USER, ALICE)
    alice = node.client(("alice", b"secret-1"))
    with pytest.raises(RefusedError) as raised:
        alice.ask(GET_COUNTERS)
    assert raised.value.code == Code.UNAUTHORIZED
