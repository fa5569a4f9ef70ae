"""Live progress: lines, and a table on a terminal."""

import io

import pytest
from rich.console import Console
from rich.live import Live

from headrace.pipelines.progress import Totals, read_batch
from headrace.pipelines.screen import Lines, LiveTable, open_screen

BATCH = read_batch({"batchId": 3, "numInputRows": 1200, "durationMs": {"triggerExecution": 500}})


def test_a_line_for_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    with open_screen() as screen:  # tests have no terminal
        assert isinstance(screen, Lines)
        screen.show("sales", BATCH, Totals())
        screen.say("something [else]")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "sales: batch 3: 1,200 rows in 0.50 s, 2,400 rows/s",
        "something [else]",
    ]


def test_a_table_that_renews_itself() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Live(console=console, auto_refresh=False) as live:
        table = LiveTable(live)
        for rows in (1200, 2400):
            table.show("sales", BATCH, Totals(rows=rows, dead_letters=7))
        table.say("something [else]")
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO from above
    for words in ("rows/s", "2,400", "0.50 s", "7", "something [else]"):
        assert words in shown
