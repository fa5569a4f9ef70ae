"""What a command shows: tables for people, JSON, JSON lines and YAML for programs.

```python
@stream.command("get", short_help="Show a stream.")
@with_output          # adds -o / --output
@with_client
def get_stream(client: "Client", stream: Identifier) -> Record: ...
```

The function returns what is to be shown:

* `Rows(rows, columns)`: a list of things. A table; a JSON array; a JSON line or YAML item for each.
* `Record(values)`: one thing. Names and values, lists of objects as tables below; one object.
* `Done(sentence, values)`: something was done. People read the sentence, on stderr; programs the
  object, on stdout.

Values are machine values with names that do not change: counts and ids as integers, times as
microseconds since 1970 (names that end in `_at`), spans in microseconds (`_micros`), sizes in bytes
(`_bytes`), None for "none" or "no bound". Tables show the same names as words and the values as
people write them. A command that shows its own (such as `tail`) uses `output_option`.
"""

import functools
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import click

FORMATS = ("table", "json", "jsonl", "yaml")
TABLES_MODULE = "headrace.cli.show.tables"
YAML_MODULE = "headrace.cli.show.yaml"

# What JSON can say.
Value: TypeAlias = "bool | int | float | str | Sequence[Value] | Mapping[str, Value] | None"
Values: TypeAlias = Mapping[str, Value]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rows:
    """A list; `columns` are the keys that a table shows, by default those of the first row."""

    rows: Sequence[Values]
    columns: Sequence[str] = ()
    title: str = ""


@dataclass(frozen=True)
class Record:
    """One thing; a value that is a list of objects is a table of its own, named by its key."""

    values: Values


@dataclass(frozen=True)
class Done:
    """Something was done: a sentence for people, and what was done to what for programs."""

    sentence: str
    values: Values


Shown: TypeAlias = Rows | Record | Done


def output_option(command: F) -> F:
    """Add -o; the command gets one of `FORMATS` as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        help="How to show it: table, json, jsonl, yaml. [table]",
        metavar="FORMAT",
    )(command)


def with_output(command: Callable[..., Shown]) -> Callable[..., None]:
    """Show what the command gives, in the form that -o asks for."""

    @output_option
    @functools.wraps(command)
    def shown(*, output: str, **rest: Any) -> None:  # noqa: ANN401 - the command's own
        show(command(**rest), output)

    return shown


def show(what: Shown, output: str) -> None:
    """Show something in one of `FORMATS`: data on stdout, words on stderr."""
    if output == "table":
        if isinstance(what, Done):
            click.echo(what.sentence, err=True)
        else:
            importlib.import_module(TABLES_MODULE).show(what)
        return
    value: Value = what.rows if isinstance(what, Rows) else what.values
    if output == "jsonl":
        items = value if isinstance(what, Rows) else [value]
        assert isinstance(items, Sequence)
        for item in items:
            click.echo(json_line(item))
    elif output == "yaml":
        click.echo(importlib.import_module(YAML_MODULE).to_yaml(value), nl=False)
    else:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def json_line(value: Value) -> str:
    """Give a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
