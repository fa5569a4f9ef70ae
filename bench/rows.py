"""Rows of the table: what a case gave, and what was measured beside it in the same round."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from bench.frames import Shape
from bench.load import Lap

NAME_WIDTH = 42


@dataclass(frozen=True)
class Row:
    """One case: medians of its laps."""

    name: str
    shape: Shape
    rate: float  # requests per second
    p50_us: float
    p99_us: float
    cpu_us: float | None = None  # of the server for each request
    errors: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)  # limits of the same rounds, by name

    @property
    def megabytes(self) -> float:
        """MB/s of payload."""
        return self.rate * self.shape.bytes / 1e6

    @property
    def messages(self) -> float:
        """Messages per second."""
        return self.rate * self.shape.messages

    def as_json(self) -> dict[str, object]:
        """Give the row as JSON has it."""
        more = {"megabytes_per_second": self.megabytes, "messages_per_second": self.messages}
        return asdict(self) | {"shape": self.shape._asdict()} | more


def make_row(name: str, shape: Shape, laps: Sequence[Lap], cpu_seconds: float | None) -> Row:
    """Give the row of some laps; the server's processor time is that of all of them together."""
    requests = sum(lap.requests for lap in laps)
    statuses: dict[str, int] = {}
    for lap in laps:
        for status, count in lap.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return Row(
        name=name,
        shape=shape,
        rate=median(laps, lambda lap: lap.rate),
        p50_us=median(laps, lambda lap: lap.p50_us),
        p99_us=median(laps, lambda lap: lap.p99_us),
        cpu_us=None if cpu_seconds is None or not requests else cpu_seconds / requests * 1e6,
        errors=sum(lap.errors for lap in laps),
        statuses=statuses,
    )


def median(laps: Sequence[Lap], value: Callable[[Lap], float]) -> float:
    """Give the median of one value of laps."""
    return statistics.median(value(lap) for lap in laps)


# How what was measured beside a case is shown: its name, and the case's own value to divide by it.
RATIOS: dict[str, Callable[[Row], float]] = {
    "files MB/s": lambda row: row.megabytes,
    "bare MB/s": lambda row: row.megabytes,
    "copy MB/s": lambda row: row.megabytes,
    "nats MB/s": lambda row: row.megabytes,
    "bare p50": lambda row: row.p50_us,
    "sync p50": lambda row: row.p50_us,
    "cached p50": lambda row: row.p50_us,
    "cached req/s": lambda row: row.rate,
    "one p50": lambda row: row.p50_us,
    "one req/s": lambda row: row.rate,
}

# Those that all rows of a table have, and so need no name in the row.
COLUMNS = ("files MB/s", "bare MB/s", "bare p50", "copy MB/s")


def head(beside: Sequence[str]) -> str:
    """Give the line above a table."""
    columns = [f"{'':{NAME_WIDTH}}", f"{'msg/s':>12}", f"{'MB/s':>8}", f"{'p50 us':>9}"]
    columns += [f"{'p99 us':>9}", f"{'cpu us':>8}"]
    return "".join([*columns, *(f"{name:>12}{'ratio':>7}" for name in beside)])


def line(row: Row) -> str:
    """Give the line of a row."""
    cpu = "" if row.cpu_us is None else f"{row.cpu_us:.1f}"
    text = (
        f"{row.name:{NAME_WIDTH}}{row.messages:12,.0f}{row.megabytes:8,.1f}"
        f"{row.p50_us:9,.0f}{row.p99_us:9,.0f}{cpu:>8}"
    )
    for name, value in row.beside.items():
        ratio = RATIOS[name](row) / value if value else 0.0
        label = "" if name in COLUMNS else f"  {name}"
        text += f"{label}{value:12,.1f}{ratio:7.2f}"
    if row.errors:
        text += f"  {row.errors} ERRORS {row.statuses or 'wrong replies'}"
    return text
