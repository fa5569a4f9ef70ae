"""The columns of a topic: of every message, of its decoded value, and `_error`.

```
stream topic partition offset timestamp origin_timestamp id payload headers | amount ... | _error
            what every message has, or the `columns` named                  | valueSchema| why not
```

`_error` is null, or says why the value could not be decoded (its typed columns are then null), or,
with `onDataLoss` set to `report`, which offsets are missing (all but the position is then null).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE_COLUMNS: dict[str, DataType] = {
    "stream": StringType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "origin_timestamp": TimestampType(),
    "id": BinaryType(),
    "payload": BinaryType(),
    "headers": MapType(StringType(), BinaryType(), valueContainsNull=True),
}
ERROR_COLUMN = "_error"


class SchemaError(ValueError):
    """The requested columns do not exist in this source."""


@dataclass(frozen=True)
class Shape:
    """The rows to return: all fields in order, and which of them come from the value."""

    schema: StructType
    typed: StructType

    @property
    def message_columns(self) -> tuple[str, ...]:
        """The columns that come from the message itself."""
        names = [name for name in self.schema.fieldNames() if name in MESSAGE_COLUMNS]
        return tuple(name for name in names if name not in self.typed.fieldNames())

    @property
    def has_error(self) -> bool:
        """Whether rows have a column for errors."""
        return ERROR_COLUMN in self.schema.fieldNames()

    @property
    def arrow(self) -> "pa.Schema":
        """The schema that Spark compares with the first batch."""
        return to_arrow_schema(self.schema, timezone="UTC")


def describe(columns: tuple[str, ...], value_schema: str, *, has_error: bool) -> str:
    """Return the columns as DDL, which Spark itself parses."""
    fields = [f"`{name}` {MESSAGE_COLUMNS[name].simpleString()}" for name in columns]
    fields += [value_schema] if value_schema else []
    fields += [f"`{ERROR_COLUMN}` string"] if has_error else []
    return ", ".join(fields)


def read_shape(
    schema: StructType, columns: tuple[str, ...], *, is_typed: bool, has_error: bool
) -> Shape:
    """Determine the origin of each requested field; a user may request only some of them.

    A field with the name of a message column that `columns` leaves out belongs to the value.

    Raises:
        SchemaError: A field is unknown, duplicated, of another type, or not nullable; or the
            errors of values are requested without a value.
    """
    problems: list[str] = []
    typed: list[StructField] = []
    names = schema.fieldNames()
    for field in schema.fields:
        wanted = MESSAGE_COLUMNS[field.name] if field.name in columns else None
        if field.name == ERROR_COLUMN and has_error:
            wanted = StringType()
        if names.count(field.name) > 1:
            problems.append(
                f"{field.name}: is there twice; name the message columns to keep with the option"
                " columns, and leave this one out"
            )
        elif wanted is None and is_typed:
            typed.append(field)
        elif wanted is None:
            problems.append(f"{field.name}: no such column; there are {', '.join(columns)}")
        elif field.dataType != wanted:
            found, right = field.dataType.simpleString(), wanted.simpleString()
            problems.append(f"{field.name}: is asked for as {found}, and is {right}")
        if not field.nullable:
            problems.append(f"{field.name}: is NOT NULL; every column of this source is nullable")
    if is_typed and not typed and ERROR_COLUMN in names:
        problems.append(
            f"{ERROR_COLUMN}: no column of the value is asked for, so none is read, and every row"
            " would look right; ask for one of them beside it"
        )
    if problems:
        raise SchemaError("\n".join(["the schema does not fit:", *dict.fromkeys(problems)]))
    return Shape(schema, StructType(typed))
