"""Delta and Iceberg as Spark sinks without a jar: tasks write files, a commit lists them.

Flow:       write.
Invariants: a writer holds no state, because Spark creates a new one for every batch and commit.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipelines.declared import Sink, SinkKind
from headrace.pipelines.table_files import (
    Batch,
    DataFile,
    Stamp,
    nullable,
    remove_files,
    write_file,
)

FORMAT = "headrace-table"
# Spark's own names, which are not public: a test checks them, and the writer refuses to work
# without them, because a batch without its number could be written twice.
QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


class Target(Protocol):
    """A table to which each batch is committed once."""

    @property
    def data_folder(self) -> Path:
        """The folder that tasks write to."""

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table, or check that rows of this schema fit it."""

    def commit(self, batch: Batch) -> bool:
        """Add a batch to the table; return False if it was already there."""


def find_target(sink: Sink) -> Target:
    """Return the table that a sink declares; loads only its own library, in every worker."""
    assert sink.path is not None
    if sink.kind is SinkKind.DELTA:
        from headrace.pipelines.delta import DeltaTarget  # noqa: PLC0415 - see above

        return DeltaTarget(sink.path)
    assert sink.kind is SinkKind.ICEBERG
    from headrace.pipelines.iceberg import IcebergTarget  # noqa: PLC0415 - see above

    return IcebergTarget(sink.path, sink.table, sink.catalog)


def sink_options(sink: Sink) -> dict[str, str]:
    """Return the options for the writer, as options of Spark."""
    return {
        "kind": sink.kind,
        "folder": str(sink.path),
        "table": sink.table,
        "catalog": json.dumps(dict(sink.catalog)),
    }


def table_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a table for rows of this schema."""
    return nullable(to_arrow_schema(schema, timezone="UTC"))


class TableSink(DataSource):
    """`format("headrace-table")`: for `headrace pipeline`, which sets its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> "TableWriter":  # noqa: FBT001, N802 - Spark's own signature
        sink = Sink(
            kind=SinkKind(self.options["kind"]),
            path=Path(self.options["folder"]),
            table=self.options["table"],
            catalog=json.loads(self.options["catalog"]),
        )
        return TableWriter(find_target(sink), schema, is_whole=overwrite)


@dataclass(frozen=True)
class TaskWrote(WriterCommitMessage):
    """The message of a task to the commit, which does not get the query from Spark."""

    query: str
    files: tuple[DataFile, ...]


class TableWriter(DataSourceStreamArrowWriter):
    """Writes one batch: in tasks, then commits once in the driver."""

    def __init__(self, target: Target, schema: StructType, *, is_whole: bool) -> None:
        self._target = target
        self._schema = table_schema(schema)
        self._is_whole = is_whole

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        stamp = _read_stamp()
        file = write_file(self._target.data_folder, stamp, self._schema, iterator)
        return TaskWrote(stamp.query, () if file is None else (file,))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's own signature
        wrote = _of_tasks(messages)
        if not wrote:
            return
        files = tuple(file for each in wrote for file in each.files)
        self._target.commit(Batch(wrote[0].query, batchId, files, self._is_whole))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's own signature
        del batchId
        for each in _of_tasks(messages):
            remove_files(self._target.data_folder, each.files)


def _read_stamp() -> Stamp:
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context else None
    batch = context.getLocalProperty(BATCH_PROPERTY) if context else None
    if context is None or query is None or batch is None:
        raise RuntimeError(
            f"this Spark does not tell tasks {QUERY_PROPERTY} and {BATCH_PROPERTY}; without them a "
            "batch could be written twice, so nothing is written"
        )
    return Stamp(query, int(batch), context.partitionId())


def _of_tasks(messages: list[WriterCommitMessage | None]) -> list[TaskWrote]:
    """Return the messages of the tasks; tasks that failed have none."""
    return [message for message in messages if isinstance(message, TaskWrote)]
