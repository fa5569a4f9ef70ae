"""Tables for people, by rich. Loaded by name, only where one is shown.

Values from a node are printed as plain text, never as markup or as control sequences.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.show.output import Record, Rows, Value, Values
from headrace.cli.show.quantities import write_bytes, write_duration, write_time

WIDTH_WITHOUT_TERMINAL = 1_000  # a pipe has no width at which to cut names


def show(what: Rows | Record) -> None:
    """Print a result to stdout."""
    is_terminal = sys.stdout.isatty()
    console = Console(
        width=None if is_terminal else WIDTH_WITHOUT_TERMINAL, highlight=False, markup=False
    )
    if isinstance(what, Rows):
        _print(console, _make_table(what))
        return
    parts = {key: value for key, value in what.values.items() if _is_list_of_objects(value)}
    plain = {key: value for key, value in what.values.items() if key not in parts}
    _print(console, _make_sheet(plain))
    for key, rows in parts.items():
        assert _is_list_of_objects(rows)
        if rows:
            _print(console, _make_table(Rows(rows, title=key)))


def cell(key: str, value: Value) -> str:
    """Return a value formatted for people, by the unit in its key."""
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return _write_number(key, value)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(k)}={cell(k, v)}" for k, v in value.items()) or "-"
    if isinstance(value, Sequence):
        return ", ".join(cell("", each) for each in value) or "-"
    return str(value)


def printable(text: str) -> str:
    """Return the text with every control character escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _write_number(key: str, value: int) -> str:
    if key.endswith("_at"):
        return write_time(value) if value else "never"
    if key.endswith("_bytes"):
        return write_bytes(value)
    if key.endswith("_micros"):
        return write_duration(value)
    return str(value)


def _make_table(what: Rows) -> Table:
    columns = what.columns or (list(what.rows[0]) if what.rows else ())
    title = _heading(what.title) if what.title else None
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for key in columns:
        values = [row[key] for row in what.rows]
        is_number = any(isinstance(v, int) and not isinstance(v, bool) for v in values)
        table.add_column(_heading(key), justify="right" if is_number else "left", overflow="fold")
    for row in what.rows:
        table.add_row(*(Text(cell(key, row[key])) for key in columns))
    return table


def _make_sheet(values: Values) -> Table:
    sheet = Table(box=None, show_header=False, pad_edge=False)
    sheet.add_column(style="bold")
    sheet.add_column(overflow="fold")
    for key, value in values.items():
        sheet.add_row(_heading(key), Text(cell(key, value)))
    return sheet


def _heading(key: str) -> str:
    if key.endswith("_at"):
        return f"{key.removesuffix('_at')} (UTC)".replace("_", " ")
    words = key.removesuffix("_bytes").removesuffix("_micros").removesuffix("_count")
    return words.replace("_", " ")


def _is_list_of_objects(value: Value) -> TypeGuard[Sequence[Values]]:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(each, Mapping) for each in value)
    )


def _print(console: Console, table: Table) -> None:
    """Print without the trailing blanks of rich."""
    if sys.stdout.isatty():
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        if line.strip():
            console.file.write(f"{line.rstrip()}\n")
