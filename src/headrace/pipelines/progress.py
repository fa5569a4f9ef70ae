"""The result of a batch, from the progress that Spark reports. Pure.

The names are those of Spark's `StreamingQueryProgress`, read as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.spark.offsets import Key, Position, decode_offsets

REJECTED = "headrace_rejected"  # the observation that counts dead letters


@dataclass(frozen=True)
class BatchProgress:
    """One batch of one query.

    Attributes:
        lag: Messages after this batch that had arrived when it was planned. None if Spark does not
            know: the first batch after a restart was planned by the run before.
        late: Rows that came after their window was closed; they are in no result.
        is_idle: Whether no batch was run, because there was nothing to do.
    """

    batch: int
    at: str
    rows: int
    rows_per_second: float
    seconds: float
    lag: int | None
    dead_letters: int
    late: int
    watermark: str
    is_idle: bool

    def describe(self) -> str:
        """Return it as a line for people."""
        words = [
            f"batch {self.batch}: {self.rows:,} rows in {self.seconds:.2f} s",
            f"{self.rows_per_second:,.0f} rows/s",
        ]
        words += [] if self.lag is None else [f"lag {self.lag:,}"]
        words += [f"{self.dead_letters:,} dead letters"] if self.dead_letters else []
        words += [f"{self.late:,} late rows dropped"] if self.late else []
        return ", ".join(words)

    def as_table(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass
class Totals:
    """The totals of a query in this run."""

    batches: int = 0
    rows: int = 0
    dead_letters: int = 0
    late: int = 0

    def add(self, batch: BatchProgress) -> None:
        """Add one batch."""
        self.batches += 1
        self.rows += batch.rows
        self.dead_letters += batch.dead_letters
        self.late += batch.late


def read_batch(reported: Mapping[str, Any]) -> BatchProgress:
    """Return the result in one progress report."""
    durations = reported.get("durationMs", {})
    seconds = _number(durations.get("triggerExecution")) / 1000
    rows = _whole(reported.get("numInputRows"))
    observed = reported.get("observedMetrics", {}).get(REJECTED, {})
    return BatchProgress(
        batch=_whole(reported.get("batchId")),
        at=str(reported.get("timestamp", "")),
        rows=rows,
        rows_per_second=rows / seconds if seconds else 0.0,
        seconds=seconds,
        lag=_lag(reported.get("sources", [])),
        dead_letters=_whole(observed.get("rows")),
        late=sum(
            _whole(each.get("numRowsDroppedByWatermark"))
            for each in reported.get("stateOperators", [])
        ),
        watermark=str(reported.get("eventTime", {}).get("watermark", "")),
        is_idle="addBatch" not in durations,
    )


def _lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the lag of all sources; None if that of one source is unknown."""
    lags = [_lag_of(source) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known and len(known) == len(lags) else None


def _lag_of(source: Mapping[str, Any]) -> int | None:
    done, newest = (_offsets(source.get(key)) for key in ("endOffset", "latestOffset"))
    if not newest:
        return None
    return sum(
        max(0, place.next - (done[key].next if key in done and done[key].is_same_log(place) else 0))
        for key, place in newest.items()
    )


def _offsets(raw: object) -> dict[Key, Position]:
    text = json.loads(raw) if isinstance(raw, str) else raw
    return decode_offsets(text) if text else {}


def _whole(raw: object) -> int:
    return int(_number(raw))


def _number(raw: object) -> float:
    """Return a number of Spark, 0 where it has none: then it writes NaN, a text or nothing."""
    return float(raw) if isinstance(raw, int | float) and raw == raw else 0.0  # noqa: PLR0124 - NaN
