"""Retention waits for consumers, in a whole shard: until they read, leave, or are idle too long."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.ports.network import Ticked
from headrace.ports.recovered import Finding
from headrace.wire.commands import groups, messages, topics
from headrace.wire.commands.holders import GET_HOLDERS, GetHolders
from headrace.wire.errors import RefusedError
from headrace.wire.fields import FieldKind, FieldValue, make_field
from headrace.wire.identifiers import Consumer, First, Next
from headrace.wire.numbers import ConsumerKind
from headrace.wire.options import make_options
from tests.shard.test_clearing import machine, send
from tests.shard.test_node import poll, with_topic
from tests.shard.whole import Client, Whole

ME = Consumer(ConsumerKind.CONSUMER, 1)
OTHER = Consumer(ConsumerKind.CONSUMER, 2)
BILLING = Consumer(ConsumerKind.GROUP, "billing")
PASS = 20  # ticks between two looks
IDLE = 3000


def make_node(**settings: Any) -> Whole:
    options: dict[str, Any] = {
        "segment_bytes_max": 512,
        "retained_bytes_max": 800,
        "retention_ticks": PASS,
        "consumers_idle_ticks": IDLE,
    }
    return Whole(**(options | settings))


def with_messages(node: Whole) -> Client:
    """Give a client of a topic without limits, with five sealed segments of one message each."""
    client = with_topic(node)
    send(client, 5)
    return client


def update(client: Client, **options: FieldValue) -> None:
    kinds = {"message_expiry": FieldKind.UINT64, "max_topic_size": FieldKind.UINT64}
    fields = {
        key: make_field(value, kinds.get(key, FieldKind.STRING)) for key, value in options.items()
    }
    client.ask(topics.UPDATE_TOPIC, topics.UpdateTopic("s", "t", "t", make_options({**fields})))


def limit_age(client: Client) -> None:
    update(client, message_expiry=1)


def limit_size(client: Client) -> None:
    update(client, max_topic_size=1 << 40)  # The bound of the server is smaller: one segment.


def store(client: Client, offset: int, who: Consumer = ME) -> None:
    request = messages.StoreOffset(
        consumer=who, stream="s", topic="t", partition_id=0, offset=offset
    )
    client.ask(messages.STORE_OFFSET, request)


def delete_offset(client: Client, who: Consumer) -> None:
    request = messages.DeleteOffset(consumer=who, stream="s", topic="t", partition_id=0)
    client.ask(messages.DELETE_OFFSET, request)


def create_group(client: Client) -> None:
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "billing"))


def first(node: Whole) -> int:
    """Give the first offset after a look of retention."""
    node.tick(PASS)
    return machine(node).first_offset


def findings(node: Whole, kind: str) -> list[Finding]:
    return [each for each in node.shard.take_findings() if each.kind == kind]


@pytest.mark.parametrize(("limit", "end"), [(limit_age, 5), (limit_size, 4)])
def test_a_slow_consumer_keeps_what_it_has_not_read(
    limit: Callable[[Client], None], end: int
) -> None:
    node = make_node()
    client = with_messages(node)
    store(client, 1)
    limit(client)
    assert first(node) == 2
    (held,) = findings(node, "held")
    assert held.file == "s/t"
    assert "consumer 1 keeps" in held.text
    assert first(node) == 2
    assert findings(node, "held") == []
    for _ in range(2):
        node.crash()
        assert first(node) == 2
    store(node.client(), 4)
    assert first(node) == end


def test_limits_that_nobody_stands_against_hold_at_once() -> None:
    node = make_node()
    limit_age(with_messages(node))
    assert first(node) == 5
    assert node.shard.take_findings() == []


def test_nothing_is_proposed_while_nothing_can_go() -> None:
    node = make_node()
    client = with_messages(node)
    store(client, 0)
    limit_age(client)
    assert first(node) == 1
    (local,) = node.shard.partitions.locals.values()
    before = local.replica.op
    node.tick(5 * PASS)
    assert local.replica.op == before


def test_a_deleted_offset_keeps_nothing() -> None:
    node = make_node()
    client = with_messages(node)
    store(client, 0)
    store(client, 2, OTHER)
    limit_age(client)
    assert first(node) == 1
    delete_offset(client, ME)
    assert first(node) == 3
    delete_offset(client, OTHER)
    assert first(node) == 5


def test_a_deleted_group_keeps_nothing() -> None:
    """A group without members counts by what is stored for it: Spark and tools store so."""
    node = make_node()
    client = with_messages(node)
    create_group(client)
    store(client, 1, BILLING)
    limit_age(client)
    assert first(node) == 2
    (held,) = findings(node, "held")
    assert "group billing keeps" in held.text
    client.ask(groups.DELETE_GROUP, groups.DeleteGroup("s", "t", "billing"))
    assert first(node) == 5


def test_an_automatic_commit_counts() -> None:
    node = make_node()
    client = with_messages(node)
    poll(client, First(), 2, auto=True)
    limit_age(client)
    assert first(node) == 2
    poll(client, Next(), 2, auto=True)
    assert first(node) == 4


def test_an_idle_consumer_is_released_with_one_finding() -> None:
    node = make_node()
    client = with_messages(node)
    store(client, 1)
    limit_age(client)
    node.tick(IDLE - PASS)
    assert machine(node).first_offset == 2
    assert findings(node, "released") == []
    node.tick(3 * PASS)
    assert machine(node).first_offset == 5
    (released,) = findings(node, "released")
    assert "consumer 1 has not stored, polled or joined for 30 s" in released.text
    send(client, 2)
    node.tick(3 * PASS)
    assert machine(node).first_offset == 7
    assert node.shard.take_findings() == []
    store(client, 6)  # It is back, and counts again.
    send(client, 2)
    assert first(node) == 7
    node.tick(IDLE + 2 * PASS)
    assert machine(node).first_offset == 9
    assert len(findings(node, "released")) == 1


def use_by_store(client: Client) -> None:
    store(client, 1, BILLING)


def use_by_poll(client: Client) -> None:
    client.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "billing"))
    poll(client, First(), 1, who=BILLING)


def use_by_join(client: Client) -> None:
    client.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "billing"))


@pytest.mark.parametrize("use", [use_by_store, use_by_poll, use_by_join])
def test_a_consumer_that_is_used_is_not_idle(use: Callable[[Client], None]) -> None:
    node = make_node()
    client = with_messages(node)
    create_group(client)
    store(client, 1, BILLING)
    limit_age(client)
    node.tick(IDLE - 2 * PASS)
    use(client)
    node.tick(IDLE - 2 * PASS)
    assert machine(node).first_offset == 2
    node.tick(4 * PASS)
    assert machine(node).first_offset == 5


def test_a_poll_of_a_single_consumer_is_use() -> None:
    node = make_node()
    client = with_messages(node)
    store(client, 1)
    limit_age(client)
    for _ in range(3):
        node.tick(IDLE - 2 * PASS)
        poll(client, Next(), 1)
    assert first(node) == 2


def test_a_restart_takes_every_consumer_as_used() -> None:
    node = make_node()
    client = with_messages(node)
    store(client, 1)
    limit_age(client)
    for _ in range(2):
        node.tick(IDLE - 2 * PASS)
        node.crash()
    assert first(node) == 2
    node.tick(IDLE)
    assert first(node) == 5


def test_a_clock_that_leaps_releases_nobody() -> None:
    node = make_node(consumers_idle_ticks=10**6)
    client = with_messages(node)
    store(client, 1)
    limit_age(client)
    assert first(node) == 2
    node.now += 1
    node.step(Ticked(node.now, 10**17))
    assert first(node) == 2


@pytest.mark.parametrize(
    ("is_waiting", "option", "kept"),
    [
        (True, None, 2),
        (False, None, 5),
        (True, "ignore", 5),
        (False, "respect", 2),
        (True, "server_default", 2),
        (False, "server_default", 5),
    ],
)
def test_a_topic_can_say_otherwise_than_the_server(
    *, is_waiting: bool, option: str | None, kept: int
) -> None:
    node = make_node(is_waiting_for_consumers=is_waiting)
    client = with_messages(node)
    store(client, 1)
    if option is not None:
        update(client, retention_consumers=option)
    limit_age(client)
    assert first(node) == kept
    for _ in range(2):
        node.crash()
    assert first(node) == kept


def test_ignoring_consumers_frees_at_once_what_they_kept() -> None:
    node = make_node()
    client = with_messages(node)
    store(client, 1)
    limit_age(client)
    assert first(node) == 2
    update(client, retention_consumers="ignore")
    assert first(node) == 5


def test_who_keeps_how_much_can_be_asked() -> None:
    node = make_node()
    client = with_messages(node)
    create_group(client)
    store(client, 1, BILLING)
    store(client, 3)
    holders = client.ask(GET_HOLDERS, GetHolders("s", "t"))
    assert (holders.count, holders.holders) == (0, ())  # without limits
    limit_age(client)
    node.tick(2)
    size = machine(node).size_bytes // 5
    group, single = client.ask(GET_HOLDERS, GetHolders("s", "t")).holders
    assert (group.kind, group.name, group.stored_offset) == (ConsumerKind.GROUP, "billing", 1)
    assert (group.held_bytes, single.held_bytes) == (3 * size, size)
    assert (single.kind, single.id, single.name) == (ConsumerKind.CONSUMER, 1, "")
    node.tick(IDLE + 2 * PASS)
    assert client.ask(GET_HOLDERS, GetHolders("s", "t")).count == 0
    with pytest.raises(RefusedError):
        client.ask(GET_HOLDERS, GetHolders("s", "nothing"))
