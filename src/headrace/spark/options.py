"""What a user writes behind `format("headrace")`, checked as a whole.

Names are Kafka's where the meaning is Kafka's. All that is wrong is said in one message, each
problem with its option and the way out.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypeVar

from headrace.base.nearest import hint_nearest
from headrace.client.calls.names import split_topic
from headrace.client.connecting import ConnectOptions, Settings, resolve
from headrace.spark.edges import Edge, Word, parse_offsets, parse_time, parse_times
from headrace.spark.losses import OnLoss
from headrace.spark.plan import UNBOUNDED, Bounds, Split
from headrace.spark.schema import MESSAGE_COLUMNS

ReadFrom: TypeAlias = Literal["auto", "direct", "broker"]
T = TypeVar("T")

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
)
_ON_LOSS: dict[str, OnLoss] = {"fail": "fail", "skip": "skip", "report": "report"}
_READ: dict[str, ReadFrom] = {"auto": "auto", "direct": "direct", "broker": "broker"}
_FLAGS = {"true": True, "false": False}
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND = timedelta(microseconds=1)


class OptionsError(ValueError):
    """Options are wrong; the message names every problem."""


@dataclass(frozen=True)
class SourceOptions:
    """The options, made whole. Secrets are in `connection`, which is not shown."""

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
        """Whether rows can say what is wrong with them."""
        return self.is_typed or self.on_loss == "report"


def read_options(
    given: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    *,
    streaming: bool | None = None,
) -> SourceOptions:
    """Make options whole; names are taken in any case.

    Without `streaming` it is not known yet whether they are a stream's, and both are right.

    Raises:
        OptionsError: One is wrong or unknown, or two contradict each other.
    """
    reader = _Reader(given)
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
        read=reader.take("read", _choose(_READ), "auto"),
        group=reader.take("groupId", _read_group, None),
        columns=reader.take("columns", _read_columns, tuple(MESSAGE_COLUMNS)),
        is_typed=reader.take("valueFormat", _choose({"json": True}), False),  # noqa: FBT003 - the default
        value_schema=reader.take("valueSchema", _read_text, ""),
        is_pushing=reader.take("pushdown", _choose(_FLAGS), False),  # noqa: FBT003 - the default
    )
    _relate(reader, options, streaming=streaming)
    reader.raise_problems()
    return options


class _Reader:
    """Takes options one by one and gathers what is wrong with them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(text) for name, text in given.items()}
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def refuse_unknown(self) -> None:
        known = [name.lower() for name in OPTIONS]
        for name in sorted(self._given):
            if name not in known:
                self.problems.append(f"{name}: no such option{hint_nearest(name, OPTIONS)}")

    def take(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Give an option's value, or the default if it is missing or wrong."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            return default

    def take_count(self, name: str) -> int | None:
        return self.take(name, _read_count, None)

    def raise_problems(self) -> None:
        if not self.problems:
            return
        count = len(self.problems)
        words = "an option of this source is" if count == 1 else f"{count} options are"
        raise OptionsError("\n".join([f"{words} wrong:", *(f"  {each}" for each in self.problems)]))


def _read_topics(reader: _Reader) -> tuple[str, ...]:
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


def _read_connection(reader: _Reader, environment: Mapping[str, str]) -> Settings:
    """Resolve where and as whom here, on the driver: a task's environment is another one."""
    credentials: ConnectOptions = {}
    for name in ("username", "password", "token"):
        if reader.has(name):
            credentials[name] = reader.take(name, str, "")
    try:
        return resolve(reader.take("address", _read_text, None), credentials, environment)
    except ValueError as error:
        reader.problems.append(str(error))
        return resolve("127.0.0.1:1", {"token": "unused"}, {})


def _read_edge(reader: _Reader, side: str, default: Word, topics: tuple[str, ...]) -> Edge:
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


def _read_bounds(reader: _Reader) -> Bounds:
    bounds = Bounds(
        offset_min=reader.take("fromOffset", _read_offset, 0),
        offset_max=reader.take("toOffset", _read_offset, UNBOUNDED),
        time_min=reader.take("fromTimestamp", _read_time, 0),
        time_max=reader.take("toTimestamp", _read_time, UNBOUNDED),
    )
    if bounds.offset_min > bounds.offset_max:
        reader.problems.append("toOffset: lies before fromOffset")
    if bounds.time_min > bounds.time_max:
        reader.problems.append("toTimestamp: lies before fromTimestamp")
    return bounds


def _read_on_loss(reader: _Reader) -> OnLoss:
    is_failing = reader.take("failOnDataLoss", _choose(_FLAGS), None)
    default: OnLoss = "skip" if is_failing is False else "fail"
    on_loss = reader.take("onDataLoss", _choose(_ON_LOSS), default)
    if is_failing is not None and is_failing != (on_loss == "fail"):
        reader.problems.append(
            f"failOnDataLoss: {str(is_failing).lower()} contradicts onDataLoss {on_loss};"
            " give one of the two"
        )
    return on_loss


def _relate(reader: _Reader, options: SourceOptions, *, streaming: bool | None) -> None:
    """Notice what is wrong only together."""
    if options.value_schema and not options.is_typed:
        reader.problems.append("valueSchema: goes with valueFormat json, which is not set")
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if streaming and reader.has(name):
            reader.problems.append(f"{name}: a stream has no end; use it with spark.read")
    for name in ("maxOffsetsPerTrigger", "groupId"):
        if streaming is False and reader.has(name):
            reader.problems.append(f"{name}: only a stream has it; use it with spark.readStream")


def _choose(choices: Mapping[str, T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        chosen = choices.get(text.strip().lower())
        if chosen is None:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return chosen

    return parse


def _read_text(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def _read_group(text: str) -> str:
    group = _read_text(text)
    if len(group.encode()) > 255:
        raise ValueError(f"{text[:40]!r}... has more than 255 bytes")
    return group


def _read_count(text: str) -> int:
    number = _read_offset(text)
    if number == 0:
        raise ValueError("0 is too small: write a number of 1 or more")
    return number


def _read_offset(text: str) -> int:
    stripped = text.strip()
    is_number = stripped.isascii() and stripped.isdecimal() and len(stripped) <= 19
    if not is_number or int(stripped) >= UNBOUNDED:
        raise ValueError(f"{text!r} is no number from 0 to {UNBOUNDED - 1}")
    return int(stripped)


def _read_time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} needs its time zone, such as {text.strip()}Z")
    return max((time - _EPOCH) // _MICROSECOND, 0)


def _read_columns(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MESSAGE_COLUMNS:
            hint = hint_nearest(name, MESSAGE_COLUMNS)
            raise ValueError(f"{name!r} is none of {', '.join(MESSAGE_COLUMNS)}{hint}")
    if len(dict.fromkeys(names)) < len(names):
        raise ValueError(f"{text!r} names a column twice")
    return tuple(names)
