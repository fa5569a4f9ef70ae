"""What partitions rarely meet: they go, or change hands, while something waits for them."""

from typing import Any

import msgspec
import pytest

from headrace.base.limits import KIB
from headrace.metadata.state import State
from headrace.ports.disk import FileReplaced
from headrace.ports.segments import SegmentFile
from headrace.shard.config import PlaneConfig
from headrace.shard.owned.held import Held
from headrace.vsr.timeouts import Timeouts
from headrace.wire.commands import groups, messages, topics, users
from headrace.wire.commands.command import Command
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason
from headrace.wire.identifiers import Consumer, First, ToPartition
from headrace.wire.numbers import ConsumerKind
from headrace.wire.replica.forwards import FORWARD_REGISTER, ForwardRegisterHeader
from headrace.wire.replica.heartbeats import (
    NODE_HEARTBEAT,
    GroupBeat,
    NodeHeartbeatHeader,
    encode_beats,
)
from tests.shard.peer_shots import seal_frame
from tests.shard.test_clearing import PAYLOAD
from tests.shard.test_node import ME, poll, with_topic
from tests.shard.test_not_done import is_over, messages_of, told, with_anna
from tests.shard.test_orphans import put, stored
from tests.shard.test_retention import limit_size, make_node
from tests.shard.trio import STREAM, TOPIC, Trio
from tests.shard.whole import Client, Whole

DATA = 1
PASS = 20
POLL = messages.PollMessages(
    consumer=ME,
    stream="s",
    topic="t",
    partition_id=0,
    strategy=First(),
    count=10,
    auto_commit=True,
)


def delete_topic(client: Client) -> None:
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))


def leads(node: Whole) -> bool:
    """Return whether a node leads its only partition."""
    (replica,) = node.shard.data_plane.groups.values()
    return replica.is_primary


def is_ready(node: Whole) -> bool:
    return node.shard.is_ready


# Polls.


def test_a_poll_of_a_client_that_is_gone_ends_with_its_partition() -> None:
    node = Whole(tail_bytes_max=1)
    client = with_topic(node)
    client.send("s", "t", [b"x" * 2000])
    node.tick(10)
    reader = node.client()
    node.is_reading_segments = False
    reader.post(reader.make_frame(messages.POLL_MESSAGES, POLL))
    assert node.shard.front.answers.waiting_count == 1
    reader.close()
    assert node.shard.front.answers.waiting_count == 0
    delete_topic(client)
    node.is_reading_segments = True
    node.tick()
    assert not reader.has_answer()
    assert not node.shard.partitions.locals


def test_an_offset_of_a_partition_that_was_purged_is_not_stored() -> None:
    """The purge was ordered before the poll, and applied after."""
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"one", b"two"])
    reader = node.client()
    node.disks[DATA].is_syncing = False
    client.post(client.make_frame(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t")))
    reader.post(reader.make_frame(messages.POLL_MESSAGES, POLL))
    assert told(reader.take()) is None
    commits = node.shard.front.polls.commits
    assert len(commits.pending) == 1
    node.disks[DATA].is_syncing = True
    node.tick(200)
    assert not commits.pending
    request = messages.GetOffset(ME, "s", "t", 0)
    assert reader.ask(messages.GET_OFFSET, request) is None
    assert poll(reader).messages_count == 0


def test_a_primary_that_is_deposed_forgets_the_offsets_that_it_did_not_store() -> None:
    trio = Trio()
    trio.send(b"one")
    leader = trio.nodes[0]
    assert leads(leader)
    client = trio.login(0)
    trio.cut[0] = None
    request = msgspec.structs.replace(POLL, stream=STREAM, topic=TOPIC)
    client.post(client.make_frame(messages.POLL_MESSAGES, request))
    commits = leader.shard.front.polls.commits
    assert len(commits.pending) == 1
    for node in trio.nodes:
        node.is_checking = False  # It takes long.
    while not any(each.is_serving for each in trio.groups(1)[1:] + trio.groups(2)[1:]):
        trio.tick(20)
    assert commits.pending
    trio.cut.clear()
    trio.tick(100)
    assert not leads(leader)
    assert not commits.pending


@pytest.mark.parametrize(
    ("command", "request_"),
    [
        (messages.POLL_MESSAGES, msgspec.structs.replace(POLL, partition_id=9)),
        (messages.GET_OFFSET, messages.GetOffset(ME, "s", "t", 9)),
    ],
)
def test_a_partition_that_is_not_there_has_neither_messages_nor_offsets(
    command: Command[Any, Any], request_: object
) -> None:
    client = with_topic(Whole())
    assert told(client.send_frame(client.make_frame(command, request_))) == Code.PARTITION_NOT_FOUND


# Orders.


def test_who_left_a_group_is_not_told_that_an_order_on_its_way_was_refused() -> None:
    """SE-9: the offset may yet be stored, though the partition is not dealt to who asked."""
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"one"])
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    member = node.client()
    member.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    place = messages.StoreOffset(
        consumer=Consumer(ConsumerKind.GROUP, "g"), stream="s", topic="t", partition_id=0, offset=0
    )
    frame = member.make_frame(messages.STORE_OFFSET, place)
    node.disks[DATA].is_syncing = False
    member.post(frame)
    assert not member.has_answer()
    client.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    member.ask(groups.LEAVE_GROUP, groups.LeaveGroup("s", "t", "g"))
    assert told(member.send_frame(frame)) == Code.TRANSIENT_NOT_COMMITTED
    node.disks[DATA].is_syncing = True
    node.tick()
    assert told(member.take()) is None
    again = member.make_frame(messages.STORE_OFFSET, place)
    assert told(member.send_frame(again)) == Code.CONSUMER_GROUP_PARTITION_NOT_OWNED


