"""An Iceberg table as a target: each batch is one snapshot, applied exactly once.

Invariants: the number of a query's newest batch is a property of the table, changed in the same
            commit as its files; snapshots also have their batch number, but they expire.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table

from headrace.pipelines.table_files import (
    Batch,
    TableError,
    check_columns,
    remove_files,
    remove_leftovers,
)

CATALOG_FILE = "catalog.db"
QUERY_PROPERTY = "headrace.query"
BATCH_PROPERTY = "headrace.batch"


@dataclass(frozen=True)
class IcebergTarget:
    """A table of an Iceberg catalog; without properties, of a SQLite catalog in the warehouse."""

    warehouse: Path
    table: str
    catalog: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_folder(self) -> Path:
        """The folder that tasks write to."""
        return self._folder(self._load())

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table, or check that rows of this schema fit it.

        Raises:
            TableError: They do not fit, or the table's files are not in a folder.
        """
        self.warehouse.mkdir(parents=True, exist_ok=True)
        catalog = self._open()
        catalog.create_namespace_if_not_exists(self.table.split(".")[0])
        if not catalog.table_exists(self.table):
            catalog.create_table(self.table, schema=schema)
            return
        # The catalog has its own types: for example one type for both of Arrow's strings.
        gives = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema)).as_arrow()
        table = catalog.load_table(self.table)
        check_columns(self.table, table.schema().as_arrow(), gives)
        self._folder(table)

    def commit(self, batch: Batch) -> bool:
        """Add a batch to the table; return False if it was already there.

        Raises:
            CommitFailedException: Another writer changed the table meanwhile; a replay tries again.
        """
        table = self._load()
        folder = self._folder(table)
        key = f"{BATCH_PROPERTY}.{batch.query}"
        if int(table.properties.get(key, -1)) >= batch.number:
            remove_files(folder, batch.files)
            return False
        if batch.files:
            with table.transaction() as transaction:
                transaction.add_files(
                    [str(folder / file.name) for file in batch.files],
                    snapshot_properties={
                        QUERY_PROPERTY: batch.query,
                        BATCH_PROPERTY: str(batch.number),
                    },
                    check_duplicate_files=False,  # names are never used twice
                )
                transaction.set_properties({key: str(batch.number)})
        remove_leftovers(folder, batch)
        return True

    def _open(self) -> Catalog:
        own = {
            "type": "sql",
            "uri": f"sqlite:///{self.warehouse / CATALOG_FILE}",
            "warehouse": f"file://{self.warehouse}",
        }
        return load_catalog("headrace", **(dict(self.catalog) or own))

    def _load(self) -> Table:
        return self._open().load_table(self.table)

    def _folder(self, table: Table) -> Path:
        location = urlparse(table.location())
        if location.scheme not in ("", "file"):
            raise TableError(
                f"{self.table}: its files are at {table.location()}; the sink writes to a folder "
                "that driver and executors see under one path"
            )
        return Path(location.path) / "data"
