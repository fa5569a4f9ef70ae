"""O5.9, decision 0034: who is asked for a read, and what stands for a shard that is silent."""

import pytest

from headrace.shard.bus.gather import QUESTIONS_MAX
from headrace.wire.commands import streams, system, topics, users
from headrace.wire.commands.shards import GET_SHARDS
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import ToPartition
from headrace.wire.numbers import FrameKind, SnapshotCompression, SnapshotType
from headrace.wire.permissions import GlobalPermissions, Permissions
from headrace.wire.replies import read_answer
from tests.shard.several import HomedClient, Several
from tests.shard.test_parked import code_of
from tests.shard.test_parked_ends import ANNE
from tests.shard.test_several import PARTITIONS, marks, with_topic

WAIT = 300
READING = Permissions(everywhere=GlobalPermissions(read_streams=True))


def sent_to_all(node: Several) -> HomedClient:
    client = with_topic(node)
    for partition in range(PARTITIONS):
        client.send("s", "t", [b"one"], to=ToPartition(partition))
    return client


def asked(node: Several) -> list[int]:
    """Return who was asked since the last call."""
    found = [target for _, target, kind in node.frames if kind == FrameKind.GATHER]
    node.frames.clear()
    return found


@pytest.mark.slow
def test_the_last_figures_of_a_silent_shard_stand_for_it() -> None:
    """None if it never told any; a shard that answers has its own."""
    node = Several(3)
    client = sent_to_all(node)
    node.held.add((2, 0))
    owned = len(node.members[2].shard.partitions.locals)
    client.post(client.make_frame(streams.GET_STREAMS, None))
    node.settle(WAIT)
    (found,) = streams.GET_STREAMS.decode_reply(read_answer(client.take()))
    assert found.messages_count == PARTITIONS - owned, "it has told nothing yet"
    node.held.clear()
    node.settle(2)
    assert client.ask(streams.GET_STREAMS)[0].messages_count == PARTITIONS
    for shard in (1, 2):
        client.send("s", "t", [b"two"], to=ToPartition(node.partition_of(shard, PARTITIONS)))
    node.held.add((2, 0))
    client.post(client.make_frame(streams.GET_STREAMS, None))
    node.settle(WAIT)
    (found,) = streams.GET_STREAMS.decode_reply(read_answer(client.take()))
    assert found.messages_count == PARTITIONS + 1, "shard 1 tells of both, shard 2 is as it was"
    assert marks(node, 0)["gather_missing_total"] == 2


@pytest.mark.slow
def test_the_log_names_a_silent_shard_once_until_it_answers() -> None:
    node = Several(3)
    client = with_topic(node)
    node.main.shard.take_findings()

    def findings() -> list[tuple[str, str]]:
        return [(each.kind, each.file) for each in node.main.shard.take_findings()]

    def read() -> None:
        client.post(client.make_frame(GET_SHARDS, None))
        node.settle(WAIT)
        client.take()

    node.held.add((2, 0))
    read()
    assert findings() == [("silent", "shard 2")]
    read()
    assert findings() == []
    node.held.clear()
    read()
    assert findings() == []
    node.held.add((2, 0))
    read()
    assert findings() == [("silent", "shard 2")]
    assert marks(node, 0)["gather_missing_total"] == 3


def test_only_those_are_asked_who_have_something() -> None:
    """A topic is read at once though a shard that has no part of it hangs."""
    node = Several(3)
    client = with_topic(node)
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "one"))
    (owner,) = [each.number for each in node.members if 1 << 20 in each.shard.partitions.locals]
    idle = next(each for each in (1, 2) if each != owner)
    node.held |= {(idle, 0), (0, idle)}
    asked(node)
    found = client.ask(topics.GET_TOPIC, topics.GetTopic("s", "one"))
    assert found.topic.partitions_count == 1
    assert asked(node) == ([owner] if owner else [])
    assert client.ask(streams.GET_STREAM, streams.GetStream("none")) is None
    assert asked(node) == [], "nobody is asked of what is not there"


def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    node = Several(2)
    client = with_topic(node)
    node.full.add((1, 0))
    client.post(client.make_frame(GET_SHARDS, None))
    node.rest()
    node.full.clear()
    node.settle(99)
    assert not client.has_answer()
    node.settle(2)
    assert GET_SHARDS.decode_reply(read_answer(client.take())).missing == ()
    assert marks(node, 0)["gather.asked_again"] == 1
    assert ("gather", "full", 1) in node.members[1].exchange.drops.rows()


def test_reads_that_wait_are_bounded() -> None:
    """The next one gets 58 at once, and nobody is asked for it."""
    node = Several(2)
    client = with_topic(node)
    node.held.add((1, 0))
    node.main.is_checking = False  # It takes long.
    client.post(*[client.make_frame(GET_SHARDS, None) for _ in range(QUESTIONS_MAX)])
    assert not client.has_answer()
    with pytest.raises(RefusedError) as refused:
        client.ask(GET_SHARDS)
    assert refused.value.code == Code.TRANSIENT_NOT_ACCEPTED
    node.held.clear()
    node.main.is_checking = True
    node.settle(2)
    for _ in range(QUESTIONS_MAX):
        read_answer(client.take())
    assert client.ask(GET_SHARDS).missing == ()


def test_a_right_that_is_revoked_while_a_read_waits_is_revoked() -> None:
    node = Several(2)
    root = with_topic(node)
    root.ask(users.CREATE_USER, ANNE)
    reading = users.UpdatePermissions("anne", READING)
    root.ask(users.UPDATE_PERMISSIONS, reading)
    anne = HomedClient(node, 0, 9)
    anne.login("anne", b"secret")
    assert len(anne.ask(streams.GET_STREAMS)) == 1
    node.held.add((1, 0))
    anne.post(anne.make_frame(streams.GET_STREAMS, None))
    root.ask(users.UPDATE_PERMISSIONS, users.UpdatePermissions("anne", None))
    assert not anne.has_answer()
    node.held.clear()
    node.rest()
    assert code_of(anne) == Code.UNAUTHORIZED


@pytest.mark.slow
def test_a_snapshot_tells_of_the_shards_and_who_is_missing() -> None:
    node = Several(3)
    client = with_topic(node)
    request = system.GetSnapshot(SnapshotCompression.STORED, (SnapshotType.RESOURCE_USAGE,))
    node.frames.clear()
    assert client.ask(system.GET_SNAPSHOT, request)
    assert asked(node) == [1, 2]
    quiet = system.GetSnapshot(SnapshotCompression.STORED, (SnapshotType.TEST,))
    assert client.ask(system.GET_SNAPSHOT, quiet)
    assert asked(node) == [], "what tells of no shard asks none"
    node.held.add((2, 0))
    client.post(client.make_frame(system.GET_SNAPSHOT, request))
    node.settle(WAIT - 1)
    assert not client.has_answer()
    node.settle(1)
    assert client.has_answer()
    assert marks(node, 0)["gather_missing_total"] == 1
