"""Converts filters of a query to bounds, so that whole segments are never opened.

The filters taken here are exact: Spark does not check those rows again.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headrace.spark.slices import UNBOUNDED, Bounds

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND = timedelta(microseconds=1)
_NEVER_NULL = ("stream", "topic", "partition", "offset")

# From the first value that matches up to, not including, the first that does not.
_Range: TypeAlias = tuple[int, int]
_RANGES: dict[type[Filter], Callable[[int], _Range]] = {
    EqualTo: lambda value: (value, value + 1),
    GreaterThan: lambda value: (value + 1, UNBOUNDED),
    GreaterThanOrEqual: lambda value: (value, UNBOUNDED),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
}


def push(filters: list[Filter], bounds: Bounds, *, has_losses: bool) -> tuple[Bounds, list[Filter]]:
    """Return narrower bounds, and the filters that Spark must still apply, as the same objects.

    With `has_losses` there may be rows without a timestamp, which report missing messages: filters
    of the timestamp then narrow the bounds and are also applied by Spark.
    """
    left: list[Filter] = []
    for each in filters:
        narrowed = _take(each, bounds)
        bounds = bounds if narrowed is None else narrowed
        if narrowed is None or (has_losses and _column(each) == "timestamp"):
            left.append(each)
    return bounds, left


def _take(each: Filter, bounds: Bounds) -> Bounds | None:
    column = _column(each)
    if isinstance(each, IsNotNull):
        return bounds if column in (*_NEVER_NULL, "timestamp") else None
    if column == "partition":
        return _narrow_partitions(bounds, each)
    make_range = _RANGES.get(type(each))
    value = _number(column, getattr(each, "value", None))
    if make_range is None or value is None:
        return None
    first, end = make_range(value)
    return _narrow(bounds, column == "offset", max(first, 0), min(max(end, 0), UNBOUNDED))


def _column(each: Filter) -> str | None:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return path[0] if len(path) == 1 else None


def _number(column: str | None, value: object) -> int | None:
    """Return the value that a column is compared with, in our units, if that column has bounds."""
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    if column == "offset" and isinstance(value, int):
        return value
    return None


def _narrow_partitions(bounds: Bounds, each: Filter) -> Bounds | None:
    if isinstance(each, EqualTo):
        wanted = [each.value]
    elif isinstance(each, In):
        wanted = list(each.value)
    else:
        return None
    numbers = [value for value in wanted if isinstance(value, int) and bounds.wants(value)]
    return replace(bounds, partitions=tuple(numbers))


def _narrow(bounds: Bounds, is_offset: bool, first: int, end: int) -> Bounds:  # noqa: FBT001 - private
    if is_offset:
        first, end = max(bounds.offset_min, first), min(bounds.offset_max, end)
        return replace(bounds, offset_min=first, offset_max=end)
    first, end = max(bounds.time_min, first), min(bounds.time_max, end)
    return replace(bounds, time_min=first, time_max=end)
