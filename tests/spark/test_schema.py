"""The columns: which there are, which are the value's, and what does not fit."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headrace.spark.columns import schema_of
from headrace.spark.schema import (
    MESSAGE_COLUMNS,
    SchemaError,
    Shape,
    describe,
    read_shape,
)

ALL = tuple(MESSAGE_COLUMNS)


def shape(*fields: StructField, columns: tuple[str, ...] = ALL, **how: bool) -> Shape:
    given = {"is_typed": False, "has_error": False} | how
    return read_shape(StructType(list(fields)), columns, **given)


def test_all_columns_as_ddl() -> None:
    assert describe(ALL, "", has_error=False) == (
        "`stream` string, `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp,"
        " `origin_timestamp` timestamp, `id` binary, `payload` binary,"
        " `headers` map<string,binary>"
    )
    assert (
        describe(("offset",), "a INT", has_error=True) == "`offset` bigint, a INT, `_error` string"
    )


def test_arrow_has_the_very_types_that_the_columns_are_made_with() -> None:
    fields = [StructField(name, kind) for name, kind in MESSAGE_COLUMNS.items()]
    assert shape(*fields).arrow.equals(schema_of(ALL))
    assert isinstance(shape(*fields).arrow, pa.Schema)


def test_what_is_the_values() -> None:
    fields = (
        StructField("offset", LongType()),
        StructField("amount", DoubleType()),
        StructField("_error", StringType()),
    )
    made = shape(*fields, is_typed=True, has_error=True)
    assert made.message_columns == ("offset",)
    assert made.typed.fieldNames() == ["amount"]
    assert made.has_error


def test_errors_of_values_that_nobody_reads_are_refused() -> None:
    """They would be null in every row, as if every value were right."""
    fields = (StructField("offset", LongType()), StructField("_error", StringType()))
    with pytest.raises(SchemaError, match="_error: no column of the value is asked for"):
        shape(*fields, is_typed=True, has_error=True)
    assert shape(*fields, has_error=True).has_error  # those of lost data need no value


def test_a_value_may_have_the_name_of_a_column_that_is_left_out() -> None:
    made = shape(StructField("offset", StringType()), columns=("payload",), is_typed=True)
    assert made.message_columns == ()
    assert made.typed.fieldNames() == ["offset"]


def test_all_that_does_not_fit_is_said() -> None:
    with pytest.raises(SchemaError) as raised:
        shape(
            StructField("offset", StringType()),
            StructField("payload", MESSAGE_COLUMNS["payload"], nullable=False),
            StructField("key", StringType()),
            StructField("topic", StringType()),
            StructField("topic", StringType()),
            StructField("_error", StringType()),
        )
    message = str(raised.value)
    assert "offset: is asked for as string, and is bigint" in message
    assert "payload: is NOT NULL" in message
    assert "key: no such column; there are stream, topic" in message
    assert message.count("topic: is there twice") == 1
    assert "_error: no such column" in message
