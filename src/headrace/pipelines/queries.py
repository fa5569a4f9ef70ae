"""The queries of a job: its own, and that of its dead letters.

Flow: write.
"""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.pipelines.checkpoint import DEAD_LETTERS, QUERY, read_state
from headrace.pipelines.declared import Mode, Pipeline, Sink, SinkKind
from headrace.pipelines.parquet_leftovers import remove_parquet_leftovers
from headrace.pipelines.table_files import TableError
from headrace.pipelines.table_sink import (
    FORMAT,
    find_target,
    sink_options,
    table_schema,
)
from headrace.pipelines.transform import build_dead_letters, build_rows

_CONSOLE_OPTIONS = {"truncate": "false"}


@dataclass(frozen=True)
class Planned:
    """A query that can be started, again and again on its checkpoint, and what it is for."""

    pipeline: Pipeline
    part: str  # which of the job's queries: the name of its checkpoint folder
    writer: DataStreamWriter

    def start(self) -> StreamingQuery:
        """Start it where its checkpoint says."""
        return self.writer.start()

    @property
    def name(self) -> str:
        """What people are shown."""
        return self.pipeline.name if self.part == QUERY else f"{self.pipeline.name}, dead letters"


def plan_queries(spark: SparkSession, pipeline: Pipeline) -> list[Planned]:
    """Give all queries of a job, with the places that they write to made ready.

    Raises:
        TableError: A table cannot take the rows.
        AnalysisException: Spark refuses the SQL.
    """
    parts = [(QUERY, build_rows(spark, pipeline), pipeline.sink)]
    if pipeline.dead_letters is not None:
        parts.append((DEAD_LETTERS, build_dead_letters(spark, pipeline), pipeline.dead_letters))
    for part, frame, sink in parts:
        _prepare(sink, pipeline.checkpoint / part, frame)
    return [
        Planned(pipeline, part, _writer(frame, sink, pipeline, part)) for part, frame, sink in parts
    ]


def _prepare(sink: Sink, checkpoint: Path, frame: DataFrame) -> None:
    """Make the place that rows go to, and clear it of what a killed run left."""
    if sink.kind is SinkKind.PARQUET:
        assert sink.path is not None
        _refuse_foreign_files(sink.path, checkpoint)
        remove_parquet_leftovers(sink.path)
    elif sink.kind is not SinkKind.CONSOLE:
        find_target(sink).prepare(table_schema(frame.schema))


def _refuse_foreign_files(folder: Path, checkpoint: Path) -> None:
    """A query that begins needs a folder without files.

    Files that no batch committed are removed; and Spark's file sink skips every batch whose number
    the folder's list has already, though another query counted it.
    """
    is_new = read_state(checkpoint) is None
    if is_new and any(path.is_file() for path in folder.rglob("*")):
        raise TableError(
            f"{folder}: holds files, but {checkpoint} says that this job never ran; give an empty"
            " folder, or the checkpoint that belongs to it"
        )


def _writer(frame: DataFrame, sink: Sink, pipeline: Pipeline, part: str) -> DataStreamWriter:
    writer = (
        frame.writeStream.queryName(f"{pipeline.name} {part}")
        .outputMode(sink.mode if part == QUERY else Mode.APPEND)
        .option("checkpointLocation", str(pipeline.checkpoint / part))
    )
    if pipeline.interval_millis is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{pipeline.interval_millis} milliseconds")
    if sink.kind is SinkKind.PARQUET:
        writer = writer.format("parquet").option("path", str(sink.path)).options(**sink.options)
        return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
    if sink.kind is SinkKind.CONSOLE:
        return writer.format("console").options(**(_CONSOLE_OPTIONS | dict(sink.options)))
    return writer.format(FORMAT).options(**sink_options(sink))
