"""The output of commands: tables for people; JSON, JSON lines and YAML for programs.

```python
@stream.command("get", short_help="Show a stream.")
@with_output          # adds -o / --output
@with_client
def get_stream(client: "Client", stream: Identifier) -> Record: ...
```

The function returns the value to show:

* `Rows(rows, columns)`: a list. A table; a JSON array; a JSON line or YAML item for each row.
* `Record(values)`: one object. Names and values, lists of objects as tables below; one JSON object.
* `Done(sentence, values)`: the command changed something. The sentence for people goes to stderr,
  the object for programs to stdout.

Values are for programs and their names do not change: counts and ids as integers, times as
microseconds since 1970 (names that end in `_at`), durations in microseconds (`_micros`), sizes in
bytes (`_bytes`), None for "none" or "no limit". Tables show the same names as words, and the values
formatted for people. A command with its own output (such as `tail`) uses `output_option`.
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

# A value that JSON can express.
Value: TypeAlias = "bool | int | float | str | Sequence[Value] | Mapping[str, Value] | None"
Values: TypeAlias = Mapping[str, Value]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rows:
    """A list; `columns` are the keys shown in a table, by default those of the first row."""

    rows: Sequence[Values]
    columns: Sequence[str] = ()
    title: str = ""


@dataclass(frozen=True)
class Record:
    """One object; a value that is a list of objects becomes its own table, named by its key."""

    values: Values


@dataclass(frozen=True)
class Done:
    """The command changed something: a sentence for people, and values for programs."""

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
    """Print the result of the command in the format given by -o."""

    @output_option
    @functools.wraps(command)
    def shown(*, output: str, **rest: Any) -> None:  # noqa: ANN401 - the command's own
        show(command(**rest), output)

    return shown


def show(what: Shown, output: str) -> None:
    """Print a result in one of `FORMATS`: data on stdout, sentences on stderr."""
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
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
