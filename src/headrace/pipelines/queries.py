"""The queries of a job: its own, and the one for its dead letters.

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
    """A query that can be started repeatedly from its checkpoint, and its purpose."""

    pipeline: Pipeline
    part: str  # the name of its checkpoint folder, which tells the job's queries apart
    writer: DataStreamWriter

    def start(self) -> StreamingQuery:
        """Start it from its checkpoint."""
        return self.writer.start()

    @property
    def name(self) -> str:
        """The name shown to people."""
        return self.pipeline.name if self.part == QUERY else f"{self.pipeline.name}, dead letters"


def plan_queries(spark: SparkSession, pipeline: Pipeline) -> list[Planned]:
    """Return all queries of a job, with their destinations prepared.

    Raises:
        TableError: The rows do not fit a table.
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
    """Create the destination of the rows, and remove what a killed run left there."""
    if sink.kind is SinkKind.PARQUET:
        assert sink.path is not None
        _refuse_foreign_files(sink.path, checkpoint)
        remove_parquet_leftovers(sink.path)
    elif sink.kind is not SinkKind.CONSOLE:
        find_target(sink).prepare(table_schema(frame.schema))


def _refuse_foreign_files(folder: Path, checkpoint: Path) -> None:
    """Refuse a folder with files for a query that begins.

    Files that no batch committed would be removed; and Spark's file sink skips every batch whose
    number is already in the folder's list, even if it came from another query.
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
