"""Following queries: what is shown, what is kept, and how often a failed one is started again."""

import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from headrace.pipelines import run
from headrace.pipelines.checkpoint import read_progress
from headrace.pipelines.declared import Pipeline, Sink, SinkKind
from headrace.pipelines.progress import BatchProgress, Totals
from headrace.pipelines.run import Followed, RunError, first_lines, follow

if TYPE_CHECKING:
    from headrace.pipelines.queries import Planned


class Report:
    """A progress report as Spark hands it out."""

    def __init__(self, batch: int, rows: int, at: str) -> None:
        durations = {"triggerExecution": 2} | ({"addBatch": 1} if rows else {})
        said = {"batchId": batch, "numInputRows": rows, "timestamp": at, "durationMs": durations}
        self.json = json.dumps(said)


class Query:
    """A query that has done some batches, and then ended or failed."""

    def __init__(self, reports: Sequence[Report], failure: Exception | None = None) -> None:
        self.recentProgress = reports
        self.isActive = False
        self._failure = failure

    def exception(self) -> Exception | None:
        return self._failure

    def stop(self) -> None:
        self.isActive = False


class Plan:
    """A planned query whose lives are written down."""

    part = "query"
    name = "job"

    def __init__(self, folder: Path, *lives: Query, restarts: int = 2) -> None:
        sink = Sink(SinkKind.CONSOLE)
        self.pipeline = Pipeline("job", (), sink, folder, None, restarts=restarts)
        self._lives = list(lives)

    def start(self) -> Query:
        return self._lives.pop(0)


class Screen:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.sentences: list[str] = []

    def show(self, name: str, batch: BatchProgress, totals: Totals) -> None:
        assert name == "job"
        self.batches.append((batch.batch, totals.rows))

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


class Impatient(threading.Event):
    """An event that nobody sets and nobody waits for."""

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        return self.is_set()


def begin(plan: Plan) -> Followed:
    return Followed(cast("Planned", plan))  # all that is asked of one


FAILURE = RuntimeError("the broker is away")


def test_each_batch_is_shown_once_and_the_last_is_kept(tmp_path: Path) -> None:
    reports = [Report(0, 10, "a"), Report(1, 5, "b"), Report(2, 0, "c"), Report(2, 1, "d")]
    followed, screen = begin(Plan(tmp_path, Query(reports))), Screen()
    follow([followed], screen, Impatient())
    assert screen.batches == [(0, 10), (1, 15), (2, 16)]  # the idle report is none
    assert read_progress(tmp_path)["query"]["batch"] == 2
    assert followed.totals == Totals(batches=3, rows=16)


def test_a_failed_query_goes_on_where_it_was(tmp_path: Path) -> None:
    lives = [
        Query([Report(0, 10, "a")], FAILURE),
        Query([], FAILURE),
        Query([Report(1, 10, "b")], FAILURE),  # a batch was done: it counts from the start again
        Query([], FAILURE),
        Query([Report(2, 10, "c")]),
    ]
    followed, screen = begin(Plan(tmp_path, *lives)), Screen()
    follow([followed], screen, Impatient())
    assert screen.batches == [(0, 10), (1, 20), (2, 30)]
    assert screen.sentences == [
        f"job: the broker is away; starts again, {number} of 2" for number in (1, 2, 1, 2)
    ]


def test_a_query_that_fails_too_often_ends_the_run(tmp_path: Path) -> None:
    plan = Plan(tmp_path, *[Query([], FAILURE)] * 3)
    with pytest.raises(RunError, match="job: the broker is away"):
        follow([begin(plan)], Screen(), Impatient())


def test_no_restart_is_one_failure(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        follow([begin(Plan(tmp_path, Query([], FAILURE), restarts=0))], Screen(), Impatient())


def test_whoever_is_to_stop_starts_nothing_again(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    followed = begin(Plan(tmp_path, Query([Report(0, 1, "a")], FAILURE)))
    screen = Screen()
    follow([followed], screen, stopping)
    assert screen.batches == [(0, 1)]
    assert screen.sentences == []


def test_signals_ask_to_stop() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with run._stop_on_signals() as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(10)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("[A] plain", "[A] plain"),
        ("[A] words\n=== Streaming Query ===\nIdentifier", "[A] words"),
        ("[A] words; line 1 pos 7;\n'Project\n", "[A] words; line 1 pos 7"),
        ("[A] words\n\nJVM stacktrace:\norg.apache", "[A] words"),
        ("boom\n\tat java.lang", "boom"),
    ],
)
def test_errors_of_spark_are_shown_without_plans_and_stacks(said: str, shown: str) -> None:
    assert first_lines(RuntimeError(said)) == shown
