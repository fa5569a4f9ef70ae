"""Files of dropped segments are removed soon, on an idle node too, and at once on a full disk."""

from collections.abc import Callable

import pytest

from headrace.partitions.machine import PartitionMachine
from headrace.wire.commands import topics
from headrace.wire.fields import FieldKind, make_field
from headrace.wire.options import make_options
from tests.shard.test_node import with_topic
from tests.shard.whole import Client, Whole

TICKS_MAX = 500  # 5 s
PAYLOAD = b"x" * 400


def with_segments(node: Whole, count: int = 4) -> Client:
    """Give a client of a topic with so many sealed segments, all of them in their files."""
    client = with_topic(node)
    send(client, count)
    node.tick(10)
    assert len(node.segments.logs) == count
    return client


def send(client: Client, count: int) -> None:
    for _ in range(count):
        client.send("s", "t", [PAYLOAD])


def delete_segments(client: Client, count: int) -> None:
    client.ask(topics.DELETE_SEGMENTS, topics.DeleteSegments("s", "t", 0, count))


def machine(node: Whole) -> PartitionMachine:
    (local,) = node.shard.partitions.locals.values()
    return local.machine


def drop_by_request(node: Whole, client: Client) -> int:
    delete_segments(client, 3)
    return 1


def drop_by_purge(node: Whole, client: Client) -> int:
    client.ask(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t"))
    return 0


def drop_by_age(node: Whole, client: Client) -> int:
    request = topics.UpdateTopic(
        "s", "t", "t", make_options({"message_expiry": make_field(1, FieldKind.UINT64)})
    )
    client.ask(topics.UPDATE_TOPIC, request)
    node.tick(node.shard.settings.retention_ticks)
    assert machine(node).first_offset == 4
    return 0


@pytest.mark.parametrize("drop", [drop_by_request, drop_by_purge, drop_by_age])
def test_an_idle_node_gives_space_back_within_five_seconds(
    drop: Callable[[Whole, Client], int],
) -> None:
    node = Whole(segment_bytes_max=512, retention_ticks=20)
    client = with_segments(node)
    left = drop(node, client)
    node.tick(TICKS_MAX)
    assert len(node.segments.logs) == left
    node.crash()
    assert len(node.segments.logs) == left


def test_what_is_dropped_again_and_again_shares_checkpoints() -> None:
    node = Whole(segment_bytes_max=512)
    client = with_segments(node, 1)
    before = node.shard.data_plane.checkpoints.done_count
    for _ in range(300):
        send(client, 1)
        delete_segments(client, 9)
        node.tick(10)
    taken = node.shard.data_plane.checkpoints.done_count - before
    assert 5 <= taken <= 11
    node.tick(TICKS_MAX)
    assert len(node.segments.logs) == 0


def test_a_node_that_drops_nothing_takes_no_checkpoint() -> None:
    node = Whole(segment_bytes_max=512)
    with_segments(node)
    before = node.shard.data_plane.checkpoints.done_count
    node.tick(3000)
    assert node.shard.data_plane.checkpoints.done_count == before


def test_what_a_kill_left_goes_after_the_start() -> None:
    node = Whole(segment_bytes_max=512)
    client = with_segments(node)
    node.shard.data_plane.want_checkpoint()  # It names all four.
    node.tick(2)
    delete_segments(client, 3)
    assert len(node.segments.logs) == 4
    node.crash()
    assert machine(node).first_offset == 3
    node.tick(TICKS_MAX)
    assert len(node.segments.logs) == 1


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("is_named", [False, True])
def test_on_a_full_disk_files_go_at_once(*, is_power_cut: bool, is_named: bool) -> None:
    """No checkpoint can be taken before: it waits for segments that lack space."""
    node = Whole(segment_bytes_max=512)
    client = with_segments(node)
    if is_named:
        node.shard.data_plane.want_checkpoint()
        node.tick(2)
    done = node.shard.data_plane.checkpoints.done_count
    node.segments.is_full = True
    send(client, 1)
    node.tick(10)
    assert node.shard.is_without_space
    node.shard.data_plane.want_checkpoint()
    node.tick(200)
    assert node.shard.data_plane.checkpoints.done_count == done
    delete_segments(client, 3)
    node.tick()
    assert len(node.segments.logs) == 1
    assert node.shard.data_plane.checkpoints.done_count == done
    for _ in range(2):
        node.crash(is_power_cut=is_power_cut)
        assert machine(node).fence is None
        assert (machine(node).first_offset, machine(node).next_offset) == (3, 5)
    node.segments.is_full = False
    node.tick(TICKS_MAX)
    assert len(node.segments.logs) == 2
    node.crash(is_power_cut=is_power_cut)
    assert (machine(node).first_offset, machine(node).next_offset) == (3, 5)


def test_on_a_full_disk_a_purge_frees_what_a_running_checkpoint_names() -> None:
    node = Whole(segment_bytes_max=512)
    client = with_segments(node)
    node.segments.is_full = True
    send(client, 2)
    node.shard.data_plane.want_checkpoint()  # It names six segments; two are not written.
    node.tick(10)
    assert node.shard.is_without_space
    client.ask(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t"))
    node.tick(1)
    assert not node.segments.logs
    node.segments.is_full = False
    node.tick(TICKS_MAX)
    assert machine(node).fence is None
    assert not node.segments.logs
    node.crash()
    assert machine(node).fence is None
    send(node.client(), 1)
