"""A Delta table as a target: each batch is one transaction, applied exactly once.

Invariants: the transaction of (query, batch) is in the same log entry as its files, so a repeated
            batch is recognised; two drivers cannot both commit it.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from headrace.pipelines.table_files import (
    Batch,
    DataFile,
    check_columns,
    remove_files,
    remove_leftovers,
)


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table in a folder."""

    path: Path

    @property
    def data_folder(self) -> Path:
        """The folder that tasks write to."""
        return self.path

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table, or check that rows of this schema fit it.

        Raises:
            TableError: They do not fit.
        """
        if not DeltaTable.is_deltatable(str(self.path)):
            self.path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(str(self.path), schema=Schema.from_arrow(schema))
            return
        has = pa.schema(DeltaTable(str(self.path)).schema().to_arrow())
        check_columns(str(self.path), has, pa.schema(Schema.from_arrow(schema).to_arrow()))

    def commit(self, batch: Batch) -> bool:
        """Add a batch to the table; return False if it was already there.

        Raises:
            CommitFailedError: Another driver is committing the same query's batches.
        """
        table = DeltaTable(str(self.path))
        newest = table.transaction_version(batch.query)
        if newest is not None and newest >= batch.number:
            remove_files(self.path, batch.files)
            return False
        if batch.files or batch.is_whole:
            table.create_write_transaction(
                [_add(file) for file in batch.files],
                mode="overwrite" if batch.is_whole else "append",
                schema=table.schema(),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(batch.query, batch.number)]
                ),
            )
        remove_leftovers(self.path, batch)
        return True


def _add(file: DataFile) -> AddAction:
    return AddAction(
        path=file.name,
        size=file.bytes,
        partition_values={},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
