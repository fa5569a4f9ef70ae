"""The data files of a table: tasks write them, and a commit registers them.

Flow:       write.
Invariants: a file's name contains its query, batch and task, and is never reused; a file that no
            commit lists is a leftover, which the commit of its batch removes.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_BYTES_MIN = 16 << 20
COMPRESSION = "zstd"


class TableError(Exception):
    """The rows cannot be written to a table; the message says why and what to do."""


@dataclass(frozen=True)
class Stamp:
    """The query, batch and task that writes a file."""

    query: str
    batch: int
    task: int

    def file_name(self) -> str:
        """Return a new, unique name."""
        return f"{_prefix(self.query, self.batch)}{self.task:05}-{uuid.uuid4().hex}.parquet"


@dataclass(frozen=True)
class DataFile:
    """A data file, by its name in the table's folder."""

    name: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class Batch:
    """All files of one batch; `is_whole` means that it replaces the content of the table."""

    query: str
    number: int
    files: tuple[DataFile, ...]
    is_whole: bool = False


def write_file(
    folder: Path, stamp: Stamp, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> DataFile | None:
    """Write a task's rows to a new file and sync it; return None if there are no rows."""
    tables = _gather(batches)
    first = next(tables, None)
    if first is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / stamp.file_name()
    try:
        rows = _write_tables(path, schema, _chain(first, tables))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return DataFile(path.name, path.stat().st_size, rows)


def remove_files(folder: Path, files: Iterable[DataFile]) -> None:
    """Remove files that no commit will list."""
    for file in files:
        (folder / file.name).unlink(missing_ok=True)


def remove_leftovers(folder: Path, batch: Batch) -> int:
    """Remove files left by killed attempts at a committed batch; return their number."""
    kept = {file.name for file in batch.files}
    leftovers = [
        path
        for path in folder.glob(f"{_prefix(batch.query, batch.number)}*.parquet")
        if path.name not in kept
    ]
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every column nullable, as in tables."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def check_columns(where: str, has: pa.Schema, gives: pa.Schema) -> None:
    """Refuse rows that do not fit a table.

    Raises:
        TableError: Columns differ; the message lists them.
    """
    table = {field.name: field.type for field in has}
    rows = {field.name: field.type for field in gives}
    problems = [f"has {name}, which the job does not give" for name in table if name not in rows]
    problems += [f"has no column {name}" for name in rows if name not in table]
    problems += [
        f"has {name} as {table[name]}, the job gives {rows[name]}"
        for name in rows
        if name in table and table[name] != rows[name]
    ]
    if problems:
        raise TableError(
            f"{where}: {'; '.join(problems)}; write to another table or change the job"
        )


def _prefix(query: str, batch: int) -> str:
    return f"{query}-{batch:08}-"


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small batches, because each table that is written becomes a row group."""
    waiting: list[pa.RecordBatch] = []
    bytes_waiting = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        bytes_waiting += batch.nbytes
        if bytes_waiting >= ROW_GROUP_BYTES_MIN:
            yield pa.Table.from_batches(waiting)
            waiting, bytes_waiting = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _chain(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest


def _write_tables(path: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> int:
    rows = 0
    with path.open("xb") as stream:
        with pq.ParquetWriter(stream, schema, compression=COMPRESSION) as writer:
            for table in tables:
                # Spark uses its session's time zone; the instants are the same.
                writer.write_table(table.cast(schema))
                rows += table.num_rows
        stream.flush()
        os.fsync(stream.fileno())  # the file must be durable before the commit that lists it
    return rows
