"""Topics in a real Spark session: batch, SQL, streams, restarts, losses, groups."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

import headrace
from headrace.spark.listener import report_progress
from headrace.spark.session import STREAM_VARIABLES, prepare_streams, stream_variables
from tests.spark.conftest import Topic

# The session and the first read are 15 s of the share of Spark, each test here 1 to 4 s.
pytestmark = pytest.mark.slow


def read(spark: SparkSession, topic: Topic, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("headrace").options(**topic.options, **given).load()


def payloads(rows: DataFrame) -> list[str]:
    found = rows.select("partition", "offset", sql.col("payload").cast("string")).collect()
    return [row.payload for row in sorted(found)]


class Job:
    """A query from a topic to Parquet that can be run again on its checkpoint."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        self.spark = spark
        self.topic = topic
        self.folder = folder

    def start(self, **options: object) -> StreamingQuery:
        given = {"startingOffsets": "earliest"} | {
            name: str(text) for name, text in options.items()
        }
        rows = (
            self.spark.readStream.format("headrace").options(**self.topic.options, **given).load()
        )
        return (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.folder / "out"))
        )

    def run(self, **options: object) -> StreamingQuery:
        query = self.start(**options)
        query.awaitTermination()
        return query

    def payloads(self) -> list[str]:
        return payloads(self.spark.read.parquet(str(self.folder / "out")))


@pytest.fixture
def job(spark: SparkSession, topic: Topic, tmp_path: Path) -> Job:
    return Job(spark, topic, tmp_path)


def test_a_batch_has_every_message_with_all_its_columns(spark: SparkSession, topic: Topic) -> None:
    sent = topic.fill(2500) + topic.fill(300, partition=1)
    rows = read(spark, topic)
    assert payloads(rows) == sent
    row = rows.where("partition = 1 and offset = 7").collect()[0].asDict()
    assert (row["stream"], row["topic"]) == tuple(topic.name.split("/"))
    assert len(row["id"]) == 16
    assert row["headers"] is None
    assert abs((row["timestamp"] - row["origin_timestamp"]).total_seconds()) < 600
    assert all(field.nullable for field in rows.schema)


def test_a_view_in_sql(spark: SparkSession, topic: Topic) -> None:
    topic.send(["one", "two"])
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING headrace"
        f" OPTIONS (topic '{topic.name}', address '{topic.node.tcp}')"
    )
    found = spark.sql(
        "SELECT offset, string(payload) AS text FROM orders ORDER BY offset"
    ).collect()
    assert [tuple(row) for row in found] == [(0, "one"), (1, "two")]


def test_an_empty_topic_has_no_rows(spark: SparkSession, topic: Topic) -> None:
    assert read(spark, topic).count() == 0


def test_a_user_schema_is_a_choice_of_columns(spark: SparkSession, topic: Topic) -> None:
    topic.send(["one"])
    rows = (
        spark.read.format("headrace")
        .options(**topic.options)
        .schema("payload BINARY, offset BIGINT")
    ).load()
    assert [tuple(row) for row in rows.collect()] == [(bytearray(b"one"), 0)]


def test_wrong_options_are_all_named_at_once(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, topic, startingOffset="earliest", minPartitions=0, onDataLoss="ignore")
    message = str(raised.value)
    assert "startingoffset: no such option; did you mean startingOffsets?" in message
    assert "minPartitions: 0 is too small" in message
    assert "onDataLoss: 'ignore' is none of fail, skip, report" in message


