"""Slices read in both ways from a real node: files and polls give the same rows."""

import json
import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

import headrace
from headrace.client import DataDamaged
from headrace.spark.connections import close_clients
from headrace.spark.losses import DataLossError
from headrace.spark.option_reader import OptionsError
from headrace.spark.plan import PlanError
from headrace.spark.segments import SegmentUnusable
from headrace.spark.source import BatchReader, HeadraceSource, PushingReader
from tests.node import Node, running_node
from tests.spark.conftest import ALL_COLUMNS, Topic

pytestmark = pytest.mark.slow

OFFSETS = StructType(
    [StructField("partition", ALL_COLUMNS["partition"].dataType), ALL_COLUMNS["offset"]]
)
REPORTED = StructType([ALL_COLUMNS["offset"], StructField("_error", StringType())])


def reader_of(topic: Topic, schema: StructType = ALL_COLUMNS, **options: object) -> BatchReader:
    given = {name: str(value) for name, value in options.items()}
    reader = HeadraceSource(topic.options | given).reader(schema)
    assert isinstance(reader, BatchReader)
    return reader


def read_all(reader: BatchReader, partitions: list[InputPartition] | None = None) -> pa.Table:
    """Read as Spark does: reader and partitions travel."""
    batches: list[pa.RecordBatch] = []
    travelled: BatchReader = pickle.loads(pickle.dumps(reader))
    for partition in partitions if partitions is not None else reader.partitions():
        batches += travelled.read(pickle.loads(pickle.dumps(partition)))
    schema = reader._reading.shape.arrow
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema).combine_chunks()


def read(topic: Topic, schema: StructType = ALL_COLUMNS, **options: object) -> pa.Table:
    return read_all(reader_of(topic, schema, **options))


def segment_files(topic: Topic, client: headrace.Client) -> list[Path]:
    plan = client.plan_segments(topic.name, 0)
    return [Path(plan.path(segment)) for segment in plan.segments]


@pytest.fixture
def hidden(topic: Topic, client: headrace.Client) -> Iterator[list[Path]]:
    """The files of sealed segments, which a test may move; they are put back."""
    topic.fill(2500)
    files = segment_files(topic, client)
    assert len(files) >= 2
    kept = {file: file.read_bytes() for file in files}
    yield files
    for file, data in kept.items():
        file.write_bytes(data)


def test_files_and_polls_give_the_same_rows(topic: Topic, client: headrace.Client) -> None:
    sent = topic.fill(2500) + topic.fill(30, partition=1)
    client.send(topic.name, ["with headers"], partition=1, headers={"a": "b", "c": 7})
    direct = read(topic, read="direct")
    assert direct.column("payload").to_pylist() == [
        *(value.encode() for value in sent),
        b"with headers",
    ]
    assert direct.equals(read(topic, read="broker"))
    assert direct.equals(read(topic))
    assert direct.equals(read(topic, minPartitions=7))
    assert direct.equals(read(topic, maxRecordsPerPartition=333))
    assert len(reader_of(topic, maxRecordsPerPartition=333).partitions()) == 9


