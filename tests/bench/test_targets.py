"""Targets are judged by what was measured, and by nothing else."""

import os

import pytest

from bench import machine
from bench.cases import LARGEST, LOCKSTEP, SINGLE, SIXTEEN, name_of, pipelined
from bench.frames import PERSISTED, REPLICATED, Shape
from bench.load import Lap
from bench.node import LOAD_MAX, find_doubts
from bench.pagecache import Filled
from bench.rows import Row, head, line, make_row
from bench.targets import TARGETS, Target, figures_of


def make_lap(requests: int, seconds: float, statuses: dict[str, int] | None = None) -> Lap:
    return Lap(requests, seconds, 0, 0, 0, statuses or {}, 0.0, 10.0, 20.0, 30.0, 40.0)


@pytest.mark.parametrize(
    ("figure", "is_at_most", "is_met"),
    [(6.0, False, True), (5.9, False, False), (6.0, True, True), (6.1, True, False)],
)
def test_a_target_is_met_or_missed(figure: float, is_at_most: bool, is_met: bool) -> None:
    verdict = Target("a", "ours", "theirs", 0.6, is_at_most).judge({"ours": figure, "theirs": 10.0})
    assert verdict.is_met is is_met
    assert ("MISSED" in str(verdict)) is not is_met


def test_what_was_not_measured_is_neither() -> None:
    verdict = Target("a", "ours", "theirs", 0.6).judge({"ours": 1.0})
    assert verdict.is_met is None
    assert "not measured" in str(verdict)


def test_figures_come_from_rows_of_the_same_rounds() -> None:
    rows = {
        name: Row(name, shape, 100.0, 50.0, 60.0, beside=beside)
        for name, shape, beside in [
            (
                name_of("produce", PERSISTED, SINGLE, LOCKSTEP),
                SINGLE,
                {"cached p50": 20.0, "sync p50": 25.0},
            ),
            (name_of("produce", PERSISTED, SINGLE, SIXTEEN), SINGLE, {"one req/s": 25.0}),
            (name_of("produce", REPLICATED, SINGLE, LOCKSTEP), SINGLE, {"bare p50": 40.0}),
            (
                name_of("produce", REPLICATED, LARGEST, pipelined(LARGEST)),
                LARGEST,
                {"files MB/s": 204.8},
            ),
        ]
    }
    figures = figures_of(rows)
    assert figures["sync latency"] == 30.0
    judged = {target.figure: target.judge(figures).ratio for target in TARGETS}
    assert judged["sync latency"] == pytest.approx(1.2)
    assert judged["single persisted 16"] == 4.0
    assert judged["single latency"] == 1.25
    assert judged["batches replicated"] == 0.5
    assert judged["poll disk"] is None


def test_a_row_with_errors_is_no_figure() -> None:
    name = name_of("produce", REPLICATED, LARGEST, pipelined(LARGEST))
    row = Row(name, LARGEST, 100.0, 50.0, 60.0, errors=1, beside={"files MB/s": 1.0})
    assert figures_of({name: row}) == {}


def test_a_row_has_medians_and_all_errors() -> None:
    laps = [make_lap(100, 1.0), make_lap(300, 1.0, {"58": 2}), make_lap(200, 1.0, {"58": 1})]
    row = make_row("case", Shape(10, 100), laps, 0.006)
    assert (row.rate, row.messages, row.megabytes) == (200.0, 2000.0, 0.2)
    assert row.cpu_us == pytest.approx(10.0)
    assert (row.errors, row.statuses) == (3, {"58": 3})
    assert "3 ERRORS {'58': 3}" in line(row)
    assert len(head(())) == len(line(make_row("case", Shape(1, 1), laps[:1], None)))


def test_a_run_says_what_is_doubtful() -> None:
    assert find_doubts(is_quick=False, is_filled=True, loads=[0.1, LOAD_MAX]) == []
    doubts = find_doubts(is_quick=True, is_filled=False, loads=[0.1, LOAD_MAX + 1])
    assert len(doubts) == 3


@pytest.mark.parametrize(("free", "is_full"), [(1, True), (10, True), (11, False), (100, False)])
def test_a_fill_says_whether_it_came_to_its_end(free: int, is_full: bool) -> None:
    filled = Filled(50, 1.0, free, 100)
    assert filled.is_full is is_full
    assert ("NOT full" in str(filled)) is not is_full


def test_the_machine_knows_this_process() -> None:
    pid = os.getpid()
    assert machine.family_of(pid)[0] == pid
    before = machine.cpu_seconds([pid])
    assert before >= 0
    memory = machine.memory_of(pid)
    assert memory is not None
    assert 0 < memory.resident <= memory.peak


def test_a_process_that_is_not_there_counts_nothing() -> None:
    assert machine.memory_of(2**22 + 1) is None
    assert machine.cpu_seconds([2**22 + 1]) == 0