def fill_journal(node: Whole, client: Client) -> None:
    """Have the journal of the partitions full, and a checkpoint that would make room wait."""
    node.hold_store(DATA, FileReplaced)
    for _ in range(100):
        client.post(client.send_frame_of("s", "t", [bytes(30_000)]))
        if not client.has_answer():
            return
        client.take()
    raise AssertionError("there is always room")


def test_what_waits_for_room_is_answered_when_its_partition_goes() -> None:
    node = Whole(journal_bytes=512 * KIB)
    client, other = with_topic(node), node.client()
    fill_journal(node, client)
    delete_topic(other)
    node.tick()
    assert told(client.take()) == Code.TRANSIENT_NOT_COMMITTED
    node.release_store(DATA)
    node.tick(2)
    other.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    other.send("s", "t", [b"there is room"])


def test_what_was_not_ordered_is_taken_back_when_its_user_goes() -> None:
    node = Whole(journal_bytes=512 * KIB)
    root, anna = with_anna(node)
    fill_journal(node, anna)
    before = messages_of(node)
    root.ask(users.DELETE_USER, users.DeleteUser("anna"))
    assert told(anna.take()) == Code.UNAUTHORIZED
    assert told(anna.take()) == EvictionReason.NO_SESSION
    assert is_over(anna)
    node.release_store(DATA)
    node.tick(2)
    assert messages_of(node) == before
    root.send("s", "t", [b"there is room"])


# Retention.


def test_a_pass_of_retention_goes_on_when_a_partition_is_deleted_in_it() -> None:
    data = PlaneConfig(
        cluster=1,
        replica=0,
        replica_count=1,
        timeouts=Timeouts(),
        seed=7,
        journal=DATA,
        slice_groups_max=1,
    )
    node = make_node(data=data)
    client = with_topic(node, 2)
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "other"))
    for partition in (0, 1):
        for _ in range(5):
            client.send("s", "t", [PAYLOAD], to=ToPartition(partition))
    limit_size(client)
    machines = [each.machine for each in node.shard.partitions.locals.values()]
    for _ in range(2 * PASS):
        node.tick()
        if machines[0].first_offset:
            break
    assert [each.first_offset > 0 for each in machines[:2]] == [True, False]
    delete_topic(client)
    node.tick(2 * PASS)
    assert machines[1].first_offset == 0
    assert client.send("s", "other", [b"still here"]).base_offset == 0


def test_who_keeps_messages_of_a_topic_that_is_gone_is_named_by_numbers() -> None:
    held = Held(idle_ticks=100)
    held.add(0, (ConsumerKind.CONSUMER, 7), 1000, is_idle=False)
    (finding,) = held.end_look(State(), 0)
    assert finding.file == "0/0"
    assert "consumer 7" in finding.text


# Frames.


def test_a_frame_of_a_kind_that_no_group_takes_is_counted_and_dropped() -> None:
    trio = Trio()
    header = ForwardRegisterHeader(
        cluster=1, replica=1, client=5, life=trio.nodes[1].shard.metadata.plane.shared.life
    )
    trio.fire(0, 1, seal_frame(FORWARD_REGISTER, header, b""))
    assert trio.count(0, "frame.unused") == 1
    assert trio.nodes[0].sent == []


def beat_of(trio: Trio, journal: int, *beats: GroupBeat) -> bytes:
    """Return a heartbeat of the second node."""
    life = trio.nodes[1].shard.metadata.plane.shared.life
    header = NodeHeartbeatHeader(cluster=1, replica=1, life=life, journal=journal)
    return seal_frame(NODE_HEARTBEAT, header, encode_beats(beats))


def test_a_heartbeat_of_a_store_that_is_not_here_is_counted_and_dropped() -> None:
    trio = Trio()
    trio.fire(0, 1, beat_of(trio, 7))
    assert trio.count(0, "frame.foreign") == 1


def test_a_node_cannot_speak_for_a_group_in_a_view_that_another_leads() -> None:
    trio = Trio()
    replica = trio.groups(0)[0]
    assert replica.is_primary
    beat = GroupBeat(replica.group, view=replica.view + 3, commit=99, is_declined=False)
    before = (replica.view, replica.commit_min)
    trio.fire(0, 1, beat_of(trio, 0, beat))
    assert (replica.view, replica.commit_min) == before
    assert trio.send(b"one") == 0


# Files.


def test_a_node_is_not_ready_before_the_files_of_its_partitions_are_taken_up() -> None:
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"one"])
    node.end()
    node.is_reading_segments = False
    node.start()
    assert node.shard.data_plane.has_begun
    assert not is_ready(node)
    node.is_reading_segments = True
    node.tick()
    assert is_ready(node)
    assert poll(node.client(client=9)).messages_count == 1


def test_a_node_of_several_leaves_files_alone_that_metadata_has_not_seen() -> None:
    """FM-11: this node may lag, and the partition be to come."""
    trio = Trio()
    trio.send(b"one")
    node = trio.nodes[2]
    [(file, data)] = stored(node).items()
    strange = SegmentFile(file.namespace + 1, 99, 0, 0)
    put(node.segments, {strange: data})
    node.crash()
    trio.tick(3)
    assert node.shard.metadata.is_caught_up
    assert node.shard.metadata.state.revision < strange.created_revision
    assert strange in node.segments.logs
    assert node.segments.quarantined == []
