"""Job files: what they declare, and all that is wrong with them in one message."""

import pickle
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from headrace.pipelines.declarations import load_jobs
from headrace.pipelines.declared import JobFile, Mode, SinkKind, Watermark
from headrace.pipelines.files import FileError

WHOLE = """
[spark]
master = "local[2,3]"
conf = { "spark.sql.shuffle.partitions" = 2, "spark.ui.enabled" = false }

[node]
address = "127.0.0.1:8090"
username = "ada"
password = "secret"

[pipeline.sales]
sql = "SELECT product, sum(cents) AS cents FROM orders GROUP BY product"
checkpoint = "state/sales"
trigger = "2 s"
group = "billing"

[pipeline.sales.source.orders]
topic = ["shop/orders", "shop/returns"]
schema = "product STRING, cents STRING, `at` TIMESTAMP"
cast = { cents = "BIGINT" }
require = { "is positive" = "cents > 0" }
watermark = { column = "at", delay = "10 s" }
options = { maxOffsetsPerTrigger = 1000 }

[pipeline.sales.sink]
kind = "delta"
path = "tables/sales"
mode = "complete"

[pipeline.sales.dead_letters]
kind = "parquet"
path = "tables/dead"

[pipeline.copy]
trigger = "availableNow"
[pipeline.copy.source.orders]
topic = "shop/orders"
[pipeline.copy.sink]
kind = "iceberg"
path = "warehouse"
table = "shop.orders"
"""
PLAIN = """
[pipeline.copy.source.orders]
topic = "shop/orders"
[pipeline.copy.sink]
kind = "console"
"""


def load(folder: Path, text: str, name: str = "jobs.toml") -> JobFile:
    file = folder / name
    file.write_text(text)
    return load_jobs(file)


def problems(folder: Path, text: str, name: str = "jobs.toml") -> list[str]:
    with pytest.raises(FileError) as caught:
        load(folder, text, name)
    return caught.value.problems


def test_a_whole_file(tmp_path: Path) -> None:
    jobs = load(tmp_path, WHOLE)
    assert (jobs.master, jobs.conf["spark.ui.enabled"]) == ("local[2,3]", "false")
    sales = jobs.pipelines["sales"]
    (orders,) = sales.sources
    assert orders.topics == ("shop/orders", "shop/returns")
    assert orders.watermark == Watermark("at", "10000 milliseconds")
    assert orders.options == {"maxOffsetsPerTrigger": "1000"}
    assert (sales.sink.kind, sales.sink.mode) == (SinkKind.DELTA, Mode.COMPLETE)
    assert sales.checkpoint == tmp_path / "state" / "sales"
    assert sales.dead_letters is not None
    assert sales.dead_letters.path == tmp_path / "tables" / "dead"
    assert (sales.interval_millis, sales.group) == (2000, "billing")
    assert "secret" not in repr(jobs)
    copy = jobs.pipelines["copy"]
    assert (copy.interval_millis, copy.dead_letters) == (None, None)
    assert (copy.sink.table, copy.group) == ("shop.orders", "copy")


