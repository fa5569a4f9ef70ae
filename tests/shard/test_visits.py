"""Nothing looks at all partitions because of one event, one turn or one change (O1.4)."""

from collections.abc import Iterator

import pytest

from headrace.wire.commands import streams, topics
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import ToPartition
from headrace.wire.replies import read_answer
from tests.shard.visits import Visits, counted_visits
from tests.shard.whole import Client, Whole

COUNT = 60  # partitions; a walk over them cannot hide among the visits that are allowed
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
    node.tick(20)  # until the batches are in their segments
    assert len(node.shard.keeper.locals) == count
    return client


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
