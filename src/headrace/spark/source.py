"""The data source `headrace`: Spark's view of a topic.

```python
spark.read.format("headrace").option("topic", "shop/orders").load()
spark.readStream.format("headrace").option("subscribe", "shop/orders,shop/refunds").load()
```

The top-level module `pyspark_headrace` registers it with Spark. Readers hold no connection, because
they are sent to the tasks.

Flow: plan, read.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.broker import find_logs, resolve_edge
from headrace.spark.connections import client_of
from headrace.spark.filters import push
from headrace.spark.losses import meet
from headrace.spark.option_reader import OptionsError
from headrace.spark.options import SourceOptions, read_options
from headrace.spark.plan import plan
from headrace.spark.reading import Reading, read_slice
from headrace.spark.schema import Shape, describe, read_shape
from headrace.spark.stream import StreamReader

if TYPE_CHECKING:
    from headrace.spark.slices import Slice


class HeadraceSource(DataSource):
    """Topics as DataFrames, batch and streaming."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "headrace"

    def schema(self) -> str:
        """Return all columns that the options request."""
        options = read_options(self.options)
        if options.is_typed and not options.value_schema:
            raise OptionsError(
                "valueSchema: valueFormat is json, and which columns it has is not said: write"
                " valueSchema as DDL, such as amount DOUBLE, or give a schema to the reader"
            )
        return describe(options.columns, options.value_schema, has_error=options.has_errors)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = read_options(self.options, streaming=False)
        made = PushingReader if options.is_pushing else BatchReader
        return made(options, _shape_of(schema, options))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        options = read_options(self.options, streaming=True)
        return StreamReader(options, _shape_of(schema, options))


class BatchReader(DataSourceReader):
    """Reads the messages that topics hold when a query is planned."""

    def __init__(self, options: SourceOptions, shape: Shape) -> None:
        self._options = options
        self._bounds = options.bounds
        self._reading = Reading(options.connection, shape, options.on_loss, options.read)

    def partitions(self) -> list[InputPartition]:
        """Return a partition per slice."""
        options = self._options
        client = client_of(options.connection)
        logs = find_logs(client, options.topics)
        start = resolve_edge(client, options.starting, logs, "startingOffsets")
        end = resolve_edge(client, options.ending, logs, "endingOffsets")
        logs = find_logs(client, options.topics, start)
        made = plan(start, end, logs, self._bounds, options.split)
        meet(made.losses, options.on_loss)
        return [InputPartition(each) for each in made.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice; without any slice Spark still requests one."""
        wanted: Slice | None = partition.value
        return iter(()) if wanted is None else read_slice(self._reading, wanted)


class PushingReader(BatchReader):
    """Reads only rows that match the filters.

    It is a separate class because Spark refuses a reader that takes filters when its setting
    `spark.sql.python.filterPushdown.enabled` is off.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that become bounds; return those that Spark must apply."""
        has_losses = self._options.on_loss == "report"
        self._bounds, left = push(filters, self._bounds, has_losses=has_losses)
        return left


def _shape_of(schema: StructType, options: SourceOptions) -> Shape:
    return read_shape(
        schema, options.columns, is_typed=options.is_typed, has_error=options.has_errors
    )
