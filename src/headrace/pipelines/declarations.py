"""From the tables of a job file to declared jobs; all problems are reported in one message.

```toml
[spark]
master = "local[*]"                    # the default; any Spark master
conf = { "spark.sql.shuffle.partitions" = 2 }

[node]                                 # optional: else resolved as for every client
address = "127.0.0.1:8090"

[pipeline.sales]
sql = "SELECT product, sum(cents) AS cents FROM orders GROUP BY product"
checkpoint = "checkpoints/sales"       # paths are relative to the file
trigger = "10 s"                       # or "availableNow"

[pipeline.sales.source.orders]         # the name of the table in SQL
topic = "shop/orders"
schema = "product STRING, cents BIGINT"

[pipeline.sales.sink]
kind = "delta"
path = "tables/sales"
mode = "complete"
```
"""

import re
from collections.abc import Mapping
from pathlib import Path

from headrace.pipelines.declared import (
    INTERVAL_DEFAULT_MILLIS,
    MASTER_DEFAULT,
    RESTARTS_DEFAULT,
    JobFile,
    Pipeline,
    Sink,
    SinkKind,
    Source,
    Transform,
    Watermark,
)
from headrace.pipelines.files import FileError, find_function, read_tables
from headrace.pipelines.keys import Keys
from headrace.pipelines.sink_keys import read_sink
from headrace.pipelines.source_options import CONNECTION_OPTIONS, source_problems

AVAILABLE_NOW = "availableNow"
DEAD_LETTER_KINDS = (SinkKind.PARQUET, SinkKind.DELTA)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def load_jobs(file: Path) -> JobFile:
    """Return the jobs that a file declares.

    Raises:
        FileError: The file is wrong; the error lists all problems.
    """
    tables = read_tables(file)
    problems: list[str] = []
    folder = file.resolve().parent
    top = Keys("", tables, problems)
    spark = top.table("spark")
    master, conf = spark.text("master", MASTER_DEFAULT), spark.texts_by_name("conf")
    spark.finish()
    node = top.table("node")
    connection = {key: node.text(key) for key in CONNECTION_OPTIONS if key in node}
    node.finish()
    declared = top.table("pipeline", needed=True)
    pipelines = {
        name: _read_pipeline(declared, name, folder, connection) for name in declared.names()
    }
    top.finish()
    if not pipelines and not problems:
        problems.append("pipeline: declares no job; write [pipeline.NAME]")
    problems += _shared_folders(pipelines)
    if problems:
        raise FileError(file, [problem.removeprefix(".") for problem in problems])
    return JobFile(file, pipelines, connection, master, conf)


def _read_pipeline(
    declared: Keys, name: str, folder: Path, connection: Mapping[str, str]
) -> Pipeline:
    keys = declared.table(name)
    if not _NAME.fullmatch(name):
        declared.refuse(name, "a name has 1 to 64 letters, digits, points, dashes and underscores")
    sql = keys.text("sql")
    function, function_name = _read_function(keys, folder)
    if sql and function_name:
        keys.refuse("sql", "give sql or function, not both")
    made = Pipeline(
        name=name,
        sources=_read_sources(keys),
        sink=read_sink(keys.table("sink", needed=True), folder, tuple(SinkKind)),
        checkpoint=folder / keys.text("checkpoint", f"checkpoints/{name}"),
        dead_letters=_read_dead_letters(keys, folder),
        sql=sql,
        function=function,
        function_name=function_name,
        interval_millis=_read_trigger(keys),
        connection=connection,
        group=keys.text("group", name),
        restarts=keys.count("restarts", RESTARTS_DEFAULT),
    )
    if made.dead_letters is None and any(source.can_reject for source in made.sources):
        keys.refuse(
            "dead_letters",
            "is missing: rows that do not fit schema, cast or require, and losses that onDataLoss"
            " reports, need a table to go to",
        )
    for source in made.sources:
        for problem in source_problems(made, source):
            keys.problems.append(f"{keys.path}.source.{source.view}.{problem}")
    keys.finish()
    return made


def _read_function(keys: Keys, folder: Path) -> tuple[Transform | None, str]:
    raw = keys.raw("function")
    if raw is None:
        return None, ""
    if callable(raw):  # a decorated function of a Python file
        return raw, getattr(raw, "__name__", "function")
    name = keys.text("function")
    if not name:
        return None, ""
    try:
        return find_function(name, folder), name
    except ValueError as error:
        keys.refuse("function", f"{name!r}: {error}")
        return None, name


def _read_trigger(keys: Keys) -> int | None:
    raw = keys.raw("trigger")
    if raw is None:
        return INTERVAL_DEFAULT_MILLIS
    if raw == AVAILABLE_NOW:
        return None
    millis = keys.duration_millis("trigger", raw)
    if millis is None:
        keys.refuse("trigger", f"allowed {AVAILABLE_NOW}, or the time between batches: '10 s'")
    return millis


def _read_sources(keys: Keys) -> tuple[Source, ...]:
    tables = keys.table("source", needed=True)
    names = tables.names()
    if "topic" in names or "topics" in names:
        keys.refuse("source", "needs a name for SQL: write [pipeline.NAME.source.VIEW]")
        return ()
    return tuple(_read_source(tables, view) for view in names)


def _read_source(tables: Keys, view: str) -> Source:
    keys = tables.table(view)
    if not _VIEW.fullmatch(view):
        tables.refuse(view, "the name of a table in SQL has letters, digits and underscores")
    source = Source(
        view=view,
        topics=keys.texts("topic", needed=True),
        schema=keys.text("schema"),
        cast=keys.texts_by_name("cast"),
        require=keys.texts_by_name("require"),
        watermark=_read_watermark(keys),
        options=keys.texts_by_name("options"),
    )
    keys.finish()
    return source


def _read_watermark(keys: Keys) -> Watermark | None:
    if "watermark" not in keys:
        return None
    table = keys.table("watermark")
    column = table.text("column", needed=True)
    millis = table.duration_millis("delay", table.raw("delay") or "")
    table.finish()
    return Watermark(column, f"{millis} milliseconds") if column and millis is not None else None


def _read_dead_letters(keys: Keys, folder: Path) -> Sink | None:
    if "dead_letters" not in keys:
        return None
    return read_sink(keys.table("dead_letters"), folder, DEAD_LETTER_KINDS)


def _shared_folders(pipelines: dict[str, Pipeline]) -> list[str]:
    """Find queries that share a folder: each would remove the other's files as leftovers."""
    owners: dict[Path, str] = {}
    problems = []
    for name, each in pipelines.items():
        places = [("checkpoint", each.checkpoint), ("sink.path", each.sink.path)]
        if each.dead_letters is not None:
            places.append(("dead_letters.path", each.dead_letters.path))
        for key, place in places:
            if place is None or (key == "sink.path" and each.sink.kind is SinkKind.ICEBERG):
                continue  # one warehouse holds many tables
            path, where = place.resolve(), f"pipeline.{name}.{key}"
            if path in owners:
                problems.append(f"{where}: {path} already belongs to {owners[path]}")
            owners[path] = where
    return problems
