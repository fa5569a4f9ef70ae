"""SH-26: frames that come before their partition wait for it, within bounds."""

import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.ports.bus import DropReason
from headrace.shard.owned import parked as parked_room
from headrace.shard.owned.failures import Cause
from headrace.shard.owned.parked import (
    BUFFER_BYTES,
    PARTITION_BYTES_MAX,
    PASSES_MAX,
    REQUESTS_MAX,
    SHARD_BYTES_MAX,
    Parked,
    ParkedPrepare,
    ParkedRequest,
)
from headrace.wire.commands import topics
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import read_answer
from headrace.wire.requests import RequestHeader
from tests.shard.test_node import with_topic
from tests.shard.test_reconcile import create, delete, unreconciled
from tests.shard.trio import STREAM, Trio
from tests.shard.whole import Client, Whole

SECOND = 100


def request(ticket: int, size_bytes: int = 1, group: int = 1) -> ParkedRequest:
    return ParkedRequest(group, 5, ticket, RequestHeader(request=1), bytes(size_bytes))


def prepare(number: int, size_bytes: int = 1, group: int = 1) -> ParkedPrepare:
    frame = number.to_bytes(8, "little") + bytes(size_bytes)
    return ParkedPrepare(group, 5, 1, FrameKind.PREPARE, PrepareHeader(), frame)


def test_requests_obey_the_count_and_the_bytes() -> None:
    """SH-26: 128 requests and 4 MiB of a partition, 16 MiB of the shard, in steps of 4 KiB."""
    parked = Parked()
    for ticket in range(1, REQUESTS_MAX + 1):
        parked.put_request(request(ticket))
    assert parked.size_bytes == REQUESTS_MAX * BUFFER_BYTES
    assert not parked.has_room(1, 1)
    assert parked.has_room(2, PARTITION_BYTES_MAX)
    assert not parked.has_room(2, PARTITION_BYTES_MAX + 1)
    parked = Parked()
    for group in range(SHARD_BYTES_MAX // PARTITION_BYTES_MAX):
        parked.put_request(request(1, PARTITION_BYTES_MAX, group))
    assert not parked.has_room(99, 1)
    parked.check([])


def test_a_prepare_is_refused_only_once_a_bound_is_spent() -> None:
    """SH-26: one of any size finds an empty place; one that waits already takes no second."""
    parked = Parked()
    assert parked.put_prepare(prepare(1, PARTITION_BYTES_MAX * 2))
    assert parked.put_prepare(prepare(1, PARTITION_BYTES_MAX * 2))
    assert parked.count == 1
    assert not parked.put_prepare(prepare(2))
    assert parked.put_prepare(prepare(3, SHARD_BYTES_MAX, group=2))
    assert not parked.put_prepare(prepare(4, group=3))
    parked.check([])


def test_requests_age_and_prepares_do_not() -> None:
    """SH-26, O5.4: three passes; what stays keeps its order, and prepares come first."""
    parked = Parked()
    parked.put_request(request(1))
    for number in (1, 2):
        assert parked.put_prepare(prepare(number))
    for _ in range(PASSES_MAX - 1):
        assert parked.age(1) == []
    parked.put_request(request(2))
    assert parked.age(1) == [request(1)]
    assert parked.take(1, lambda _: True) == [prepare(1), prepare(2), request(2)]
    assert (parked.count, parked.size_bytes, parked.groups()) == (0, 0, [])


def stalled(node: Whole, failures: int) -> Client:
    """Return a client whose send waits for a topic that could not be made so many times."""
    client = with_topic(node)
    node.is_checking = False  # It takes long.
    node.tick(16 * SECOND)
    node.is_checking = True
    partitions = node.shard.partitions
    with unreconciled(node):
        create(client, "u")
    group = (1 << 20) | 0
    # A check takes every partition of a whole pass as made: no build fails outside of this test.
    node.is_checking = False
    pauses = [SECOND << each for each in range(failures - 1)]
    for each in range(failures):
        at = node.now - sum(pauses[each:])
        partitions._failures.note(group, Cause.ADD, at, "why")
    client.post(client.send_frame_of("s", "u", [b"early"]))
    assert not client.has_answer()
    assert partitions.reconcile_status().parked == 1
    return client


def code_of(client: Client) -> Code:
    try:
        read_answer(client.take())
    except RefusedError as error:
        return error.code
    raise AssertionError("it was served")


def test_a_send_waits_for_its_partition() -> None:
    """SH-26: it is served as soon as the partition is made."""
    node = Whole()
    client = stalled(node, 1)
    node.tick(2 * SECOND)
    read_answer(client.take())
    assert node.shard.partitions.reconcile_status().parked == 0


def test_a_request_that_waited_three_passes_is_answered() -> None:
    """SH-26, RC-16: never left silent; RC-3: passes go on while it waits."""
    node = Whole()
    client = stalled(node, 5)
    node.tick(5 * SECOND)
    assert code_of(client) == Code.TRANSIENT_NOT_ACCEPTED
    assert node.shard._turn.drops.total == 1


def test_a_request_of_a_deleted_partition_does_not_reach_its_successor() -> None:
    """RC-16, RC-20, O5.4: the stamp stays that of the first one."""
    node = Whole()
    client = stalled(node, 3)
    other = node.client(client=99)
    delete(other, "u")
    create(other, "u")
    node.tick(10 * SECOND)
    assert code_of(client) == Code.TRANSIENT_NOT_ACCEPTED
    assert other.send("s", "u", [b"first"]).base_offset == 0


def test_a_connection_that_closes_frees_the_place() -> None:
    """SH-26."""
    node = Whole()
    stalled(node, 5).close()
    assert node.shard.partitions.reconcile_status().parked == 0


class LateTrio(Trio):
    """Three nodes, of which the last may hear nothing of the metadata group."""

    is_lagging = False

    def fire(self, target: int, sender: int, frame: bytes) -> None:
        _, header = decode_replica(frame)
        is_of_metadata = getattr(header, "group", 0) == METADATA_GROUP
        if not (self.is_lagging and target == 2 and is_of_metadata):
            super().fire(target, sender, frame)


@pytest.mark.slow
def test_a_prepare_waits_at_a_replica_whose_metadata_lags() -> None:
    """SH-26, O5.4: its partition is made later, and has it then."""
    trio = LateTrio()
    late = trio.nodes[2]
    client = trio.login(0)
    trio.is_lagging = True
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic(STREAM, 1, "u"))
    client.post(client.send_frame_of(STREAM, "u", [b"first"]))
    trio.tick(3)
    assert trio.count(2, "parked.prepare") > 0
    assert late.shard.partitions.reconcile_status().parked > 0
    trio.is_lagging = False
    trio.tick(200)
    assert late.shard.partitions.reconcile_status().parked == 0
    made = late.shard.partitions.locals[1 << 20]
    assert made.replica.commit_min == trio.nodes[0].shard.partitions.locals[1 << 20].replica.op
    assert late.shard._turn.drops.total == 0


