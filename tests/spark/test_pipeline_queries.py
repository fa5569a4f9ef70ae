"""The queries of declared jobs on a real Spark: every message once, as a row or a dead letter."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.checkpoint import COMMITS, QUERY, read_state
from headrace.pipelines.declared import Mode, Pipeline, Sink, SinkKind, Source, Watermark
from headrace.pipelines.iceberg import IcebergTarget
from headrace.pipelines.parquet_leftovers import committed_files
from headrace.pipelines.queries import plan_queries
from headrace.pipelines.run import Followed, follow
from headrace.pipelines.screen import Lines
from headrace.pipelines.table_files import TableError
from headrace.pipelines.table_sink import TableSink
from tests.spark.conftest import Topic

pytestmark = [
    pytest.mark.slow,  # each query takes 2 to 4 s of the share of Spark
    # Spark says so of every pandas from 3.0 on; nothing here uses pandas.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SCHEMA = "number BIGINT, product STRING, cents STRING, at TIMESTAMP"
CAST = {"cents": "BIGINT"}
REQUIRE = {"is positive": "cents > 0"}
BAD = [
    "{broken",
    '{"number": "x"}',
    '{"number": 1, "cents": "ten"}',
    '{"number": 1, "cents": "-1"}',
]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(TableSink)
    return spark


def make_job(folder: Path, topic: Topic, sink: Sink, **source: object) -> Pipeline:
    orders = Source("orders", (topic.name,), **source)  # type: ignore[arg-type]  # as given
    dead = Sink(SinkKind.DELTA, folder / "dead") if orders.can_reject else None
    return Pipeline(
        "job",
        (orders,),
        sink,
        folder / "checkpoint",
        dead,
        interval_millis=None,
        connection={"address": str(topic.node.tcp)},
        group="job",
    )


def run(session: SparkSession, job: Pipeline) -> list[Followed]:
    """Run a job to its end; queries that a busy machine lets fail are started again."""
    followed = [Followed(planned) for planned in plan_queries(session, job)]
    follow(followed, Lines(), threading.Event())
    return followed


def orders(first: int, count: int) -> list[str]:
    """Give orders that are a second apart."""
    return [
        json.dumps(
            {
                "number": number,
                "product": "tea" if number % 2 else "bread",
                "cents": str(100 + number),
                "at": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
            }
        )
        for number in range(first, first + count)
    ]


def fail_first_attempts(frame: DataFrame) -> DataFrame:
    """Fail every task once, after it has given rows."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("fails by design")

    return frame.mapInArrow(fail, frame.schema)


def test_good_rows_and_dead_letters_are_the_whole_log(
    session: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Three batches; tasks fail and are tried again; the newest commit is lost and done again."""
    topic.send([*orders(0, 100), *BAD])
    topic.send(orders(100, 100), partition=1)
    sink = Sink(SinkKind.DELTA, tmp_path / "table")
    source = {
        "schema": SCHEMA,
        "cast": CAST,
        "require": REQUIRE,
        "options": {"maxOffsetsPerTrigger": "70"},
    }
    job = make_job(tmp_path, topic, sink, **source)
    job = replace(job, function=fail_first_attempts, function_name="fail_first_attempts")
    first, first_dead = run(session, job)
    lose_commit(job.checkpoint / QUERY)
    again, _ = run(session, job)
    assert first.last is not None
    assert again.last is not None
    assert first.last.lag == 0
    assert again.last.lag is None  # Spark does the logged batch again and asks nobody
    table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(table["number"].to_pylist()) == list(range(200))
    assert table.schema.field("cents").type == pa.int64()
    dead = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert sorted((row["offset"], row["payload"].decode()) for row in dead) == [
        (100 + at, text) for at, text in enumerate(BAD)
    ]
    reasons = [row["reason"] for row in sorted(dead, key=lambda row: row["offset"])]
    assert reasons[0].startswith("JSON is malformed")
    assert "number" in reasons[1]
    assert reasons[2:] == [
        "cents cannot be read as BIGINT: ten",
        "is positive: cents > 0 is not true",
    ]
    assert first_dead.totals.dead_letters == len(BAD)


def lose_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a driver does that dies between the sink's commit and its own."""
    state = read_state(checkpoint)
    assert state is not None
    assert state.committed >= 2
    (checkpoint / COMMITS / str(state.committed)).unlink()
    (checkpoint / COMMITS / f".{state.committed}.crc").unlink()


def test_windows_reach_parquet_when_they_are_closed(
    session: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send(orders(0, 200))
    sink = Sink(SinkKind.PARQUET, tmp_path / "table", partition_by=("product",))
    watermark = Watermark("at", "10 seconds")
    job = make_job(tmp_path, topic, sink, schema=SCHEMA, watermark=watermark)
    sql = "SELECT window(at, '1 minute').start AS minute, product, count(*) AS orders FROM orders"
    job = replace(job, sql=f"{sql} GROUP BY window(at, '1 minute'), product")
    run(session, job)
    leftover = tmp_path / "table" / "product=tea" / "part-00000-killed.parquet"
    leftover.write_bytes(b"half a file")
    topic.send(orders(3599, 1))  # time goes on: the windows before it are closed
    run(session, job)
    assert not leftover.exists()
    rows = ds.dataset([str(path) for path in committed_files(tmp_path / "table")]).to_table()
    assert sum(rows["orders"].to_pylist()) == 200
    assert rows.num_rows == 8  # four minutes of tea, and of bread
    folder = ds.dataset(tmp_path / "table", partitioning="hive", exclude_invalid_files=False)
    assert folder.count_rows() == 8  # whoever does not know Spark's list sees the same


def test_the_whole_result_replaces_a_delta_table(
    session: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    sink = Sink(SinkKind.DELTA, tmp_path / "table", mode=Mode.COMPLETE)
    job = make_job(tmp_path, topic, sink)
    job = replace(job, sql="SELECT partition, count(*) AS messages FROM orders GROUP BY partition")
    for round_ in range(2):
        topic.send(orders(0, 10))
        topic.send(orders(0, 5), partition=1)
        run(session, job)
        rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
        counts = {row["partition"]: row["messages"] for row in rows}
        assert counts == {0: 10 * (round_ + 1), 1: 5 * (round_ + 1)}


def test_an_iceberg_table_takes_each_batch_once(
    session: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send([f"value {number}" for number in range(100)])
    sink = Sink(SinkKind.ICEBERG, tmp_path / "warehouse", table="shop.orders")
    job = make_job(tmp_path, topic, sink, options={"maxOffsetsPerTrigger": "30"})
    run(session, job)
    lose_commit(job.checkpoint / QUERY)
    run(session, job)
    rows = IcebergTarget(tmp_path / "warehouse", "shop.orders")._load().scan().to_arrow()
    assert sorted(rows["offset"].to_pylist()) == list(range(100))


@pytest.mark.parametrize("name", ["part-0.parquet", "_spark_metadata/0"])
def test_a_new_query_refuses_a_folder_with_files(
    session: SparkSession, topic: Topic, tmp_path: Path, name: str
) -> None:
    """Spark would skip the batches that an earlier query has listed there, and say nothing."""
    (tmp_path / "table" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "table" / name).touch()
    job = make_job(tmp_path, topic, Sink(SinkKind.PARQUET, tmp_path / "table"))
    with pytest.raises(TableError, match="says that this job never ran"):
        plan_queries(session, job)
    assert (tmp_path / "table" / name).exists()
