"""Reads topics as a stream: how far each micro-batch goes, and its slices.

Spark creates one reader in a process beside the driver, which plans all batches, and another one
whose copies read in the tasks.

Flow:       plan, read, checkpoint.
Invariants: `partitions` depends only on the two offsets and the server's logs, so a batch that is
            repeated after a crash is the same batch.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.spark.admission import admit, clip
from headrace.spark.broker import find_logs, latest_of, resolve_edge, store_progress
from headrace.spark.connections import client_of
from headrace.spark.losses import Loss, meet
from headrace.spark.offsets import Key, Position, Positions, decode_offsets, encode_offsets
from headrace.spark.options import SourceOptions
from headrace.spark.plan import NO_PARTITION, complete, explain_other, plan
from headrace.spark.reading import Reading, read_slice
from headrace.spark.schema import Shape

if TYPE_CHECKING:
    from headrace.spark.slices import Slice


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch after batch."""

    def __init__(self, options: SourceOptions, shape: Shape) -> None:
        self._options = options
        self._reading = Reading(options.connection, shape, options.on_loss, options.read)
        self._target: dict[Key, Position] | None = None
        self._latest: dict[Key, Position] = {}
        self._stored: dict[Key, Position] = {}

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        client = client_of(self._options.connection)
        logs = find_logs(client, self._options.topics)
        return self._encode(resolve_edge(client, self._options.starting, logs, "startingOffsets"))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the current end of the topics as the end of the run."""
        client = client_of(self._options.connection)
        self._target = latest_of(find_logs(client, self._options.topics))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set."""
        rows_max = self._options.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Return how far the next batch goes; store `start` as processed.

        Returns `start` itself when there is nothing new: Spark compares the text.
        """
        begun = self._own(decode_offsets(start))
        logs = find_logs(client_of(self._options.connection), self._options.topics)
        self._latest = latest_of(logs)
        if self._options.on_loss == "fail":
            meet(_find_other_logs(begun, self._latest), "fail")
        self._store(begun)
        reachable = self._latest if self._target is None else clip(self._latest, self._target)
        places = complete(begun, {key: logs[key] for key in reachable})
        admitted = admit(begun, places, reachable, rows_max=_rows_max(limit))
        if admitted == begun or not _is_enough(admit(begun, places, reachable), begun, limit):
            return start
        return self._encode(admitted)

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Return the end of all partitions, from which Spark computes the lag."""
        return self._encode(self._latest)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the slices of one batch."""
        begun, ended = self._own(decode_offsets(start)), self._own(decode_offsets(end))
        logs = find_logs(client_of(self._options.connection), self._options.topics, begun)
        made = plan(begun, ended, logs, self._options.bounds, self._options.split)
        meet(made.losses, self._options.on_loss)
        return [InputPartition(each) for each in made.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice."""
        wanted: Slice | None = partition.value
        return iter(()) if wanted is None else read_slice(self._reading, wanted)

    def commit(self, end: dict[str, object]) -> None:
        """Do nothing: Spark calls it one batch late, and never for the last one."""

    def _encode(self, positions: Positions) -> dict[str, object]:
        return encode_offsets(positions, self._options.group)

    def _own(self, positions: Positions) -> dict[Key, Position]:
        """Remove topics that the query no longer reads."""
        return {key: place for key, place in positions.items() if key.topic in self._options.topics}

    def _store(self, done: Positions) -> None:
        """Store the processed offsets in the group, if there is one and they are higher."""
        if self._options.group is None:
            return
        new = {
            key: place
            for key, place in done.items()
            if self._stored.get(key) != place
            and key in self._latest
            and place.is_same_log(self._latest[key])
        }
        store_progress(client_of(self._options.connection), self._options.group, new)
        self._stored |= new


def _find_other_logs(begun: Positions, latest: Positions) -> list[Loss]:
    """Return a loss for each partition that is missing or whose log has changed."""
    losses = []
    for key, place in sorted(begun.items()):
        now = latest.get(key)
        if now is None:
            losses.append(Loss(key, place.next, None, NO_PARTITION))
        elif not place.is_same_log(now):
            losses.append(Loss(key, place.next, None, explain_other(place, now)))
    return losses


def _rows_max(limit: ReadLimit) -> int | None:
    """Return the maximum number of rows that a limit allows.

    Raises:
        ValueError: It is a limit that this source does not use.
    """
    if isinstance(limit, ReadMaxRows):
        return int(limit.max_rows)
    if isinstance(limit, ReadAllAvailable | ReadMinRows):
        return None
    raise ValueError(f"{limit} is no limit of this source: it counts rows")


def _is_enough(all_new: Mapping[Key, Position], begun: Positions, limit: ReadLimit) -> bool:
    """Whether there are as many rows as the minimum of a batch."""
    if not isinstance(limit, ReadMinRows):
        return True
    return _count(all_new) - _count(begun) >= int(limit.min_rows)


def _count(positions: Positions) -> int:
    return sum(place.next for place in positions.values())
