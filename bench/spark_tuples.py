"""The same topic read as rows of Python, for what Arrow batches are compared with."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headrace.spark.options import read_options
from headrace.spark.schema import read_shape
from headrace.spark.source import BatchReader, HeadraceSource

Row = tuple[Any, ...]


class TupleSource(HeadraceSource):
    """Our source, but for the last step: tuples where it gives record batches."""

    @classmethod
    def name(cls) -> str:
        """Give the name behind `format`."""
        return "headrace_tuples"

    def reader(self, schema: StructType) -> "TupleReader":
        """Give the reader of a batch."""
        options = read_options(self.options, streaming=False)
        shape = read_shape(
            schema, options.columns, is_typed=options.is_typed, has_error=options.has_errors
        )
        return TupleReader(options, shape)


class TupleReader(BatchReader):
    """Gives every row as a tuple."""

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Give the rows of a slice; making tuples of columns is the cheapest way to have them."""
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
