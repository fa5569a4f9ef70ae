"""The first minutes of the guide's page on pipelines, as a reader does them."""

import re
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import headrace
from headrace.pipelines.declarations import load_jobs
from headrace.pipelines.queries import plan_queries
from headrace.pipelines.run import Followed, follow
from headrace.pipelines.screen import Lines
from headrace.pipelines.table_sink import TableSink
from tests.node import Node

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide" / "pipelines.md"


def first_block(kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow  # two queries: 8 s of the share of Spark
# Spark says so of every pandas from 3.0 on; nothing here uses pandas.
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_the_first_job(
    spark: SparkSession,
    node: Node,
    client: headrace.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark.dataSource.register(TableSink)
    (tmp_path / "sales.toml").write_text(first_block("toml"))
    job = load_jobs(tmp_path / "sales.toml").pipelines["sales"]
    job = replace(job, interval_millis=None)
    monkeypatch.setenv("HEADRACE_ADDRESS", str(node.tcp))
    exec(compile(first_block("python"), GUIDE.name, "exec"), {"__name__": "guide"})
    followed = [Followed(planned) for planned in plan_queries(spark, job)]
    follow(followed, Lines(), threading.Event())
    client.delete_stream("shop")
    rows = DeltaTable(str(tmp_path / "tables" / "sales")).to_pyarrow_table().to_pylist()
    assert {row["product"]: row["orders"] for row in rows} == {"tea": 500, "bread": 500}
    dead = ds.dataset(tmp_path / "tables" / "sales_dead_letters", format="parquet").to_table()
    assert dead["payload"].to_pylist() == [b'{"product": "tea", "cents": "a lot"}']
