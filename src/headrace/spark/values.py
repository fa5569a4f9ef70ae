"""Decodes JSON values into typed columns, row by row: a bad value affects no other.

A value is valid if it is a JSON object whose fields have the types of the schema; fields that the
schema does not name are ignored, missing ones are null. A bad value gives nulls and a sentence that
says what is wrong and where.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

# A type for msgspec; it is created at run time, so it has no static type.
_Wanted: TypeAlias = Any

_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_PLAIN: dict[type[DataType], type] = {
    StringType: str,
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    DateType: date,
    TimestampType: datetime,
    TimestampNTZType: datetime,
    BinaryType: bytes,
    DecimalType: Decimal,
}
# The types that Arrow needs in another form than the decoder returns.
_CONVERTED = (StructType, ArrayType, MapType, DecimalType, TimestampType, TimestampNTZType)


class ValueReader:
    """Decodes values of one schema."""

    def __init__(self, schema: StructType) -> None:
        """Prepare for a schema.

        Raises:
            ValueError: A type in it has no JSON form; the message lists all of them.
        """
        problems: list[str] = []
        self._decoder = msgspec.json.Decoder(_make_struct(schema, "", problems))
        if problems:
            raise ValueError("\n".join(["valueSchema: JSON has no form for", *problems]))
        self._take = attrgetter(*_names(schema)) if len(schema.fields) > 1 else _take_only
        self._kinds = [field.dataType for field in schema.fields]
        self._types = [to_arrow_type(kind, timezone="UTC") for kind in self._kinds]
        self._is_plain = not any(isinstance(kind, _CONVERTED) for kind in self._kinds)
        self._nothing = (None,) * len(self._kinds)

    def read(self, payloads: "pa.BinaryArray") -> "tuple[list[pa.Array], list[str | None]]":
        """Return the typed columns, and for every row what is wrong with it, or None."""
        rows: list[tuple[object, ...]] = []
        errors: list[str | None] = []
        for payload in payloads.to_pylist():
            try:
                rows.append(self._read_one(payload))
                errors.append(None)
            except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
                # A time out of range, or too deep a nesting for the decoder, is a bad value too.
                rows.append(self._nothing)
                errors.append(str(error) or "nested too deeply")
        columns = zip(*rows, strict=True) if rows else [()] * len(self._types)
        arrays = [
            pa.array(column, type=wanted)
            for column, wanted in zip(columns, self._types, strict=True)
        ]
        return arrays, errors

    def _read_one(self, payload: bytes) -> tuple[object, ...]:
        values: tuple[object, ...] = self._take(self._decoder.decode(payload))
        if self._is_plain:
            return values
        return tuple(
            [_convert(value, kind) for value, kind in zip(values, self._kinds, strict=True)]
        )


def _names(schema: StructType) -> list[str]:
    """Return valid names for the fields: in JSON they may be any text."""
    return [f"f{index}" for index in range(len(schema.fields))]


def _take_only(row: Any) -> tuple[object, ...]:  # noqa: ANN401 - a class that is made at run time
    return (row.f0,)


def _make_struct(schema: StructType, path: str, problems: list[str]) -> type[msgspec.Struct]:
    """Create the class for an object."""
    names = _names(schema)
    fields = [
        (name, _want(field.dataType, f"{path}{field.name}", problems), None)
        for name, field in zip(names, schema.fields, strict=True)
    ]
    renamed = dict(zip(names, schema.fieldNames(), strict=True))
    return msgspec.defstruct("Value", fields, rename=renamed, frozen=True)


def _want(kind: DataType, path: str, problems: list[str]) -> UnionType | _Wanted:
    """Return the type that a field's JSON is decoded as; null is always allowed."""
    if isinstance(kind, StructType):
        return _make_struct(kind, f"{path}.", problems) | None
    if isinstance(kind, ArrayType):
        return list[_want(kind.elementType, f"{path}[]", problems)] | None  # type: ignore[misc] # made at run time
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return dict[str, _want(kind.valueType, f"{path}{{}}", problems)] | None  # type: ignore[misc] # made at run time
    bits = _BITS.get(type(kind))
    if bits is not None:
        half = 1 << (bits - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)] | None
    plain = _PLAIN.get(type(kind))
    if plain is None:
        problems.append(f"  {path}: {kind.simpleString()}")
        return None
    return plain | None


def _convert(value: Any, kind: DataType) -> object:  # noqa: ANN401, PLR0911 - JSON's; one way out a kind
    """Return a value in the form that Arrow needs.

    Raises:
        ValueError: It does not fit: a decimal has too many digits.
    """
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {
            field.name: _convert(getattr(value, name), field.dataType)
            for name, field in zip(_names(kind), kind.fields, strict=True)
        }
    if isinstance(kind, ArrayType):
        return [_convert(each, kind.elementType) for each in value]
    if isinstance(kind, MapType):
        return [(key, _convert(each, kind.valueType)) for key, each in value.items()]
    if isinstance(kind, DecimalType):
        return _fit_decimal(value, kind)
    if isinstance(kind, TimestampType):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(kind, TimestampNTZType):
        return value.replace(tzinfo=None)
    return value


def _fit_decimal(value: Decimal, kind: DecimalType) -> Decimal:
    """Return a decimal with the digits of its type; it is never rounded."""
    if not value.is_finite():
        raise ValueError(f"{value} is no {kind.simpleString()}")
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int)  # finite
    fits = -exponent <= kind.scale and value.adjusted() < kind.precision - kind.scale
    if not fits and value:
        raise ValueError(f"{value} does not fit {kind.simpleString()}")
    return value