def test_frames_of_other_incarnations_are_told_apart() -> None:
    """RC-20: of an earlier one rejected; of a later one ops wait, and the rest is sent again."""
    node = Whole()
    with_topic(node)
    parking, counts = node.shard.partitions.parking, node.shard.marks.counts
    [group] = node.shard.partitions.locals
    parking.take_frame(1, FrameKind.PREPARE, PrepareHeader(group=group, origin=0), b"old")
    assert (counts["partition_frames_rejected_stale_total"], parking.parked.count) == (1, 0)
    parking.take_frame(1, FrameKind.PREPARE_OK, PrepareHeader(group=group, origin=99), b"told")
    assert (counts["partition_frames_rejected_ahead_total"], parking.parked.count) == (1, 0)
    parking.take_frame(1, FrameKind.PREPARE, PrepareHeader(group=group, origin=99), b"new")
    assert (counts["parked.prepare"], parking.parked.count) == (1, 1)
    node.tick(5 * SECOND)
    assert parking.parked.count == 1, "prepares do not age"


def drops(node: Whole) -> list[tuple[DropReason, int]]:
    return [(each.reason, each.count) for each in node.shard._turn.drops.counts()]


def test_a_prepare_that_finds_no_place_is_dropped_and_counted() -> None:
    """SH-18, SH-26: its primary sends it again."""
    node = Whole()
    with_topic(node)
    parking = node.shard.partitions.parking
    [group] = node.shard.partitions.locals
    header = PrepareHeader(group=group, origin=99)
    parking.take_frame(1, FrameKind.PREPARE, header, bytes(PARTITION_BYTES_MAX))
    parking.take_frame(1, FrameKind.PREPARE, header, b"one more")
    assert parking.parked.count == 1
    assert drops(node) == [(DropReason.PARK_OVERFLOW, 1)]


def test_a_prepare_of_what_was_never_created_is_dropped_and_counted() -> None:
    """RC-16: metadata has passed the revision that it names."""
    node = Whole()
    client = with_topic(node)
    parking = node.shard.partitions.parking
    [group] = node.shard.partitions.locals
    to_come = node.shard.metadata.commit + 1
    header = PrepareHeader(group=group + 1, origin=to_come)
    parking.take_frame(1, FrameKind.PREPARE, header, b"of nothing")
    assert parking.parked.count == 1
    while node.shard.metadata.state.revision < to_come:
        create(client, f"t{node.shard.metadata.commit}")
    node.tick(2 * SECOND)
    assert parking.parked.count == 0
    assert drops(node) == [(DropReason.PARK_DROPPED, 1)]


def test_a_send_that_finds_no_place_is_told_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """SH-26."""
    monkeypatch.setattr(parked_room, "REQUESTS_MAX", 1)
    node = Whole()
    client, other = with_topic(node), node.client(client=99)
    with unreconciled(node):
        create(client, "u")
        client.post(client.send_frame_of("s", "u", [b"first"]))
        other.post(other.send_frame_of("s", "u", [b"second"]))
        assert code_of(other) == Code.TRANSIENT_NOT_ACCEPTED
    assert drops(node) == [(DropReason.PARK_OVERFLOW, 1)]
    node.tick(2 * SECOND)
    read_answer(client.take())


def test_a_send_that_waits_does_not_follow_a_name_to_another_topic() -> None:
    """O5.4: its topic has another name by now, and another topic has its name."""
    node = Whole()
    client, other = with_topic(node), node.client(client=99)
    with unreconciled(node):
        create(client, "u")
        client.post(client.send_frame_of("s", "u", [b"for the first"]))
        other.ask(topics.UPDATE_TOPIC, topics.UpdateTopic("s", "u", "v"))
        create(other, "u")
    node.tick(2 * SECOND)
    assert code_of(client) == Code.TRANSIENT_NOT_ACCEPTED
    for topic in ("u", "v"):
        assert other.send("s", topic, [b"first"]).base_offset == 0


def test_an_order_goes_on_once_its_partition_is_made() -> None:
    """SH-26: it keeps the ticket by which it has waited."""
    node = Whole()
    client, other = with_topic(node), node.client(client=99)
    with unreconciled(node):
        create(client, "u")
        order = topics.DeleteSegments("s", "u", 0, 1)
        other.post(other.make_frame(topics.DELETE_SEGMENTS, order))
        assert not other.has_answer()
    node.tick(2 * SECOND)
    read_answer(other.take())
