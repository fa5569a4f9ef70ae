"""Makes rows for Spark from the columns of messages: in its order, with its types."""

from collections.abc import Sequence

import pyarrow as pa

from headrace.spark.columns import Place
from headrace.spark.losses import Loss
from headrace.spark.schema import ERROR_COLUMN, Shape
from headrace.spark.values import ValueReader


class RowMaker:
    """Makes rows of one shape.

    Attributes:
        columns: The columns of messages that it needs: those of the shape, the offset to find
            gaps, the timestamp to select rows, and the value to decode.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._arrow = shape.arrow
        self._values = ValueReader(shape.typed) if shape.typed.fields else None
        needed = (*shape.message_columns, "offset", "timestamp")
        needed += () if self._values is None else ("payload",)
        self.columns = tuple(dict.fromkeys(needed))

    def make(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of messages."""
        found = {name: batch.column(name) for name in self._shape.message_columns}
        if self._values is not None:
            arrays, errors = self._values.read(batch.column("payload"))
            found |= dict(zip(self._shape.typed.fieldNames(), arrays, strict=True))
            found[ERROR_COLUMN] = pa.array(errors, pa.string())
        elif self._shape.has_error:
            found[ERROR_COLUMN] = pa.nulls(len(batch), pa.string())
        return self._assemble(found)

    def report(self, place: Place, losses: Sequence[Loss]) -> pa.RecordBatch:
        """Return a row per loss: its position, and a text with the missing offsets."""
        count = len(losses)
        found = {
            "stream": pa.array([place.stream] * count, pa.string()),
            "topic": pa.array([place.topic] * count, pa.string()),
            "partition": pa.array([place.partition] * count, pa.int32()),
            "offset": pa.array([loss.first for loss in losses], pa.int64()),
        }
        found = {name: found[name] for name in found if name in self._shape.message_columns}
        found[ERROR_COLUMN] = pa.array([str(loss) for loss in losses], pa.string())
        for each in self._arrow:
            if each.name not in found:
                found[each.name] = pa.nulls(count, each.type)
        return self._assemble(found)

    def _assemble(self, found: dict[str, pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [found[name] for name in self._arrow.names], schema=self._arrow
        )
