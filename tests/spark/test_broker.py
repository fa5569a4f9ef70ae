"""What the driver asks: also of a server that makes no segment plans."""

from collections.abc import Iterator

import pytest

import headrace
from headrace.client import Client
from headrace.client.errors import refused
from headrace.client.session.settings import resolve
from headrace.spark.broker import find_logs, latest_of, resolve_edge
from headrace.spark.edges import Edge
from headrace.spark.offsets import Key
from headrace.wire.commands.segments import SegmentPlan
from headrace.wire.errors import Code
from tests.spark.conftest import Topic

pytestmark = pytest.mark.slow


class OlderClient(Client):
    """A client of a server that does not know the command of the plan (O8)."""

    def plan_segments(self, topic: object, partition: int = 0, *, start: int = 0) -> SegmentPlan:
        raise refused(Code.FEATURE_UNAVAILABLE, f"plan segments {topic!r}")


@pytest.fixture
def older(topic: Topic) -> Iterator[Client]:
    made = OlderClient(resolve(str(topic.node.tcp), {}, {}))
    made.open()
    with made:
        yield made


def test_both_kinds_of_server_hold_the_same(
    topic: Topic, client: headrace.Client, older: Client
) -> None:
    topic.fill(2500)
    client.delete_segments(topic.name, 0, 1)
    planned, polled = (find_logs(each, (topic.name,)) for each in (client, older))
    assert list(planned) == list(polled) == [Key(topic.name, 0), Key(topic.name, 1)]
    for key, log in planned.items():
        other = polled[key]
        assert (log.first_offset, log.next_offset) == (other.first_offset, other.next_offset)
    assert planned[Key(topic.name, 0)].first_offset > 0
    assert polled[Key(topic.name, 1)].next_offset == 0


def test_a_topic_made_anew_is_another_log_on_both(
    topic: Topic, client: headrace.Client, older: Client
) -> None:
    servers = (client, older)
    before = [latest_of(find_logs(each, (topic.name,))) for each in servers]
    client.delete_topic(topic.name)
    client.create_topic(topic.name, partitions=2)
    for each, was in zip(servers, before, strict=True):
        now = latest_of(find_logs(each, (topic.name,)))
        assert all(not now[key].is_same_log(was[key]) for key in now)


def test_segments_are_named_from_where_they_are_needed(
    topic: Topic, client: headrace.Client
) -> None:
    topic.fill(3000)
    key = Key(topic.name, 0)
    assert find_logs(client, (topic.name,))[key].segments == ()
    whole = find_logs(client, (topic.name,), {})[key].segments
    assert whole[0].base_offset == 0
    start = resolve_edge(
        client,
        Edge("latest", offsets={topic.name: {0: whole[1].base_offset}}),
        find_logs(client, (topic.name,)),
        "startingOffsets",
    )
    assert find_logs(client, (topic.name,), start)[key].segments == whole[1:]


def test_a_topic_that_does_not_exist(client: headrace.Client) -> None:
    with pytest.raises(headrace.NotFound):
        find_logs(client, ("no/such",))
