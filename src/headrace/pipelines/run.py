"""Runs declared jobs until they end, fail, or are asked to stop.

All jobs of a run share one Spark session. A failed query is restarted from its checkpoint. If it
fails too often in a row, the others stop too and the run fails: a supervisor can start it again
later.
"""

import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.pipelines.checkpoint import Lock, hold, write_progress
from headrace.pipelines.declared import JobFile, Pipeline
from headrace.pipelines.progress import BatchProgress, Totals, read_batch
from headrace.pipelines.queries import Planned, plan_queries
from headrace.pipelines.screen import Screen
from headrace.pipelines.table_sink import TableSink
from headrace.pipelines.transform import NoRowsError
from headrace.spark.java import NoJavaError
from headrace.spark.listener import ProgressListener, report_progress
from headrace.spark.session import prepare_streams, session

if TYPE_CHECKING:
    from headrace.client.session.settings import ConnectOptions

APP = "headrace pipeline"
# Spark's other log output would break the live table.
QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
PAUSE_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.25


class RunError(Exception):
    """A job could not be started, or its query failed; the message says which and why."""


class Followed:
    """A running query, its results so far, and which of its reports were read."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.query = planned.start()
        self.totals = Totals()
        self.last: BatchProgress | None = None
        self._seen = (-1, "")
        self._failures = 0

    @property
    def name(self) -> str:
        """The name shown to people."""
        return self.planned.name

    @property
    def has_ended(self) -> bool:
        """Whether it has ended without a failure."""
        return not self.query.isActive and self.query.exception() is None

    def news(self) -> list[BatchProgress]:
        """Return the batches that ended since the last call."""
        fresh = []
        for report in self.query.recentProgress:
            batch = read_batch(json.loads(report.json))
            if (batch.batch, batch.at) > self._seen:
                self._seen = (batch.batch, batch.at)
                self._failures = self._failures if batch.is_idle else 0
                fresh.append(batch)
        return fresh

    def start_again(self, screen: Screen, stopping: threading.Event) -> None:
        """Restart it if it failed, after a growing delay; committed batches are kept.

        Raises:
            RunError: It has failed too often in a row.
        """
        error = self.query.exception()
        if error is None:
            return
        reason, most = f"{self.name}: {first_lines(error)}", self.planned.pipeline.restarts
        if self._failures >= most:
            raise RunError(reason) from error
        self._failures += 1
        screen.say(f"{reason}; starts again, {self._failures} of {most}")
        if not stopping.wait(min(2.0 ** (self._failures - 1), PAUSE_SECONDS_MAX)):
            self.query = self.planned.start()


def run_jobs(
    jobs: JobFile, pipelines: Sequence[Pipeline], screen: Screen, *, master: str | None = None
) -> list[Followed]:
    """Run jobs concurrently; return the totals of each query.

    Raises:
        RunError: A job could not start, or failed too often.
        RunningError: Another process runs one of them.
        TableError: The rows of a job do not fit its table.
    """
    # Spark warns about every pandas from 3.0 on; nothing here uses pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    with ExitStack() as stack:
        locks = [stack.enter_context(hold(each.checkpoint)) for each in pipelines]
        stopping = stack.enter_context(_stop_on_signals())
        spark = open_session(jobs, master or jobs.master)
        stack.callback(spark.stop)
        _name_processes(spark, locks)
        prepare_streams(spark)
        spark.dataSource.register(TableSink)
        listener = _report(spark, jobs)
        followed: list[Followed] = []
        stack.callback(_stop_all, followed)
        for pipeline in pipelines:
            try:
                followed.extend(map(Followed, plan_queries(spark, pipeline)))
            except (PySparkException, Py4JError, NoRowsError) as error:
                raise RunError(f"{pipeline.name}: {first_lines(error)}") from error
        follow(followed, screen, stopping)
        if not all(listener.wait_ended(str(each.query.runId)) for each in followed):
            screen.say("the consumer group may not show the last batch yet: Spark is slow to tell")
        return followed


def open_session(jobs: JobFile, master: str) -> SparkSession:
    """Return the Spark session of a job file.

    Raises:
        RunError: There is no suitable Java.
    """
    try:
        return session(APP, master=master, conf=QUIET | dict(jobs.conf)).getOrCreate()
    except NoJavaError as error:
        raise RunError(str(error)) from None


def first_lines(error: BaseException) -> str:
    """Return the message of a Spark error, without the plan and the JVM's stack trace."""
    text = str(error).split("\n\nJVM stacktrace:")[0].split("\n=== ")[0]
    return text.split("\n\tat ")[0].split(";\n")[0].strip()


def _name_processes(spark: SparkSession, locks: list[Lock]) -> None:
    # The JVM is a child process that outlives a killed driver by a moment.
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark gives no other way to its process
    for lock in locks:
        lock.name_processes(os.getpid(), int(jvm.java.lang.ProcessHandle.current().pid()))


def _report(spark: SparkSession, jobs: JobFile) -> ProgressListener:
    """Store the last batch of each query in the broker's group, too."""
    login = dict(jobs.connection)
    address = login.pop("address", None)
    return report_progress(spark, address, **cast("ConnectOptions", login))


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Return an event that SIGINT and SIGTERM set; an interrupted batch is repeated later."""
    stopping = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield stopping
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def follow(followed: list[Followed], screen: Screen, stopping: threading.Event) -> None:
    """Show the progress of queries until all have ended or must stop.

    Raises:
        RunError: A query failed too often.
    """
    while not stopping.is_set():
        have_ended = all(each.has_ended for each in followed)  # read before the last reports
        _show_news(followed, screen)
        if have_ended:
            break
        for each in followed:
            each.start_again(screen, stopping)
        stopping.wait(_LOOK_SECONDS)
    _stop_all(followed)
    _show_news(followed, screen)


def _show_news(followed: list[Followed], screen: Screen) -> None:
    for each in followed:
        for batch in each.news():
            if batch.is_idle:
                continue
            each.last = batch
            each.totals.add(batch)
            screen.show(each.name, batch, each.totals)
            _keep(followed, each.planned.pipeline)


def _keep(followed: list[Followed], pipeline: Pipeline) -> None:
    mine = [each for each in followed if each.planned.pipeline is pipeline]
    kept = {each.planned.part: each.last.as_table() for each in mine if each.last is not None}
    write_progress(pipeline.checkpoint, kept)


def _stop_all(followed: list[Followed]) -> None:
    for each in followed:
        each.query.stop()
