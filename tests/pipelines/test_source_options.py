"""The options that a declared source amounts to."""

from pathlib import Path

import pytest

from headrace.pipelines.declared import Pipeline, Sink, SinkKind, Source
from headrace.pipelines.source_options import field_names, hide_secrets, source_options


def job(source: Source, **connection: str) -> Pipeline:
    sink = Sink(SinkKind.CONSOLE)
    return Pipeline("job", (source,), sink, Path("state"), None, connection=connection, group="g")


def test_a_job_begins_with_the_oldest_message_and_reports_to_its_group() -> None:
    source = Source("orders", ("shop/orders", "shop/returns"))
    assert source_options(job(source), source) == {
        "subscribe": "shop/orders,shop/returns",
        "wait": "30 s",
        "startingOffsets": "earliest",
        "groupId": "g",
    }


def test_what_the_file_says_is_passed_on() -> None:
    source = Source("orders", ("shop/orders",), options={"startingTimestamp": "1", "wait": "1 s"})
    given = source_options(job(source, address="h:1", token="t"), source, is_reporting=False)
    assert given == {
        "subscribe": "shop/orders",
        "startingTimestamp": "1",
        "wait": "1 s",
        "address": "h:1",
        "token": "t",
    }


def test_a_field_of_the_value_takes_the_name_of_a_message_column() -> None:
    source = Source("orders", ("shop/orders",), schema="id BIGINT, timestamp TIMESTAMP")
    columns = source_options(job(source), source)["columns"]
    assert columns == "stream,topic,partition,offset,origin_timestamp,payload,headers"


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("", []),
        ("a INT", ["a"]),
        ("a: INT, b STRING NOT NULL", ["a", "b"]),
        ("`a b` INT, c STRUCT<d: INT, e: MAP<STRING, INT>>, f DECIMAL(10, 2)", ["a b", "c", "f"]),
    ],
)
def test_names_of_the_outermost_fields(schema: str, names: list[str]) -> None:
    assert field_names(schema) == names


def test_secrets_are_not_shown() -> None:
    shown = hide_secrets({"Password": "x", "token": "y", "address": "h:1"})
    assert shown == {"Password": "...", "token": "...", "address": "h:1"}