def test_all_problems_come_in_one_message(tmp_path: Path) -> None:
    text = """
    colour = "red"
    [spark]
    mastr = "local[2]"
    [pipeline.a]
    triger = "10 s"
    [pipeline.a.source.orders]
    topic = "orders"
    schem = "a INT"
    [pipeline.a.sink]
    kind = "parket"
    [pipeline.b.sink]
    kind = "parquet"
    mode = "complete"
    table = "x"
    """
    found = problems(tmp_path, text)
    begins = sorted(problem.split(": ")[0] for problem in found)
    assert begins == [
        "colour",
        "pipeline.a.sink.kind",
        "pipeline.a.source.orders.schem",
        "pipeline.a.source.orders.topic",
        "pipeline.a.triger",
        "pipeline.b.sink.mode",
        "pipeline.b.sink.path",
        "pipeline.b.sink.table",
        "pipeline.b.source",
        "spark.mastr",
    ]
    assert "pipeline.a.triger: no such key; did you mean trigger?" in found
    assert any("did you mean parquet?" in problem for problem in found)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('[pipeline.copy]\ntrigger = "often"', "pipeline.copy.trigger: "),
        ('[pipeline.copy]\ntrigger = "10 us"', "no whole number of milliseconds"),
        ('[pipeline.copy]\nsql = "SELECT 1"\nfunction = "json:loads"', "sql or function, not both"),
        ('[pipeline.copy]\nfunction = "json"', "write module:name"),
        ('[pipeline.copy]\nfunction = "json:nothing"', "json has no function nothing"),
        ('[pipeline.copy]\nfunction = "no_such:f"', "no_such cannot be imported"),
        ('[pipeline.copy.dead_letters]\nkind = "iceberg"\npath = "x"', "allowed parquet or delta"),
        ('[pipeline."a b"]', "a name has 1 to 64 letters"),
        ('[pipeline.copy.source."a-b"]\ntopic = "a/b"', "the name of a table in SQL"),
        ('[pipeline.copy.source.x]\ntopic = "a/b"\nschema = "a INT"', "dead_letters: is missing"),
        (
            '[pipeline.copy.source.x]\ntopic = "a/b"\noptions = {OnDataLoss = "report"}',
            "dead_letters: is missing",
        ),
        ('[pipeline.copy.source.x]\ntopic = "a/b"\noptions = {groupId = "g"}', "the key group of"),
        (
            '[pipeline.copy.source.x]\ntopic = "a/b"\noptions = {maxOffsetPerTrigger = 1}',
            "maxOffsetsPerTrigger?",
        ),
        ('[pipeline.copy.source.x]\ntopic = "a/b"\nschema = "payload INT"', "a dead letter needs"),
        ('[pipeline.copy.source.x]\ntopic = "a/b"\nwatermark = {column = "t"}', "watermark.delay"),
        ("[pipeline]\ncopy = 7", "is a table of keys, not 7"),
    ],
)
def test_each_problem_is_named(tmp_path: Path, more: str, problem: str) -> None:
    text = more if more.startswith("[pipeline]") else PLAIN + more
    assert any(problem in each for each in problems(tmp_path, text))


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ('kind = "topic"', "comes later"),
        ('kind = "parquet"\npath = "x"\nmode = "update"', "parquet cannot take update"),
        ('kind = "delta"\npath = "x"\nmode = "update"', "delta cannot take update"),
        ('kind = "iceberg"\npath = "x"\ntable = "a.b"\nmode = "complete"', "replace a delta table"),
        ('kind = "iceberg"\npath = "x"\ntable = "orders"', "write namespace.name"),
        ('kind = "delta"\npath = "s3://bucket/x"', "see under one path"),
        ('kind = "console"\npath = "x"', "is no key of a console sink"),
        ('path = "x"', "kind: is missing"),
    ],
)
def test_each_problem_of_a_sink_is_named(tmp_path: Path, sink: str, problem: str) -> None:
    text = f'[pipeline.a.source.orders]\ntopic = "shop/orders"\n[pipeline.a.sink]\n{sink}\n'
    assert any(problem in each for each in problems(tmp_path, text))


def test_two_queries_never_share_a_folder(tmp_path: Path) -> None:
    job = (
        '[pipeline.{0}.source.orders]\ntopic = "shop/orders"\n'
        '[pipeline.{0}.sink]\nkind = "parquet"\npath = "tables/one"\n'
    )
    (found,) = problems(tmp_path, job.format("a") + job.format("b"))
    assert found.startswith("pipeline.b.sink.path: ")
    assert found.endswith("already belongs to pipeline.a.sink.path")


@pytest.mark.parametrize(
    ("content", "problem"), [(b"a = ", "is not TOML"), (b"\xff", "is not UTF-8 at byte 0")]
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "jobs.toml"
    file.write_bytes(content)
    with pytest.raises(FileError, match=problem):
        load_jobs(file)
    with pytest.raises(FileError, match="No such file"):
        load_jobs(tmp_path / "missing.toml")


def test_a_file_without_a_job(tmp_path: Path) -> None:
    assert problems(tmp_path, "[pipeline]") == ["pipeline: declares no job; write [pipeline.NAME]"]


PYTHON = """
from dataclasses import dataclass

from headrace.pipelines import pipeline

spark = {"master": "local[1]"}

@dataclass
class Unused:
    field: int

@pipeline(source={"orders": {"topic": "shop/orders"}}, sink={"kind": "console"})
def all_orders(orders):
    return orders
"""


def test_a_python_file_declares_by_decorated_functions(tmp_path: Path) -> None:
    jobs = load(tmp_path, PYTHON, "jobs.py")
    job = jobs.pipelines["all-orders"]
    assert jobs.master == "local[1]"
    assert job.function is not None
    assert job.function("rows") == "rows"
    assert job.function_name == "all_orders"


def test_a_python_file_that_fails(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "1 / 0", "jobs.py")
    assert found == "cannot be run: ZeroDivisionError: division by zero"


def test_a_function_beside_the_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", ["."])
    (tmp_path / "beside_the_job.py").write_text("def keep(rows):\n    return rows\n")
    jobs = load(tmp_path, PLAIN + '[pipeline.copy]\nfunction = "beside_the_job:keep"\n')
    job = jobs.pipelines["copy"]
    assert job.function_name == "beside_the_job:keep"
    # Workers cannot import it, so its functions travel by value.
    monkeypatch.delitem(sys.modules, "beside_the_job")
    monkeypatch.setattr("sys.path", [])
    sent = cloudpickle.dumps(job.function)  # type: ignore[no-untyped-call]  # it has no types
    assert pickle.loads(sent)("rows") == "rows"