def test_files_are_really_read(hidden: list[Path], topic: Topic) -> None:
    """Damage in a file is seen by who reads it, and only by him."""
    data = bytearray(hidden[1].read_bytes())
    data[len(data) // 2] ^= 1
    hidden[1].write_bytes(data)
    with pytest.raises(DataDamaged, match=hidden[1].name):
        read(topic, read="direct")


@pytest.mark.parametrize("harm", ["gone", "cut", "other", "garbage"])
def test_a_file_that_cannot_be_used_is_asked_of_the_broker(
    hidden: list[Path], topic: Topic, harm: str
) -> None:
    reader = reader_of(topic)
    partitions = reader.partitions()
    whole = read_all(reader, partitions)
    file = hidden[1]
    data = file.read_bytes()
    # Another file under the name, so that the server goes on with the one that it has open.
    file.unlink()
    if harm == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif harm == "other":
        file.write_bytes(hidden[0].read_bytes())
    elif harm == "garbage":
        file.write_bytes(bytes(len(data)))
    with pytest.raises(SegmentUnusable, match="the option read is direct"):
        read_all(reader_of(topic, read="direct"), partitions)
    file.unlink(missing_ok=True)
    file.write_bytes(data)
    assert read_all(reader, partitions).equals(whole)


def test_a_server_that_tells_no_files_is_read_by_polls() -> None:
    with running_node(environment={"HEADRACE_SEGMENTS_DIRECT_READS": "false"}) as node:
        with headrace.connect(str(node.tcp)) as client:
            client.create_stream("shop")
            client.create_topic("shop/orders", options={"segment_size": "1 MiB"})
        topic = Topic(node, "shop/orders")
        sent = topic.fill(2500)
        assert read(topic).column("payload").to_pylist() == [value.encode() for value in sent]
        with pytest.raises(SegmentUnusable, match="does not tell where its files are"):
            read(topic, read="direct")


def offsets(topic: Topic, **options: object) -> list[int]:
    found: list[int] = read(topic, OFFSETS, **options).column("offset").to_pylist()
    return found


def test_where_a_batch_begins_and_ends(topic: Topic) -> None:
    topic.fill(100)
    name = topic.name
    assert offsets(topic, startingOffsets=json.dumps({name: {"0": 90}})) == [*range(90, 100)]
    assert offsets(topic, endingOffsets=json.dumps({name: {"0": 10}})) == [*range(10)]
    assert offsets(topic, startingOffsets=json.dumps({name: {"0": -1}})) == []
    assert offsets(topic, startingOffsets="latest") == []
    assert offsets(topic, fromOffset=20, toOffset=30) == [*range(20, 30)]
    with pytest.raises(ValueError, match="ends at offset 100, which is before 101"):
        offsets(topic, endingOffsets=json.dumps({name: {"0": 101}}))
    with pytest.raises(ValueError, match=r"there is no .*, partition 7"):
        offsets(topic, startingOffsets=json.dumps({name: {"7": 0}}))


@pytest.mark.parametrize("how", ["direct", "broker"])
def test_times(topic: Topic, how: str) -> None:
    """Each batch has one time; a time stands for the first message that is as new."""
    topic.fill(2500)
    whole = read(topic, StructType([ALL_COLUMNS["offset"], ALL_COLUMNS["timestamp"]]))
    stamps = whole.column("timestamp").to_pylist()
    middle, last = stamps[1250], stamps[-1]
    since = [number for number, stamp in enumerate(stamps) if stamp >= middle]
    later = middle + timedelta(microseconds=1)
    assert offsets(topic, read=how, fromTimestamp=middle.isoformat()) == since
    assert offsets(topic, read=how, toTimestamp=middle.isoformat()) == [*range(since[0])]
    assert offsets(topic, read=how, fromTimestamp=later.isoformat())[0] > since[0]
    assert offsets(topic, read=how, fromTimestamp=(last + timedelta(seconds=1)).isoformat()) == []
    millis = int(middle.timestamp() * 1000)
    rounded = [
        number
        for number, stamp in enumerate(stamps)
        if stamp >= datetime.fromtimestamp(millis / 1000, UTC)
    ]
    assert offsets(topic, read=how, startingTimestamp=millis) == rounded
    assert offsets(topic, read=how, endingTimestamp=millis) == [*range(rounded[0])]
    by_time = json.dumps({topic.name: {"0": millis}})
    assert offsets(topic, read=how, startingOffsetsByTimestamp=by_time) == rounded
    assert offsets(topic, read=how, startingTimestamp=2**52) == []


def test_filters_leave_segments_out(topic: Topic) -> None:
    topic.fill(3000)
    reader = reader_of(topic, pushdown=True)
    assert isinstance(reader, PushingReader)
    stamps = read(topic, StructType([ALL_COLUMNS["timestamp"]])).column("timestamp").to_pylist()
    last = EqualTo(("partition",), 0), GreaterThan(("timestamp",), stamps[2500])
    assert reader.pushFilters([*last]) == []
    (partition,) = reader.partitions()
    assert partition.value.first > 0
    assert len(partition.value.log.segments) < 3
    found = read_all(reader, [partition]).column("timestamp").to_pylist()
    assert found == [stamp for stamp in stamps if stamp > stamps[2500]]


def test_several_topics_in_one_read(topic: Topic, client: headrace.Client) -> None:
    client.create_topic(f"{topic.stream}/refunds")
    client.send(f"{topic.stream}/refunds", ["r"])
    topic.send(["o"])
    given = {"address": str(topic.node.tcp), "subscribe": f"{topic.name},{topic.stream}/refunds"}
    reader = HeadraceSource(given).reader(ALL_COLUMNS)
    assert isinstance(reader, BatchReader)
    found = read_all(reader)
    assert found.column("topic").to_pylist() == ["orders", "refunds"]


def test_what_spark_asks_for_where_nothing_is() -> None:
    given = {"topic": "a/b", "address": "127.0.0.1:1"}
    reader = HeadraceSource(given).reader(ALL_COLUMNS)
    assert list(reader.read(InputPartition(None))) == []


def test_a_read_from_where_nobody_listens_fails_at_once() -> None:
    given = {"topic": "a/b", "address": "127.0.0.1:1"}
    said = "127.0.0.1:1 cannot be reached: .*; is a node running there"
    with pytest.raises(headrace.Unavailable, match=said):
        HeadraceSource(given).reader(ALL_COLUMNS).partitions()
    with pytest.raises(headrace.Unavailable, match=said):
        HeadraceSource(given).streamReader(ALL_COLUMNS).initialOffset()
    given["wait"] = "200 ms"
    with pytest.raises(headrace.Unavailable, match=r"cannot be reached within 0\.2 s"):
        HeadraceSource(given).reader(ALL_COLUMNS).partitions()


def test_a_task_waits_for_a_node_that_was_there() -> None:
    """It may be the first of its process to connect, while the node starts again."""
    with running_node() as node, headrace.connect(str(node.tcp)) as client:
        client.create_stream("shop")
        client.create_topic("shop/orders")
        client.send("shop/orders", ["one"])
        given = {"topic": "shop/orders", "address": str(node.tcp), "read": "broker"}
        reader = HeadraceSource(given).reader(ALL_COLUMNS)
        (part,) = reader.partitions()
        close_clients()  # A task's process has none.
        node.kill()
        begun = threading.Event()
        tables: list[pa.RecordBatch] = []

        def read_part() -> None:
            begun.set()
            tables.extend(reader.read(part))

        thread = threading.Thread(target=read_part)
        thread.start()
        begun.wait()
        node.start()
        thread.join()
        assert [table.num_rows for table in tables] == [1]
        close_clients()


@pytest.fixture
def trimmed(topic: Topic, client: headrace.Client) -> int:
    """A topic that has lost its oldest segments; gives the first offset that is left."""
    topic.fill(3000)
    client.delete_segments(topic.name, 0, 2)
    return client.plan_segments(topic.name, 0).first_offset


def test_a_range_that_is_gone_before_the_plan(trimmed: int, topic: Topic) -> None:
    assert offsets(topic) == [*range(trimmed, 3000)]  # the earliest is what is there
    start = json.dumps({topic.name: {"0": 7}})
    with pytest.raises(DataLossError, match=f"offsets 7 to {trimmed - 1} are gone"):
        offsets(topic, startingOffsets=start)
    assert offsets(topic, startingOffsets=start, onDataLoss="skip") == [*range(trimmed, 3000)]
    reported = read(topic, REPORTED, startingOffsets=start, onDataLoss="report").to_pylist()
    assert reported[0]["offset"] == 7
    assert f"the {trimmed - 7} offsets 7 to {trimmed - 1} are gone" in reported[0]["_error"]
    assert [row["offset"] for row in reported[1:]] == [*range(trimmed, 3000)]
    assert all(row["_error"] is None for row in reported[1:])


@pytest.mark.parametrize("how", ["auto", "broker"])
def test_a_range_that_goes_between_plan_and_read(
    topic: Topic, client: headrace.Client, how: str
) -> None:
    topic.fill(3000)
    made = {
        policy: reader_of(
            topic, REPORTED if policy == "report" else OFFSETS, read=how, onDataLoss=policy
        )
        for policy in ("fail", "skip", "report")
    }
    planned = {policy: reader.partitions() for policy, reader in made.items()}
    files = segment_files(topic, client)
    client.delete_segments(topic.name, 0, 2)
    for file in files[:2]:
        file.unlink(missing_ok=True)  # The server takes its time, and what is there is read.
    first = client.plan_segments(topic.name, 0).first_offset
    with pytest.raises(DataLossError, match=f"the {first} offsets 0 to {first - 1} are gone"):
        read_all(made["fail"], planned["fail"])
    skipped = read_all(made["skip"], planned["skip"]).column("offset").to_pylist()
    assert skipped == [*range(first, 3000)]
    reported = read_all(made["report"], planned["report"]).to_pylist()
    assert [row["offset"] for row in reported] == [0, *range(first, 3000)]
    assert f"offsets 0 to {first - 1} are gone" in reported[0]["_error"]


def test_a_topic_that_is_purged_between_plan_and_read(
    topic: Topic, client: headrace.Client
) -> None:
    topic.fill(200)
    reader = reader_of(topic, OFFSETS)
    partitions = reader.partitions()
    client.purge_topic(topic.name)
    with pytest.raises(PlanError, match="it was purged"):
        read_all(reader, partitions)
    topic.fill(300)  # As many offsets are there again: they are others.
    with pytest.raises(PlanError, match="purged or made anew while it was read"):
        read_all(reader, partitions)


def test_typed_values(topic: Topic) -> None:
    topic.send(['{"n": 1}', "{", '{"n": 3}'])
    schema = StructType(
        [StructField("n", LongType()), ALL_COLUMNS["offset"], StructField("_error", StringType())]
    )
    found = read(topic, schema, valueFormat="json").to_pylist()
    assert [(row["n"], row["offset"]) for row in found] == [(1, 0), (None, 1), (3, 2)]
    assert [row["_error"] is None for row in found] == [True, False, True]


def test_typed_values_need_a_schema(topic: Topic) -> None:
    with pytest.raises(OptionsError, match="valueSchema: valueFormat is json"):
        HeadraceSource(topic.options | {"valueFormat": "json"}).schema()


def test_a_user_who_may_not_read(topic: Topic, client: headrace.Client, node: Node) -> None:
    client.create_user("spark-nobody", "secret-secret")
    given = topic.options | {"username": "spark-nobody", "password": "secret-secret"}
    reader = HeadraceSource(given).reader(OFFSETS)
    try:
        with pytest.raises((headrace.Unauthorized, headrace.NotFound)):
            reader.partitions()
    finally:
        client.delete_user("spark-nobody")
