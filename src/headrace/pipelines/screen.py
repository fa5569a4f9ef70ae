"""Live progress: a table that updates itself on a terminal, else a line per batch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headrace.pipelines.progress import BatchProgress, Totals

_COLUMNS = ("job", "batch", "rows", "rows/s", "batch time", "lag", "dead letters", "late")


class Screen(Protocol):
    """The output of progress."""

    def show(self, name: str, batch: BatchProgress, totals: Totals) -> None:
        """Show the result of a batch."""

    def say(self, sentence: str) -> None:
        """Show a message."""


class Lines:
    """A line per batch, on stderr."""

    def show(self, name: str, batch: BatchProgress, totals: Totals) -> None:
        """Show the result of a batch."""
        del totals
        click.echo(f"{name}: {batch.describe()}", err=True)

    def say(self, sentence: str) -> None:
        """Show a message."""
        click.echo(sentence, err=True)


class LiveTable:
    """A table with a row per query."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rows: dict[str, tuple[str, ...]] = {}

    def show(self, name: str, batch: BatchProgress, totals: Totals) -> None:
        """Show the result of a batch."""
        self._rows[name] = (
            str(batch.batch),
            f"{totals.rows:,}",
            f"{batch.rows_per_second:,.0f}",
            f"{batch.seconds:.2f} s",
            "" if batch.lag is None else f"{batch.lag:,}",
            f"{totals.dead_letters:,}",
            f"{totals.late:,}",
        )
        table = Table(*_COLUMNS)
        for row in self._rows.items():
            table.add_row(row[0], *row[1])
        self._live.update(table, refresh=True)

    def say(self, sentence: str) -> None:
        """Show a message."""
        self._live.console.print(sentence, markup=False, highlight=False)


@contextmanager
def open_screen() -> Iterator[Screen]:
    """Return the screen for stderr: a live table on a terminal, else lines."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        yield LiveTable(live)
