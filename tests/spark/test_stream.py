"""The stream reader as Spark calls it, against a real node and without Java."""

import json
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import headrace
from headrace.client.session.settings import resolve
from headrace.spark.listener import ProgressListener
from headrace.spark.losses import DataLossError
from headrace.spark.offsets import Key, decode_offsets
from headrace.spark.reading import read_slice
from headrace.spark.source import HeadraceSource
from headrace.spark.stream import StreamReader
from headrace.wire.commands.segments import OffsetRange
from tests.spark.conftest import ALL_COLUMNS, Topic

pytestmark = pytest.mark.slow


def reader_of(topic: Topic, **options: object) -> StreamReader:
    given = {"startingOffsets": "earliest"} | {name: str(each) for name, each in options.items()}
    return HeadraceSource(topic.options | given).streamReader(ALL_COLUMNS)


def take(reader: StreamReader, start: dict[str, object], end: dict[str, object]) -> list[str]:
    """Read one batch as tasks would."""
    rows = [
        (row["partition"], row["offset"], row["payload"].decode())
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    return [payload for _, _, payload in sorted(rows)]


def next_offsets(offsets: dict[str, object]) -> dict[int, int]:
    return {key.partition: place.next for key, place in decode_offsets(offsets).items()}


def test_batches_follow_each_other(topic: Topic) -> None:
    sent = topic.fill(200) + topic.fill(50, partition=1)
    reader = reader_of(topic)
    start = reader.initialOffset()
    assert next_offsets(start) == {0: 0, 1: 0}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert next_offsets(end) == {0: 200, 1: 50}
    assert take(reader, start, end) == sent
    assert take(reader_of(topic), start, end) == sent  # as after a crash
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    assert reader.reportLatestOffset() == end


def test_where_a_stream_begins(topic: Topic) -> None:
    topic.fill(100)
    latest = reader_of(topic, startingOffsets="latest").initialOffset()
    assert next_offsets(latest) == {0: 100, 1: 0}
    named = json.dumps({topic.name: {"0": 7, "1": -1}})
    assert next_offsets(reader_of(topic, startingOffsets=named).initialOffset()) == {0: 7, 1: 0}


def test_limits(topic: Topic) -> None:
    topic.fill(300)
    topic.fill(100, partition=1)
    reader = reader_of(topic, maxOffsetsPerTrigger=40)
    assert reader.getDefaultReadLimit() == ReadMaxRows(40)
    assert reader_of(topic).getDefaultReadLimit() == ReadAllAvailable()
    start = reader.initialOffset()
    assert next_offsets(reader.latestOffset(start, ReadMaxRows(40))) == {0: 30, 1: 10}
    everything = reader.latestOffset(start, ReadAllAvailable())
    assert next_offsets(everything) == {0: 300, 1: 100}
    assert reader.latestOffset(start, ReadMinRows(401)) == start
    assert reader.latestOffset(start, ReadMinRows(400)) == everything
    with pytest.raises(ValueError, match="it counts rows"):
        reader.latestOffset(start, ReadMaxBytes(1))


def test_available_now_ends_where_it_stood_when_it_began(
    topic: Topic, client: headrace.Client
) -> None:
    topic.fill(100)
    reader = reader_of(topic)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    topic.fill(100, first=100)
    client.create_partitions(topic.name, 1)
    topic.fill(5, partition=2)
    middle = reader.latestOffset(start, ReadMaxRows(60))
    end = reader.latestOffset(middle, ReadMaxRows(60))
    assert next_offsets(end) == {0: 100, 1: 0}
    assert reader.latestOffset(end, ReadMaxRows(60)) == end


def test_a_new_partition_is_read_from_its_beginning(topic: Topic, client: headrace.Client) -> None:
    reader = reader_of(topic, startingOffsets="latest")
    start = reader.initialOffset()
    client.create_partitions(topic.name, 1)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    sent = topic.fill(10, partition=2)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert next_offsets(end) == {0: 0, 1: 0, 2: 10}
    assert take(reader, start, end) == sent


def stored(client: headrace.Client, topic: Topic, group: str = "report") -> int | None:
    found = client.get_offset(topic.name, 0, group=group)
    return None if found is None else found.stored_offset


def test_what_latest_offset_is_told_is_what_the_group_has(
    topic: Topic, client: headrace.Client
) -> None:
    """No commit is needed for it, and an idle trigger stores too (O7.3)."""
    topic.fill(100)
    reader = reader_of(topic, groupId="report")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert client.get_groups(topic.name) == ()  # nothing is processed yet
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert stored(client, topic) == 99
    assert client.get_group(topic.name, "report").members == ()
    assert end["group"] == "report"


def test_a_group_with_members_is_not_taken_over(topic: Topic, client: headrace.Client) -> None:
    topic.fill(10)
    client.create_group(topic.name, "billing")
    client.join_group(topic.name, "billing")
    reader = reader_of(topic, groupId="billing")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(ValueError, match="'billing' has members that read"):
        reader.latestOffset(end, ReadAllAvailable())


def test_the_listener_stores_the_end_of_a_batch(
    topic: Topic, client: headrace.Client, caplog: pytest.LogCaptureFixture
) -> None:
    topic.fill(100)
    reader = reader_of(topic, groupId="report")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    listener = ProgressListener(resolve(str(topic.node.tcp), {}, {}))
    for other in (None, "null", "7", '{"group": "report"}', "no json"):
        listener.store(other)
    assert stored(client, topic) is None
    listener.store(json.dumps(end))
    assert stored(client, topic) == 99
    client.delete_topic(topic.name)
    listener.store(json.dumps(end))
    assert "could not be stored" in caplog.text
    client.create_topic(topic.name)


def test_a_topic_made_anew_or_purged(topic: Topic, client: headrace.Client) -> None:
    topic.fill(100)
    reader = reader_of(topic)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    client.purge_topic(topic.name)
    with pytest.raises(DataLossError, match="from 100 on are gone: the partition was purged"):
        reader.latestOffset(start, ReadAllAvailable())
    client.delete_topic(topic.name)
    client.create_topic(topic.name, partitions=1)
    with pytest.raises(DataLossError) as raised:
        reader.latestOffset(start, ReadAllAvailable())
    assert "partition 0: the offsets from 100 on are gone: the partition was made anew" in str(
        raised.value
    )
    assert "partition 1: the offsets from 0 on are gone: there is no such partition" in str(
        raised.value
    )
    sent = topic.fill(120, first=1000)
    skipping = reader_of(topic, onDataLoss="skip")
    end = skipping.latestOffset(start, ReadAllAvailable())
    assert take(skipping, start, end) == sent
    assert skipping.latestOffset(end, ReadAllAvailable()) == end


def test_a_topic_that_the_query_has_stopped_to_read(topic: Topic, client: headrace.Client) -> None:
    topic.fill(10)
    client.create_topic(f"{topic.stream}/refunds")
    client.send(f"{topic.stream}/refunds", ["r"])
    both = {"address": str(topic.node.tcp), "subscribe": f"{topic.name},{topic.stream}/refunds"}
    source = HeadraceSource(both | {"startingOffsets": "earliest"}).streamReader(ALL_COLUMNS)
    start = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    client.delete_topic(f"{topic.stream}/refunds")
    topic.fill(5, first=10)
    reader = reader_of(topic)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [key.topic for key in decode_offsets(end)] == [topic.name] * 2
    assert len(take(reader, start, end)) == 5


def test_lost_ranges_are_accepted_exactly(topic: Topic, client: headrace.Client) -> None:
    """What never was there is no loss (O3.5); what is beside it is."""
    topic.fill(2500)
    client.delete_segments(topic.name, 0, 1)
    first = client.plan_segments(topic.name, 0).first_offset
    reader = reader_of(topic, read="broker", maxOffsetsPerTrigger=1)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = next(
        partition.value
        for partition in reader.partitions(start, end)
        if partition.value.key == Key(topic.name, 0)
    )
    earlier = replace(planned, first=0)
    for end_of_lost, is_whole in ((first, True), (first - 1, False)):
        log = earlier.log
        fields = {name: getattr(log, name) for name in log.__struct_fields__}
        told = type(log)(**fields | {"lost": (OffsetRange(0, end_of_lost),)})
        wanted = replace(earlier, log=told)
        if is_whole:
            rows = sum(len(batch) for batch in read_slice(reader._reading, wanted))
            assert rows == 2500 - first
        else:
            with pytest.raises(DataLossError, match=f"the 1 offsets {first - 1} to {first - 1}"):
                list(read_slice(reader._reading, wanted))
