"""Nothing looks at all partitions because of one event, one turn or one change (O1.4)."""

from collections.abc import Iterator

import pytest

from headrace.ports.host import StopWanted
from headrace.shard.config import PlaneConfig
from headrace.storage.checkpoint import decode_checkpoint
from headrace.storage.records import prepare_op
from headrace.vsr.timeouts import Timeouts
from headrace.wire.commands import groups, messages, streams, topics
from headrace.wire.errors import Code, RefusedError
from headrace.wire.fields import FieldKind, make_field
from headrace.wire.identifiers import Consumer, ToPartition
from headrace.wire.numbers import ConsumerKind
from headrace.wire.options import make_options
from headrace.wire.replies import read_answer
from tests.shard.test_node import WEAK
from tests.shard.trio import STREAM, Trio
from tests.shard.visits import Visits, counted_visits
from tests.shard.whole import Client, Whole

COUNT = 64  # partitions; a walk over them cannot hide among the visits that are allowed
PER_TOPIC = 4
SLACK = 8  # visits of what has something to do, whatever the number of partitions


@pytest.fixture
def visits() -> Iterator[Visits]:
    with counted_visits() as counted:
        yield counted


def with_partitions(node: Whole, count: int = COUNT) -> Client:
    """Give a client of a node with so many partitions, one batch in each."""
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    for number in range(count // PER_TOPIC):
        client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PER_TOPIC, f"t{number}"))
        for partition in range(PER_TOPIC):
            client.send("s", f"t{number}", [b"one"], to=ToPartition(partition))
    # Until the batches are in their segments, and a pass has looked again at what was made (RC-4).
    node.tick(120)
    assert len(node.shard.partitions.locals) == count
    return client


def plane_slicing(count: int) -> PlaneConfig:
    """Give a data plane that looks at so many groups in a turn."""
    return PlaneConfig(
        cluster=1,
        replica=0,
        replica_count=1,
        timeouts=Timeouts(),
        seed=7,
        journal=1,
        slice_groups_max=count,
    )


def test_a_request_is_taken_back_from_the_group_that_it_waits_in(visits: Visits) -> None:
    node = Whole()
    client = with_partitions(node)
    node.is_syncing = False
    for _ in range(40):  # more than a pipeline holds
        client.post(client.send_frame_of("s", "t0", [b"late"]))
    visits.clear()
    node.tick(1101)
    codes = []
    for frame in node.inbox.pop(client.connection):
        with pytest.raises(RefusedError) as refused:
            read_answer(frame)
        codes.append(refused.value.code)
    assert codes.count(Code.TRANSIENT_NOT_ACCEPTED) == 8
    assert codes.count(Code.TRANSIENT_NOT_COMMITTED) == 32
    assert visits.largest <= SLACK


def test_a_start_visits_each_partition_a_few_times(visits: Visits) -> None:
    counts = {}
    for count in (COUNT // 2, COUNT):
        node = Whole()
        with_partitions(node, count)
        node.segments.kill()
        visits.clear()
        node.start()
        assert len(node.shard.partitions.locals) == count
        counts[count] = visits.total
    # Each is made, begun, opened, written and told of: five turns.
    assert counts[COUNT] <= 5 * COUNT + 2 * SLACK
    assert counts[COUNT] - 2 * counts[COUNT // 2] <= SLACK


def test_a_start_after_a_power_cut_visits_each_partition_a_few_times(visits: Visits) -> None:
    """FM-7: every partition settles what it may have lost."""
    node = Whole(topic_defaults=WEAK)
    with_partitions(node)
    visits.clear()
    node.crash(is_power_cut=True)
    node.tick(20)
    assert all(local.lost_until for local in node.shard.partitions.locals.values())
    visited = visits.total
    assert not any(local.is_short for local in node.shard.partitions.locals.values())
    assert visited <= 12 * COUNT


def test_an_idle_turn_visits_nobody(visits: Visits) -> None:
    node = Whole()
    with_partitions(node)
    visits.clear()
    node.tick(300)
    assert visits.turns >= 300
    assert visits.total == 0


def test_a_node_that_stays_silent_costs_nothing(visits: Visits) -> None:
    """Whoever it led is looked at; when others lead them, nobody is."""
    count = 4 * SLACK
    trio = Trio()
    trio.login(0).ask(topics.CREATE_TOPIC, topics.CreateTopic(STREAM, count, "many"))
    trio.tick(3)
    trio.cut[0] = None
    trio.tick(600)
    led = [each.view for each in trio.groups(1)]
    assert len(led) > count
    assert 0 not in led  # Nobody follows the silent node any more.
    visits.clear()
    trio.tick(500)
    assert visits.largest <= SLACK


def test_a_send_visits_one_partition(visits: Visits) -> None:
    node = Whole()
    client = with_partitions(node)
    visits.clear()
    client.send("s", "t0", [b"two"])
    node.tick(20)
    assert visits.largest == 1


def test_a_change_visits_the_topic_that_changed(visits: Visits) -> None:
    node = Whole()
    client = with_partitions(node)
    visits.clear()
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PER_TOPIC, "new"))
    client.ask(topics.PURGE_TOPIC, topics.PurgeTopic("s", "new"))
    client.ask(topics.CREATE_PARTITIONS, topics.CreatePartitions("s", "new", 1))
    client.ask(topics.DELETE_PARTITIONS, topics.DeletePartitions("s", "new", 1))
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "new"))
    node.tick(2)
    assert visits.largest == PER_TOPIC + 1  # one was added
    assert len(node.shard.partitions.locals) == COUNT
    visits.clear()
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t0", "readers"))
    assert visits.total == 0
    client.ask(streams.DELETE_STREAM, streams.DeleteStream("s"))
    assert not node.shard.partitions.locals


