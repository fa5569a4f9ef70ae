"""Filters: what is taken is exact, what is not is given back as the same object."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from headrace.spark.filters import push
from headrace.spark.slices import Bounds

Comparison: TypeAlias = (
    type[EqualTo]
    | type[GreaterThan]
    | type[GreaterThanOrEqual]
    | type[LessThan]
    | type[LessThanOrEqual]
)
COMPARED: dict[Comparison, Callable[[int, int], bool]] = {
    EqualTo: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
}
Wanted: TypeAlias = list[tuple[Comparison, int]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS = st.integers(-3, 30)


@given(st.lists(st.tuples(st.sampled_from(list(COMPARED)), NUMBERS), max_size=4))
def test_bounds_of_offsets_are_what_the_filters_say(wanted: Wanted) -> None:
    filters: list[Filter] = [made(("offset",), value) for made, value in wanted]
    bounds, left = push(filters, Bounds(), has_losses=False)
    assert left == []
    for offset in range(35):
        is_wanted = all(COMPARED[made](offset, value) for made, value in wanted)
        assert (bounds.offset_min <= offset < bounds.offset_max) == is_wanted


@given(st.lists(st.tuples(st.sampled_from(list(COMPARED)), NUMBERS), max_size=4))
def test_bounds_of_timestamps_are_what_the_filters_say(wanted: Wanted) -> None:
    zone = timezone(timedelta(hours=5))
    filters: list[Filter] = [
        made(("timestamp",), (EPOCH + timedelta(microseconds=value)).astimezone(zone))
        for made, value in wanted
    ]
    bounds, left = push(filters, Bounds(), has_losses=False)
    assert left == []
    for stamp in range(35):
        is_wanted = all(COMPARED[made](stamp, value) for made, value in wanted)
        assert (bounds.time_min <= stamp < bounds.time_max) == is_wanted


@pytest.mark.parametrize(
    "each",
    [
        EqualNullSafe(("offset",), 3),
        EqualTo(("payload",), b"x"),
        EqualTo(("who", "name"), "ada"),
        EqualTo(("topic",), "orders"),
        GreaterThan(("partition",), 3),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001 - what has no zone is none of ours
        In(("offset",), (1, 2)),
        IsNotNull(("payload",)),
        IsNull(("offset",)),
        Not(EqualTo(("offset",), 3)),
        StringContains(("topic",), "x"),
    ],
)
def test_what_is_not_ours_is_left_to_spark(each: Filter) -> None:
    bounds, left = push([each], Bounds(), has_losses=False)
    assert bounds == Bounds()
    assert left[0] is each


def test_partitions() -> None:
    filters: list[Filter] = [In(("partition",), (0, 2, 5)), EqualTo(("partition",), 2)]
    bounds, left = push(filters, Bounds(), has_losses=False)
    assert (bounds.partitions, left) == ((2,), [])


def test_columns_that_are_never_null_need_no_look() -> None:
    names = ("stream", "topic", "partition", "offset", "timestamp")
    filters: list[Filter] = [IsNotNull((name,)) for name in names]
    assert push(filters, Bounds(), has_losses=False) == (Bounds(), [])


def test_rows_that_report_a_loss_have_no_timestamp() -> None:
    """Spark must drop them itself where a timestamp is asked for."""
    later = GreaterThan(("timestamp",), EPOCH + timedelta(microseconds=5))
    there = IsNotNull(("timestamp",))
    bounds, left = push([later, there], Bounds(), has_losses=True)
    assert bounds.time_min == 6
    assert [id(each) for each in left] == [id(later), id(there)]


def test_bounds_of_the_options_stay() -> None:
    bounds, _ = push([GreaterThan(("offset",), 3)], Bounds(offset_min=9), has_losses=False)
    assert bounds.offset_min == 9