def test_a_password_is_shown_nowhere(
    spark: SparkSession, topic: Topic, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = read(spark, topic, username="iggy", password="iggy-wrong-secret")
    rows.explain(extended=True)
    assert "iggy-wrong-secret" not in capsys.readouterr().out
    with pytest.raises(PySparkException) as raised:
        rows.collect()
    assert "invalid credentials" in str(raised.value)
    assert "iggy-wrong-secret" not in str(raised.value)


def test_filters_are_pushed_down_and_the_plan_says_so(spark: SparkSession, topic: Topic) -> None:
    sent = topic.fill(2500)
    rows = read(spark, topic, pushdown=True)
    wanted = rows.where("offset >= 1200 and offset < 1300 and partition = 0")
    shown = wanted._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in shown
    assert payloads(wanted) == sent[1200:1300]
    middle = rows.where("offset = 1250").collect()[0].timestamp
    later = rows.where(sql.col("timestamp") > sql.lit(middle))
    every = read(spark, topic).where(sql.col("timestamp") > sql.lit(middle))
    assert 0 < later.count() == every.count() < 2500
    assert later.where("payload is not null and length(payload) = 1024").count() == later.count()


def test_typed_columns_and_values_that_are_wrong(spark: SparkSession, topic: Topic) -> None:
    topic.send(['{"amount": 12.5, "who": {"name": "ada"}}', "no json", '{"amount": "much"}', "{}"])
    rows = read(
        spark,
        topic,
        valueFormat="json",
        valueSchema="amount DOUBLE, who STRUCT<name: STRING>",
        columns="offset",
    )
    found = [tuple(row) for row in rows.orderBy("offset").collect()]
    assert rows.columns == ["offset", "amount", "who", "_error"]
    assert [(offset, amount) for offset, amount, _, _ in found] == [
        (0, 12.5),
        (1, None),
        (2, None),
        (3, None),
    ]
    assert found[0][2].name == "ada"
    assert [error is None for _, _, _, error in found] == [True, False, False, True]
    assert "$.amount" in found[2][3]


def test_a_stream_with_a_limit_takes_everything_in_steps(job: Job) -> None:
    sent = job.topic.fill(1500) + job.topic.fill(500, partition=1)
    query = job.run(maxOffsetsPerTrigger=600)
    assert job.payloads() == sent
    counts = [progress["numInputRows"] for progress in query.recentProgress]
    assert [count for count in counts if count] == [600, 600, 600, 200]
    sent += job.topic.fill(10, partition=1, first=500)
    job.run()
    assert job.payloads() == sent


def test_a_batch_whose_commit_was_lost_is_read_again_the_same(job: Job) -> None:
    sent = job.topic.fill(900)
    job.run(maxOffsetsPerTrigger=300)
    commits = job.folder / "checkpoint" / "commits"
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for file in (commits / str(newest), commits / f".{newest}.crc"):
        file.unlink(missing_ok=True)
    sent += job.topic.fill(50, first=900)
    job.run(maxOffsetsPerTrigger=300)
    assert job.payloads() == sent


def test_new_partitions_are_picked_up(job: Job, client: headrace.Client) -> None:
    sent = job.topic.fill(10)
    job.run()
    client.create_partitions(job.topic.name, 1)
    sent += job.topic.fill(20, partition=2)
    job.run()
    assert job.payloads() == sent


def test_a_stream_finds_all_its_variables_prepared(job: Job) -> None:
    """A name that a stream adds is added by several at once, and the map is broken for good."""
    prepare_streams(job.spark)
    job.topic.send(["a"])
    job.run()
    assert set(stream_variables(job.spark)) == {"PYTHONPATH", *STREAM_VARIABLES}
    assert job.payloads() == ["a"]


def test_the_group_shows_what_was_processed(
    spark: SparkSession, job: Job, client: headrace.Client
) -> None:
    """While it runs by the source alone, its last batch by the listener."""
    name = job.topic.name
    job.topic.fill(900)
    listener = report_progress(spark, str(job.topic.node.tcp))
    try:
        query = job.run(maxOffsetsPerTrigger=300, groupId="report")
        assert listener.wait_ended(str(query.runId))
    finally:
        spark.streams.removeListener(listener)
    stored = client.get_offset(name, 0, group="report")
    assert stored is not None
    assert (stored.stored_offset, stored.current_offset) == (899, 899)
    assert client.get_group(name, "report").members == ()


def test_the_source_alone_stores_what_was_processed(job: Job, client: headrace.Client) -> None:
    """Without a listener: the last call of latestOffset, which finds nothing new, is told."""
    job.topic.fill(900)
    job.run(maxOffsetsPerTrigger=300, groupId="report")
    stored = client.get_offset(job.topic.name, 0, group="report")
    assert stored is not None
    assert stored.stored_offset == 899


@pytest.fixture
def trimmed(job: Job, client: headrace.Client) -> Callable[[], int]:
    """Read something, then have the oldest segments go; gives the first offset that is left."""
    job.topic.fill(100)
    job.run()

    def trim() -> int:
        job.topic.fill(3000, first=100)
        count = len(client.plan_segments(job.topic.name, 0).segments)
        client.delete_segments(job.topic.name, 0, count)
        first = client.plan_segments(job.topic.name, 0).first_offset
        assert first > 100
        return first

    return trim


def test_what_is_gone_fails_the_query_with_the_exact_range(
    job: Job, trimmed: Callable[[], int]
) -> None:
    first = trimmed()
    with pytest.raises(PySparkException) as raised:
        job.run()
    assert f"the {first - 100} offsets 100 to {first - 1} are gone" in str(raised.value)


def test_what_is_gone_is_skipped_if_the_user_wants_it(job: Job, trimmed: Callable[[], int]) -> None:
    first = trimmed()
    job.run(failOnDataLoss=False)
    offsets = job.spark.read.parquet(str(job.folder / "out")).select("offset").collect()
    assert sorted(row.offset for row in offsets) == [*range(100), *range(first, 3100)]


def test_what_is_gone_becomes_a_row_if_the_user_wants_it(
    spark: SparkSession, topic: Topic, client: headrace.Client
) -> None:
    topic.fill(3000)
    client.delete_segments(topic.name, 0, 1)
    first = client.plan_segments(topic.name, 0).first_offset
    start = json.dumps({topic.name: {"0": 5}})
    rows = read(spark, topic, onDataLoss="report", startingOffsets=start)
    lost = [(row.offset, row._error) for row in rows.where("_error is not null").collect()]
    assert len(lost) == 1
    assert lost[0][0] == 5
    assert f"offsets 5 to {first - 1} are gone" in lost[0][1]
    assert rows.where("_error is null").count() == 3000 - first


def test_a_topic_made_anew_is_noticed(job: Job, client: headrace.Client) -> None:
    name = job.topic.name
    job.topic.fill(100)
    job.run()
    client.delete_topic(name)
    client.create_topic(name, partitions=2)
    sent = job.topic.fill(150, first=5000)
    with pytest.raises(PySparkException, match="made anew under the same name"):
        job.run()
    job.run(onDataLoss="skip")
    assert sorted(job.payloads())[100:] == sent
