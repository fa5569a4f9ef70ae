"""Stores the progress of a query in the broker's consumer group, including the last batch.

The source itself stores where each batch starts, so a running query shows its lag without this.
Only a listener knows that the last batch of a finite run was processed.

```python
report_progress(spark)   # once per session; covers all queries with the option groupId
```
"""

import json
import logging
import os
import threading
from typing import Unpack

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headrace.client import HeadraceError
from headrace.client.session.settings import ConnectOptions, Settings, resolve
from headrace.spark.broker import store_progress
from headrace.spark.connections import client_of
from headrace.spark.offsets import OffsetsError, decode_group, decode_offsets

_log = logging.getLogger("headrace.spark")


class ProgressListener(StreamingQueryListener):
    """Stores the end of every batch for the group of its source."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen = threading.Condition()
        self._ended: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no batch is processed yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Store the end of the processed batch."""
        for source in event.progress.sources:
            self.store(source.endOffset)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no batch was processed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Wake the callers that wait for the end of this run."""
        with self._seen:
            self._ended.add(str(event.runId))
            self._seen.notify_all()

    def store(self, text: str | None) -> None:
        """Store the offsets of one source, if they are ours and have a group.

        A failure is logged: a listener must not stop a query.
        """
        try:
            offsets = json.loads(text or "null")
            group = decode_group(offsets)
            if group is not None:
                client = client_of(self._settings, is_later=True)
                store_progress(client, group, decode_offsets(offsets))
        except OffsetsError:
            return  # Another source that also has groups.
        except (HeadraceError, OSError, ValueError) as error:
            _log.warning("the progress of a query could not be stored: %s", error)

    def wait_ended(self, run_id: str, timeout_seconds: float = 30.0) -> bool:
        """Wait for all events of a run that has ended: they arrive a little later.

        Returns whether they came in time.
        """
        with self._seen:
            return self._seen.wait_for(lambda: run_id in self._ended, timeout_seconds)


def report_progress(
    spark: SparkSession, address: str | None = None, **options: Unpack[ConnectOptions]
) -> ProgressListener:
    """Make the queries of a session store their progress; return the listener.

    Address and credentials are the same as for `headrace.connect`.

    Raises:
        ValueError: An argument is wrong, or credentials are missing.
    """
    listener = ProgressListener(resolve(address, options, os.environ))
    spark.streams.addListener(listener)
    return listener