def test_a_partition_that_fails_is_found_without_a_search(visits: Visits) -> None:
    """P7: and a checkpoint asks nobody else whether its segments lack something."""
    node = Whole()
    client = with_partitions(node)
    checkpoint(node)
    node.segments.failing = "the disk is broken"
    client.send("s", "t0", [b"two"])
    visits.clear()
    node.tick(20)
    assert [finding.kind for finding in node.shard.take_findings()] == ["fenced"]
    node.segments.failing = None
    checkpoint(node)
    assert node.shard.marks.counts["partitions.lacking_in_checkpoint"] == 1
    assert visits.largest <= 2


@pytest.mark.parametrize("slice_max", [1, 256])
def test_retention_visits_partitions_with_limits_and_sealed_segments(
    visits: Visits, slice_max: int
) -> None:
    """PT-28."""
    node = Whole(data=plane_slicing(slice_max), retention_ticks=200, segment_bytes_max=512)
    client = with_partitions(node)
    hour = make_field(3600 * 1_000_000, FieldKind.UINT64)
    for name, options in (
        ("kept", make_options({})),
        ("old", make_options({"message_expiry": hour})),
    ):
        client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PER_TOPIC, name, options))
        for partition in (0, 0, 1, 1):
            client.send("s", name, [bytes(600)], to=ToPartition(partition))
    node.tick(120)
    sealed = [
        each for each in node.shard.partitions.locals.values() if each.machine.oldest_sealed_stamp
    ]
    assert len(sealed) == 4
    visits.clear()
    node.tick(400)
    assert visits.total == 4  # of two partitions in two passes
    assert visits.largest == min(2, slice_max)
    node.crash()
    node.tick(120)  # What was made is looked at again (RC-4).
    visits.clear()
    node.tick(200)
    assert visits.total == 2


def test_a_checkpoint_visits_what_has_changed(visits: Visits) -> None:
    """O2.8."""
    node = Whole()
    client = with_partitions(node)
    checkpoint(node)
    visits.clear()
    checkpoint(node)
    assert visits.largest <= 1  # who asked for it is told
    for number in range(5):
        client.send("s", f"t{number}", [b"two"])
    visits.clear()
    checkpoint(node)
    assert 5 <= visits.largest <= 6
    assert visits.total <= 5 * 5
    node.step(StopWanted())
    node.tick(5)
    assert node.shard.is_stopped
    node.start()
    assert len(node.shard.partitions.locals) == COUNT  # those that were not captured again too
    assert {local.machine.next_offset for local in node.shard.partitions.locals.values()} == {1, 2}


def test_a_checkpoint_of_all_partitions_takes_turns(visits: Visits) -> None:
    node = Whole(data=plane_slicing(4))
    with_partitions(node)
    visits.clear()
    checkpoint(node)
    assert visits.total >= COUNT
    assert visits.largest <= 4 + SLACK


def test_a_checkpoint_holds_all_groups_as_of_one_moment() -> None:
    """Decision 0023: a group that changes before its turn has come is captured first."""
    count = 2 * PER_TOPIC
    node = Whole(data=plane_slicing(1))
    client = with_partitions(node, count)
    node.is_reading_segments = False  # Its answers would give the checkpoint more turns.
    plane = node.shard.data_plane
    covered = plane.store.issued
    plane.want_checkpoint()
    node.tick()
    for number in reversed(range(count)):
        topic, partition = divmod(number, PER_TOPIC)
        client.send("s", f"t{topic}", [b"two"], to=ToPartition(partition))
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t1"))
    node.is_reading_segments = True
    node.tick(count)
    assert plane.checkpoints.done_count == 1
    read = decode_checkpoint(bytes(node.disks[1].cached["checkpoint.1"]))
    assert read.covered == covered < plane.store.issued
    assert [prepare_op(each.commit_header) for each in read.groups] == [1] * count
    node.crash()
    assert [each.machine.next_offset for each in node.shard.partitions.locals.values()] == [2] * 4
    checkpoint(node)
    checkpoints = [name for name in node.disks[1].cached if name.startswith("checkpoint.")]
    read = decode_checkpoint(bytes(node.disks[1].cached[checkpoints[0]]))
    assert [prepare_op(each.commit_header) for each in read.groups] == [2] * PER_TOPIC


def test_an_offset_of_a_group_that_is_gone_is_removed_when_it_comes_late() -> None:
    """RC-17: the offset was ordered before the group was deleted, and is applied after."""
    node = Whole()
    client = with_partitions(node, PER_TOPIC)
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t0", "readers"))
    other = node.client(client=77)
    store = messages.StoreOffset(
        consumer=Consumer(ConsumerKind.GROUP, "readers"),
        stream="s",
        topic="t0",
        partition_id=0,
        offset=0,
    )
    sync = node.disks[1].sync
    setattr(node.disks[1], "sync", lambda: None)  # noqa: B010
    other.post(other.make_frame(messages.STORE_OFFSET, store))
    client.ask(groups.DELETE_GROUP, groups.DeleteGroup("s", "t0", "readers"))
    machine = next(iter(node.shard.partitions.locals.values())).machine
    before = machine.state_hash()
    setattr(node.disks[1], "sync", sync)  # noqa: B010
    node.tick(5)
    assert other.take()
    assert machine.state_hash() != before
    assert machine.stored_group_ids() == []


def checkpoint(node: Whole) -> None:
    """Have the data plane take a checkpoint."""
    plane = node.shard.data_plane
    done = plane.checkpoints.done_count
    plane.want_checkpoint()
    node.tick(COUNT)
    assert plane.checkpoints.done_count == done + 1
