"""Partitions become those of the metadata: passes, slices, deletes in two phases (RC rules)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headrace.base.ids import GroupId, ShardId
from headrace.base.placement import Placement
from headrace.ports.host import NodeOpened
from headrace.ports.probes import Probes
from headrace.ports.segments import PartitionsListed, RemovePartition, SegmentFile
from headrace.shard.owned.failures import PAUSE_TICKS, PAUSE_TICKS_MAX, Cause, Failures, is_reported
from headrace.shard.owned.partitions import Partitions
from headrace.shard.owned.staged import ConfirmRemove, InsertOwned, InsertRouted, RemoveRouted
from headrace.shard.owned.table import Row
from headrace.wire.commands import messages, streams, topics
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import First, ToPartition
from headrace.wire.replies import read_answer
from tests.shard.test_node import ME, poll, with_topic
from tests.shard.test_visits import plane_slicing
from tests.shard.whole import Client, Whole

if TYPE_CHECKING:
    from headrace.ports.recovered import Finding

SECOND = 100


def partitions_of(node: Whole) -> Partitions:
    return node.shard.partitions


def delete(client: Client, topic: str = "t") -> None:
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", topic))


def create(client: Client, topic: str = "t", partitions: int = 1) -> None:
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", partitions, topic))


def marks(node: Whole, name: str) -> int:
    return node.shard.marks.counts.get(name, 0)


def removals(node: Whole) -> list[RemovePartition]:
    return [each for each in node.segments.waiting if isinstance(each, RemovePartition)]


@contextmanager
def unreconciled(node: Whole) -> Iterator[None]:
    """Have no pass begin: as if this shard had much else to compare."""
    reconciler = partitions_of(node)._reconciler
    begin = reconciler._begin
    reconciler._begin = lambda: False  # type: ignore[method-assign]
    node.is_checking = False
    yield
    reconciler._begin = begin  # type: ignore[method-assign]
    node.is_checking = True


def stored(node: Whole) -> Client:
    """Return a client of a node with a topic that has a segment."""
    client = with_topic(node)
    client.send("s", "t", [b"old"])
    node.tick(20)
    assert len(node.segments.logs) == 1
    return client


# Deletes.


def test_memory_goes_after_the_disk() -> None:
    """RC-12, RC-13: a tombstone until the disk has answered."""
    node = Whole()
    client = stored(node)
    [(file, _)] = node.segments.logs.items()
    node.is_reading_segments = False
    delete(client)
    node.tick(2)
    assert partitions_of(node).locals == {}
    assert partitions_of(node)._table.find(file.namespace) is None
    [removal] = removals(node)
    assert (removal.namespace, removal.created_revision) == (file.namespace, file.created_revision)
    [tombstone] = partitions_of(node).reconcile_status().tombstoned
    assert tombstone.phase == "deleting"
    assert partitions_of(node).accounts_for(file.namespace, file.created_revision)
    assert marks(node, "partitions_removed_total") == 0
    node.is_reading_segments = True
    node.tick()
    assert partitions_of(node).reconcile_status().tombstoned == ()
    assert node.segments.logs == {}
    assert marks(node, "partitions_removed_total") == 1
    assert not partitions_of(node).accounts_for(file.namespace, file.created_revision)


def test_files_wait_for_the_journal() -> None:
    """RC-13: a crash before the record of the end would find a partition without files."""
    node = Whole()
    client = stored(node)
    delete_frame = client.make_frame(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    node.hold_store(1)
    client.post(delete_frame)
    node.tick(2)
    [tombstone] = partitions_of(node).reconcile_status().tombstoned
    assert tombstone.phase == "fenced"
    assert len(node.segments.logs) == 1
    node.release_store(1)
    node.tick()
    assert node.segments.logs == {}


def test_a_delete_that_fails_stays_and_is_driven_again() -> None:
    """RC-5, RC-10, RC-11: recorded, backed off, driven again by a pass."""
    node = Whole()
    client = stored(node)
    node.segments.undeletable = "input/output error"
    delete(client)
    node.tick()
    status = partitions_of(node).reconcile_status()
    assert [each.phase for each in status.tombstoned] == ["failed"]
    [failure] = status.failures
    assert (failure.cause, failure.count, failure.text) == (
        Cause.DELETE,
        1,
        "input/output error",
    )
    assert 0 < failure.due_ticks <= PAUSE_TICKS
    assert len(node.segments.logs) == 1
    node.tick(8 * SECOND)
    [failure] = partitions_of(node).reconcile_status().failures
    assert failure.count == 4  # at once, and after 1, 2 and 4 s, with the pass after that
    node.segments.undeletable = None
    node.tick(10 * SECOND)
    status = partitions_of(node).reconcile_status()
    assert (status.tombstoned, status.failures) == ((), ())
    assert node.segments.logs == {}
    assert marks(node, "reconcile.driven_again") >= 3
    assert marks(node, "partitions_reconcile_failures_total") == 4


def test_a_delete_that_fails_does_not_slow_its_successor() -> None:
    """RC-10: another incarnation has a folder of its own."""
    node = Whole()
    client = stored(node)
    node.segments.undeletable = "input/output error"
    for number in range(3):
        delete(client)
        create(client)
        assert client.send("s", "t", [b"%d" % number]).base_offset == 0
        assert bytes(poll(client).batches).count(b"%d" % number) >= 1
        node.tick(20)
    # One number is deleted in its order, one incarnation at a time.
    phases = [each.phase for each in partitions_of(node).reconcile_status().tombstoned]
    assert phases == ["failed", "ready", "ready"]
    node.segments.undeletable = None
    node.tick(3 * SECOND)
    assert partitions_of(node).reconcile_status().tombstoned == ()
    assert len(node.segments.logs) == 1


def test_a_tombstone_is_out_of_reach() -> None:
    """RC-15: a poll that waits for the disk is refused, and may come again if there is another."""
    node = Whole(tail_bytes_max=0)
    client = stored(node)
    node.is_reading_segments = False
    request = messages.PollMessages(
        consumer=ME, stream="s", topic="t", partition_id=0, strategy=First(), count=1,
        auto_commit=False,
    )  # fmt: skip
    reader = node.client(client=77)
    reader.post(reader.make_frame(messages.POLL_MESSAGES, request))
    assert not reader.has_answer()
    with unreconciled(node):
        delete(client)
        create(client)
    node.tick()
    with pytest.raises(RefusedError) as caught:
        read_answer(reader.take())
    assert caught.value.code == Code.TRANSIENT_NOT_ACCEPTED


def test_a_restart_takes_a_delete_up_again() -> None:
    """RC-12: what a crash leaves is found among the orphans."""
    node = Whole()
    client = stored(node)
    node.segments.undeletable = "input/output error"
    delete(client)
    node.tick()
    node.crash()
    assert [each.phase for each in partitions_of(node).reconcile_status().tombstoned] == ["failed"]
    node.segments.undeletable = None
    node.tick(3 * SECOND)
    assert node.segments.logs == {}


# Failures.


def test_failures_back_off_and_are_reported() -> None:
    """RC-10: 1 s doubling to 60 s; the tenth is reported, then each power of two."""
    findings: list[Finding] = []
    failures = Failures(findings, Probes())
    pauses, now = [], 0
    for count in range(1, 70):
        failures.note(5, Cause.DELETE, now, "why")
        record = failures.find(5, Cause.DELETE)
        assert record is not None
        assert record.count == count
        pauses.append(record.due - now)
        assert failures.is_backed_off(5, Cause.DELETE, record.due - 1)
        assert not failures.is_backed_off(5, Cause.DELETE, record.due)
        now = record.due
        failures.check(now)
    assert pauses[:8] == [SECOND * each for each in (1, 2, 4, 8, 16, 32, 60, 60)]
    assert max(pauses) == PAUSE_TICKS_MAX
    assert [each.position for each in findings] == [10, 16, 32, 64]
    assert [count for count in range(1, 40) if is_reported(count)] == [10, 16, 32]
    assert not failures.is_backed_off(5, Cause.ADD, 0), "a stuck delete slows no re-create"
    failures.clear(5, Cause.DELETE)
    assert len(failures) == 0


def test_the_operator_is_told_of_the_tenth_failure() -> None:
    """RC-10: `take_findings` has it, once."""
    node = Whole()
    client = stored(node)
    node.segments.undeletable = "input/output error"
    delete(client)
    node.is_checking = False
    node.tick(250 * SECOND)
    found = [each for each in node.shard.take_findings() if each.kind == "delete fails"]
    assert [(each.file, each.text) for each in found] == [
        ("stream 0 topic 0 partition 0", "input/output error")
    ]


# Passes.


def test_a_pass_is_skipped_when_nothing_is_to_do() -> None:
    """RC-2, RC-3: the safety tick, and the four conditions of the fast skip."""
    node = Whole()
    client = stored(node)
    node.tick(2 * SECOND)
    passed, skipped = marks(node, "reconcile.passed"), marks(node, "reconcile.skipped")
    node.tick(5 * SECOND)
    assert marks(node, "reconcile.passed") == passed
    assert marks(node, "reconcile.skipped") == skipped + 5
    create(client, "u")  # RC-4: the pass after one that did something is not skipped.
    node.tick(SECOND)
    assert marks(node, "reconcile.passed") == passed + 2
    node.segments.undeletable = "input/output error"
    delete(client)
    node.tick(5 * SECOND)
    assert marks(node, "reconcile.passed") >= passed + 6  # As long as there is a failure.
    node.segments.undeletable = None
    node.tick(10 * SECOND)
    passed = marks(node, "reconcile.passed")
    node.tick(5 * SECOND)
    assert marks(node, "reconcile.passed") == passed


def test_a_lost_wake_is_made_good_by_the_tick() -> None:
    """RC-1: a pass compares, and need not have heard of anything."""
    node = Whole()
    client = stored(node)
    with unreconciled(node):
        delete(client)
        assert len(partitions_of(node).locals) == 1
    node.tick(SECOND)
    assert partitions_of(node).locals == {}


def test_many_partitions_are_made_in_slices() -> None:
    """RC-8: between two slices requests are served, and none goes to a wrong partition."""
    node = Whole(data=plane_slicing(4))
    client = with_topic(node)
    node.tick(2 * SECOND)
    steps: list[int] = []
    run = partitions_of(node)._reconciler.run

    def counted() -> bool:
        before = len(partitions_of(node).locals)
        is_run = run()
        steps.append(len(partitions_of(node)._staged))
        assert len(partitions_of(node).locals) == before, "the reconciler only decides"
        return is_run

    partitions_of(node)._reconciler.run = counted  # type: ignore[method-assign]
    create(client, "many", partitions=30)
    assert len(partitions_of(node).locals) == 31
    assert max(steps) == 4
    assert sum(steps) == 30
    assert marks(node, "partitions_materialised_total") == 31


def test_only_the_turn_applies_what_is_staged() -> None:
    """SH-1, SH-22, RC-7 to RC-9: four kinds of changes, each of them harmless if it comes twice."""
    node = Whole(placement=Placement(ShardId(0), 1))
    stored(node)
    partitions = partitions_of(node)
    [local] = partitions.locals.values()
    node.is_checking = False
    partitions._staged.put(InsertOwned(local.target))
    partitions._staged.put(InsertRouted(77, ShardId(3), 5))
    partitions._staged.put(ConfirmRemove(77, 5))
    node.tick()
    assert len(partitions._staged) == 0
    assert partitions.locals == {local.target.group: local}
    assert marks(node, "partitions_duplicate_builds_discarded_total") == 1
    assert [each.kind for each in node.shard.take_findings()] == ["built twice"]
    assert partitions._table.find(77) == Row(ShardId(3), 5)
    assert marks(node, "partitions_removed_total") == 0
    for _ in range(2):
        partitions._staged.put(RemoveRouted(77))
        node.tick()
        assert partitions._table.find(77) is None


# Incarnations.


def test_a_request_is_for_the_incarnation_that_metadata_knows() -> None:
    """SH-27: until the new one is here, whoever asks may come again."""
    node = Whole()
    client = stored(node)
    [local] = partitions_of(node).locals.values()
    to_store = messages.StoreOffset(consumer=ME, stream="s", topic="t", partition_id=0, offset=0)
    to_flush = topics.FlushUnsavedBuffer("s", "t", 0, fsync=True)
    asked: list[Callable[[], object]] = [
        lambda: client.send("s", "t", [b"new"]),
        lambda: poll(client),
        lambda: client.ask(messages.STORE_OFFSET, to_store),
        lambda: client.ask(topics.FLUSH_UNSAVED_BUFFER, to_flush),
        lambda: client.ask(topics.DELETE_SEGMENTS, topics.DeleteSegments("s", "t", 0, 1)),
    ]
    with unreconciled(node):
        delete(client)
        create(client)
        assert list(partitions_of(node).locals.values()) == [local]
        for ask in asked:
            with pytest.raises(RefusedError) as caught:
                ask()
            assert caught.value.code == Code.TRANSIENT_NOT_ACCEPTED
        assert client.ask(topics.GET_TOPIC, topics.GetTopic("s", "t")).topic.messages_count == 0
    node.tick(SECOND)
    assert client.send("s", "t", [b"new"]).base_offset == 0
    assert poll(client).messages_count == 1


# Shards.


def test_files_of_other_shards_are_left_alone() -> None:
    """RC-14, O5.7: one folder for all, and every shard judges its own part of it."""
    node = Whole()
    client = stored(node)
    data = bytes(next(iter(node.segments.logs.values())))
    others = [SegmentFile((7 << 32) + number, 1, 0, 0) for number in range(16)]
    for file in others:
        node.segments.logs[file] = bytearray(data)
    tombstones, orphans = partitions_of(node)._tombstones, partitions_of(node)._orphans
    delete(client)
    placement = Placement(ShardId(1), 2)
    for part in (tombstones, orphans):
        part._placement = placement
    setattr(orphans, "_listed", None)  # noqa: B010 - mypy would take it for None below
    node.is_checking = False
    partitions = tuple((file.namespace, file.created_revision) for file in others)
    orphans.step(PartitionsListed(1, partitions))
    own = [file for file in others if placement.owns(GroupId(file.namespace))]
    assert 0 < len(own) < len(others)
    assert orphans._listed is not None
    assert list(orphans._listed) == [(file.namespace, 1) for file in own]
    foreign = next(file for file in others if file not in own)
    partitions_of(node).tear_down(foreign.namespace, 1)
    assert not tombstones.holds(foreign.namespace, 1)
    [finding] = [each for each in node.shard.take_findings() if each.kind == "foreign"]
    assert finding.text == "it belongs to shard 0: shard 1 does not delete it"
    assert marks(node, "partitions_reconcile_failures_total") == 1


class Member(Whole):
    """One shard of several that begins when it is told to."""

    is_fed = True


def test_partitions_of_other_shards_have_rows_alone() -> None:
    """SH-3, SH-16, RC-5, RC-6: routed when they are created, and no more when they are deleted."""
    placement = Placement(ShardId(0), 2)
    node = Member(placement=placement)
    node.step(NodeOpened())
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    create(client, partitions=16)
    partitions = partitions_of(node)
    own = [group for group in partitions.locals if placement.owns(GroupId(group))]
    assert len(own) == len(partitions.locals)
    assert 0 < len(own) < 16
    status = partitions.reconcile_status()
    assert (status.wanted, status.actual, status.routed) == (len(own), len(own), 16 - len(own))
    rows = [partitions._table.find((0 << 32) | number) for number in range(16)]
    assert sorted({row.owner for row in rows if row is not None}) == [0, 1]
    epoch = rows[0].epoch if rows[0] is not None else 0
    delete(client)
    create(client, partitions=16)
    assert len(partitions._table) == 16
    renewed = partitions._table.find(0)
    assert renewed is not None
    assert renewed.epoch > epoch
    delete(client)
    node.tick(2)
    assert len(partitions._table) == 0
    assert partitions.locals == {}


def test_a_status_says_how_far_a_shard_is() -> None:
    """RC-3, SH-19: what `node reconcile` shows."""
    node = Whole(data=plane_slicing(1))
    client = with_topic(node, partitions=3)
    status = partitions_of(node).reconcile_status()
    assert (status.wanted, status.actual, status.staged, status.parked) == (3, 3, 0, 0)
    assert status.revision == status.passed_revision
    assert not status.is_passing
    client.send("s", "t", [b"one"], to=ToPartition(2))


def test_a_purge_waits_for_the_pass_that_brings_it() -> None:
    """RC-18: it is answered when every partition has applied it, however many slices that takes."""
    node = Whole(data=plane_slicing(1))
    client = with_topic(node, partitions=5)
    for number in range(5):
        client.send("s", "t", [b"old"], to=ToPartition(number))
    client.ask(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t"))
    assert [local.machine.messages_count for local in partitions_of(node).locals.values()] == [
        0
    ] * 5


def test_what_the_disk_answers_is_found_by_its_number() -> None:
    """RC-19: meanwhile another incarnation may have come and gone."""
    node = Whole()
    client = stored(node)
    node.is_reading_segments = False
    for _ in range(3):
        delete(client)
        create(client)
    node.tick(2)
    phases = [each.phase for each in partitions_of(node).reconcile_status().tombstoned]
    assert phases == ["deleting", "ready", "ready"]
    node.is_reading_segments = True
    node.tick(2)
    assert partitions_of(node).reconcile_status().tombstoned == ()
    assert client.send("s", "t", [b"new"]).base_offset == 0


def test_files_to_come_wait_for_their_metadata() -> None:
    """RC-16: of a replica that lags; when metadata has seen their end they go."""
    node = Whole()
    client = stored(node)
    orphans = partitions_of(node)._orphans
    node.is_checking = False
    orphans._is_alone = False
    revision = node.shard.metadata.state.revision
    file = SegmentFile(GroupId(7 << 32), revision + 2, 0, 0)
    node.segments.logs[file] = bytearray(b"to come")
    orphans._listed = {(file.namespace, file.created_revision): None}
    orphans._judged_revision, orphans.is_over = -1, False
    node.tick()
    assert partitions_of(node).accounts_for(file.namespace, file.created_revision)
    assert file in node.segments.logs
    assert marks(node, "partitions.to_come") == 1
    create(client, "u")
    create(client, "v")
    node.tick()
    assert file not in node.segments.logs
