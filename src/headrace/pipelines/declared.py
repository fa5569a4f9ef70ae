"""A declared job as a valid value: its sources, its transformation and its sink.

`declarations` makes these values from a file; nothing here reads a file or depends on Spark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

MASTER_DEFAULT: Final = "local[*]"
INTERVAL_DEFAULT_MILLIS: Final = 1000
RESTARTS_DEFAULT: Final = 5

# From one DataFrame per source, in their order, to the DataFrame to write.
Transform: TypeAlias = Callable[..., Any]


class SinkKind(StrEnum):
    """The kinds of sinks."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"
    CONSOLE = "console"


class Mode(StrEnum):
    """What a batch passes to its sink: new rows, changed rows, or the whole result."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True)
class Watermark:
    """How late a row may come: its time column, and the allowed delay behind the newest."""

    column: str
    delay: str


@dataclass(frozen=True)
class Source:
    """Topics that form one table of the job, named `view` in its SQL.

    Attributes:
        schema: Columns of a JSON payload as DDL; without it the payload stays bytes.
        cast: Column to type: a value that cannot be cast makes its row a dead letter.
        require: Name to condition: a row that fails a condition is a dead letter.
        options: Further options of `format("headrace")`, passed unchanged.
    """

    view: str
    topics: tuple[str, ...]
    schema: str = ""
    cast: Mapping[str, str] = field(default_factory=dict)
    require: Mapping[str, str] = field(default_factory=dict)
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def can_reject(self) -> bool:
        """Whether a row of it can be a dead letter."""
        is_reporting_loss = any(
            name.lower() == "ondataloss" and value.lower() == "report"
            for name, value in self.options.items()
        )
        return bool(self.schema or self.cast or self.require) or is_reporting_loss


@dataclass(frozen=True)
class Sink:
    """The destination of a query's rows; `catalog` and `table` are for Iceberg."""

    kind: SinkKind
    path: Path | None = None
    mode: Mode = Mode.APPEND
    table: str = ""
    catalog: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """One declared job. It has SQL or a function, or neither: then rows are written unchanged.

    Attributes:
        interval_millis: Time between batches; None reads the existing messages, then ends.
        connection: `address`, `username`, `password` and `token` from the file; the rest is
            resolved as for every client.
        group: Consumer group of the broker that shows the progress of the job.
        restarts: How often in a row a failed query is restarted.
    """

    name: str
    sources: tuple[Source, ...]
    sink: Sink
    checkpoint: Path
    dead_letters: Sink | None
    sql: str = ""
    function: Transform | None = None
    function_name: str = ""
    interval_millis: int | None = INTERVAL_DEFAULT_MILLIS
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)
    group: str = ""
    restarts: int = RESTARTS_DEFAULT


@dataclass(frozen=True)
class JobFile:
    """The content of a job file: its jobs by name, and the node and the Spark that they share."""

    path: Path
    pipelines: Mapping[str, Pipeline]
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)
    master: str = MASTER_DEFAULT
    conf: Mapping[str, str] = field(default_factory=dict)
