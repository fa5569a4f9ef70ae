"""How to test a job: a real server from the fixture `headrace_topic`, a real Spark, no mocks.

pytest examples/test_orders_job.py
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from headrace.pytest_plugin import Topic
from headrace.spark.session import session


def amounts(orders: DataFrame) -> DataFrame:
    """Sum up the amounts of customers: the job that is tested."""
    return orders.groupBy("customer").agg(sql.sum("amount").alias("amount"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run: starting it takes seconds."""
    started = session("tests", master="local[2]", conf={"spark.ui.enabled": "false"}).getOrCreate()
    yield started
    started.stop()


def options_of(topic: Topic) -> dict[str, str]:
    """Give what reads the topic of a test."""
    return {
        "address": topic.address,
        "topic": topic.name,
        "valueFormat": "json",
        "valueSchema": "customer STRING, amount BIGINT",
    }


def test_amounts_are_summed_up(spark: SparkSession, headrace_topic: Topic) -> None:
    """The job as a batch: the quickest way to test what it does with rows."""
    with headrace_topic.connect() as client:
        client.send(
            headrace_topic.name,
            [
                '{"customer": "ada", "amount": 3}',
                '{"customer": "bob", "amount": 1}',
                '{"customer": "ada", "amount": 4}',
                "no order at all",
            ],
        )
    orders = spark.read.format("headrace").options(**options_of(headrace_topic)).load()
    good = orders.where("_error is null")
    assert sorted(tuple(row) for row in amounts(good).collect()) == [("ada", 7), ("bob", 1)]
    assert orders.where("_error is not null").count() == 1


def test_a_second_run_takes_only_what_is_new(
    spark: SparkSession, headrace_topic: Topic, tmp_path: Path
) -> None:
    """The job as a stream: `availableNow` ends by itself, so nothing waits."""

    def run() -> int:
        rows = (
            spark.readStream.format("headrace")
            .options(**options_of(headrace_topic), startingOffsets="earliest")
            .load()
        )
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "orders"))
        )
        query.awaitTermination()
        return spark.read.parquet(str(tmp_path / "orders")).count()

    with headrace_topic.connect() as client:
        client.send(headrace_topic.name, ['{"customer": "ada", "amount": 3}'])
        assert run() == 1
        client.send(headrace_topic.name, ['{"customer": "bob", "amount": 1}'])
        assert run() == 2
