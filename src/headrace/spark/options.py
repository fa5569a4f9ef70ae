"""The options of `format("headrace")`, checked as a whole.

Names are Kafka's where the meaning is Kafka's. All problems are reported in one message, each with
its option and what to do.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headrace.client.calls.names import split_topic
from headrace.client.session.settings import ConnectOptions, Settings, resolve
from headrace.spark.edges import Edge, Word, parse_offsets, parse_time, parse_times
from headrace.spark.losses import OnLoss
from headrace.spark.option_reader import OptionReader
from headrace.spark.option_values import (
    choose,
    read_columns,
    read_group,
    read_offset,
    read_text,
    read_time,
)
from headrace.spark.schema import MESSAGE_COLUMNS
from headrace.spark.slices import UNBOUNDED, Bounds, Split

ReadFrom: TypeAlias = Literal["auto", "direct", "broker"]

OPTIONS = (
    "address",
    "columns",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fromOffset",
    "fromTimestamp",
    "groupId",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "minPartitions",
    "onDataLoss",
    "password",
    "pushdown",
    "read",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "subscribe",
    "toOffset",
    "toTimestamp",
    "token",
    "topic",
    "username",
    "valueFormat",
    "valueSchema",
    "wait",
)
_ON_LOSS: dict[str, OnLoss] = {"fail": "fail", "skip": "skip", "report": "report"}
_READ: dict[str, ReadFrom] = {"auto": "auto", "direct": "direct", "broker": "broker"}
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class SourceOptions:
    """The options, with defaults filled in. Secrets are in `connection`, which is not shown."""

    topics: tuple[str, ...]
    connection: Settings = field(repr=False)
    starting: Edge
    ending: Edge
    bounds: Bounds
    split: Split
    rows_per_trigger_max: int | None
    on_loss: OnLoss
    read: ReadFrom
    group: str | None
    columns: tuple[str, ...]
    is_typed: bool
    value_schema: str
    is_pushing: bool

    @property
    def has_errors(self) -> bool:
        """Whether rows can report what is wrong with them."""
        return self.is_typed or self.on_loss == "report"


def read_options(
    given: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    *,
    streaming: bool | None = None,
) -> SourceOptions:
    """Return the options, with defaults filled in; names are case-insensitive.

    Without `streaming` it is not known yet whether they are for a stream, and both are allowed.

    Raises:
        OptionsError: An option is wrong or unknown, or two contradict each other.
    """
    reader = OptionReader(given, OPTIONS)
    reader.refuse_unknown()
    topics = _read_topics(reader)
    connection = _read_connection(reader, os.environ if environment is None else environment)
    options = SourceOptions(
        topics=topics,
        connection=connection,
        starting=_read_edge(reader, "starting", "latest" if streaming else "earliest", topics),
        ending=_read_edge(reader, "ending", "latest", topics),
        bounds=_read_bounds(reader),
        split=Split(
            partitions_min=reader.take_count("minPartitions"),
            records_max=reader.take_count("maxRecordsPerPartition"),
        ),
        rows_per_trigger_max=reader.take_count("maxOffsetsPerTrigger"),
        on_loss=_read_on_loss(reader),
        read=reader.take("read", choose(_READ), "auto"),
        group=reader.take("groupId", read_group, None),
        columns=reader.take("columns", read_columns, tuple(MESSAGE_COLUMNS)),
        is_typed=reader.take("valueFormat", choose({"json": True}), False),  # noqa: FBT003 - the default
        value_schema=reader.take("valueSchema", read_text, ""),
        is_pushing=reader.take("pushdown", choose(_FLAGS), False),  # noqa: FBT003 - the default
    )
    _relate(reader, options, streaming=streaming)
    reader.raise_problems()
    return options


def _read_topics(reader: OptionReader) -> tuple[str, ...]:
    if reader.has("topic") == reader.has("subscribe"):
        reader.problems.append(
            "topic: name one topic by `topic` as stream/topic, or several by `subscribe` as"
            " stream/topic,stream/topic; one of the two options"
        )
        return ()
    if reader.has("topic"):
        return reader.take("topic", _read_topic, ())
    return reader.take("subscribe", _read_subscription, ())


def _read_topic(text: str) -> tuple[str, ...]:
    split_topic(text.strip())
    return (text.strip(),)


def _read_subscription(text: str) -> tuple[str, ...]:
    topics = [name.strip() for name in text.split(",")]
    for name in topics:
        split_topic(name)
    twice = sorted({name for name in topics if topics.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is named twice")
    return tuple(topics)


def _read_connection(reader: OptionReader, environment: Mapping[str, str]) -> Settings:
    """Resolve address and credentials on the driver: a task's environment differs."""
    given: ConnectOptions = {}
    for name in ("username", "password", "token"):
        if reader.has(name):
            given[name] = reader.take(name, str, "")
    if reader.has("wait"):
        given["wait"] = reader.take("wait", str, "")
    try:
        return resolve(reader.take("address", read_text, None), given, environment)
    except ValueError as error:
        reader.problems.append(str(error))
        return resolve("127.0.0.1:1", {"token": "unused"}, {})


def _read_edge(reader: OptionReader, side: str, default: Word, topics: tuple[str, ...]) -> Edge:
    parsers: dict[str, Callable[[str], Edge]] = {
        f"{side}Offsets": lambda text: parse_offsets(text, default, topics),
        f"{side}Timestamp": lambda text: parse_time(text, default),
        f"{side}OffsetsByTimestamp": lambda text: parse_times(text, default, topics),
    }
    named = [name for name in parsers if reader.has(name)]
    if len(named) > 1:
        reader.problems.append(f"{named[0]}: give only one of {', '.join(named)}")
    edge = Edge(default)
    for name in named:
        edge = reader.take(name, parsers[name], edge)
    return edge


def _read_bounds(reader: OptionReader) -> Bounds:
    bounds = Bounds(
        offset_min=reader.take("fromOffset", read_offset, 0),
        offset_max=reader.take("toOffset", read_offset, UNBOUNDED),
        time_min=reader.take("fromTimestamp", read_time, 0),
        time_max=reader.take("toTimestamp", read_time, UNBOUNDED),
    )
    if bounds.offset_min > bounds.offset_max:
        reader.problems.append("toOffset: lies before fromOffset")
    if bounds.time_min > bounds.time_max:
        reader.problems.append("toTimestamp: lies before fromTimestamp")
    return bounds


def _read_on_loss(reader: OptionReader) -> OnLoss:
    is_failing = reader.take("failOnDataLoss", choose(_FLAGS), None)
    default: OnLoss = "skip" if is_failing is False else "fail"
    on_loss = reader.take("onDataLoss", choose(_ON_LOSS), default)
    if is_failing is not None and is_failing != (on_loss == "fail"):
        reader.problems.append(
            f"failOnDataLoss: {str(is_failing).lower()} contradicts onDataLoss {on_loss};"
            " give one of the two"
        )
    return on_loss


def _relate(reader: OptionReader, options: SourceOptions, *, streaming: bool | None) -> None:
    """Record problems of options in combination."""
    if options.value_schema and not options.is_typed:
        reader.problems.append("valueSchema: goes with valueFormat json, which is not set")
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if streaming and reader.has(name):
            reader.problems.append(f"{name}: a stream has no end; use it with spark.read")
    for name in ("maxOffsetsPerTrigger", "groupId"):
        if streaming is False and reader.has(name):
            reader.problems.append(f"{name}: only a stream has it; use it with spark.readStream")
