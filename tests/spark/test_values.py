"""Values in JSON: each row by itself, with the reason where it is wrong."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from headrace.spark.values import ValueReader


def read_one(kind: DataType, text: str | bytes) -> tuple[object, str | None]:
    payload = text.encode() if isinstance(text, str) else text
    reader = ValueReader(StructType([StructField("x", kind)]))
    (column,), (error,) = reader.read(pa.array([payload]))
    return column.to_pylist()[0], error


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (LongType(), '{"x": 9007199254740993, "y": 1}', 9007199254740993),
        (LongType(), "{}", None),
        (LongType(), '{"x": null}', None),
        (DoubleType(), '{"x": 3}', 3.0),
        (BooleanType(), '{"x": true}', True),
        (StringType(), '{"x": "é"}', "é"),
        (DecimalType(5, 2), '{"x": 1.25}', Decimal("1.25")),
        (DecimalType(5, 2), '{"x": "100.00"}', Decimal("100.00")),
        (DecimalType(5, 2), '{"x": 0.000}', Decimal(0)),
        (DateType(), '{"x": "2026-01-31"}', date(2026, 1, 31)),
        (TimestampType(), '{"x": "2026-01-31T13:00:00+01:00"}', NOON),
        (TimestampType(), '{"x": "2026-01-31T12:00:00"}', NOON),
        (TimestampNTZType(), '{"x": "2026-01-31T12:00:00"}', NOON.replace(tzinfo=None)),
        (BinaryType(), '{"x": "aGk="}', b"hi"),
        (ArrayType(IntegerType()), '{"x": [1, null]}', [1, None]),
        (MapType(StringType(), LongType()), '{"x": {"k": 1}}', [("k", 1)]),
        (StructType([StructField("a b", ByteType())]), '{"x": {"a b": 3}}', {"a b": 3}),
    ],
)
def test_right_values(kind: DataType, text: str, value: object) -> None:
    assert read_one(kind, text) == (value, None)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (LongType(), "no json", "malformed"),
        (LongType(), b"\xff", "malformed"),
        (LongType(), "", "truncated"),
        (LongType(), "[1]", "Expected `object`"),
        (LongType(), '{"x": 1}{"x": 2}', "trailing"),
        (LongType(), '{"x": "1"}', "$.x"),
        (LongType(), '{"x": 1e400}', "$.x"),
        (LongType(), '{"x": 9223372036854775808}', "$.x"),
        (ByteType(), '{"x": 128}', "<= 127"),
        (DecimalType(5, 2), '{"x": 1234.5}', "1234.5 does not fit decimal(5,2)"),
        (DecimalType(5, 2), '{"x": 0.125}', "0.125 does not fit decimal(5,2)"),
        (DecimalType(5, 2), '{"x": "NaN"}', "NaN is no decimal(5,2)"),
        (DateType(), '{"x": "yesterday"}', "$.x"),
        (TimestampType(), '{"x": "0001-01-01T00:00:00+10:00"}', "date value out of range"),
        (StringType(), '{"x": "' + "\\ud800" + '"}', "truncated"),
        (ArrayType(LongType()), '{"x": ' + "[" * 100_000, "$.x"),
        (StructType([StructField("y", ByteType())]), '{"x": {"y": []}}', "$.x.y"),
    ],
)
def test_wrong_values(kind: DataType, text: str | bytes, said: str) -> None:
    value, error = read_one(kind, text)
    assert value is None
    assert error is not None
    assert said in error


ROWS = st.lists(
    st.none() | st.fixed_dictionaries({"a": st.integers(-5, 5), "b": st.text(max_size=5)}),
    max_size=20,
)


@given(ROWS)
def test_a_wrong_value_spoils_no_other(rows: list[dict[str, object] | None]) -> None:
    payloads = [b"{" if row is None else json.dumps(row).encode() for row in rows]
    reader = ValueReader(StructType([StructField("a", LongType()), StructField("b", StringType())]))
    columns, errors = reader.read(pa.array(payloads, pa.binary()))
    assert [error is None for error in errors] == [row is not None for row in rows]
    for name, column in zip("ab", columns, strict=True):
        assert column.to_pylist() == [row and row[name] for row in rows]


def test_types_that_json_has_no_form_for_are_all_named() -> None:
    fields = [
        StructField("v", StructType([StructField("w", VariantType())])),
        StructField("m", MapType(IntegerType(), StringType())),
    ]
    with pytest.raises(ValueError, match=r"(?s)v\.w: variant.*m: map<int,string>"):
        ValueReader(StructType(fields))
