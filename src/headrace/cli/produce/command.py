"""`headrace produce`: sends each line of the input or of a file as a message."""

from __future__ import annotations

import codecs
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.connect.target import with_client
from headrace.cli.names import TopicName, read_pairs, topic_argument
from headrace.cli.show.output import Done, with_output

if TYPE_CHECKING:
    from headrace.client.sync.client import Client

RUN_MODULE = "headrace.cli.produce.run"  # loads the client's producer
FORMATS = ("lines", "jsonl", "csv")
DELIMITERS = {"lines": "\n", "csv": ","}
PASSED = ("file", "key", "key_field", "headers", "on_error", "rate", "is_create", "partitions")


@click.command(short_help="Send lines of the input to a topic.")
@topic_argument
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="lines", help="Of the input. [lines]"
)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read a file instead of the input.",
)
@click.option("--delimiter", metavar="TEXT", help=r"Between lines [\n], between CSV fields [,].")
@click.option("--key", help="The key of all messages; it decides the partition.")
@click.option("--key-field", metavar="PATH", help="The field with the key: customer.id.")
@click.option(
    "--header",
    "headers",
    metavar="KEY=VALUE",
    multiple=True,
    callback=read_pairs,
    help="A header of each message; may be given more than once.",
)
@click.option("--partition", type=click.IntRange(min=0), help="The partition. [balanced]")
@click.option(
    "--batch", type=click.IntRange(1, 100_000), default=1000, help="Messages per batch. [1000]"
)
@click.option("--linger", metavar="TIME", default="5 ms", help="How long to wait for more. [5 ms]")
@click.option("--rate", type=click.IntRange(min=1), help="Messages per second, at most.")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    help="What to do with a bad line. [stop]",
)
@click.option(
    "--create/--no-create",
    "is_create",
    default=None,
    help="Create a missing topic. [at a dev node]",
)
@click.option(
    "--partitions", type=click.IntRange(1, 1000), default=1, help="Of a topic it creates. [1]"
)
@with_output
@with_client
def produce(client: Client, topic: TopicName, **given: Any) -> Done:  # noqa: ANN401 - as click gives it
    """Send each line of the input to a topic, and wait until all are confirmed.

    --format jsonl checks that every line is JSON; csv makes a JSON object of texts of every row,
    with the names in the first row. A bad line stops the command, or is skipped with --on-error
    skip. Empty lines are skipped.

    A topic that is missing is created, with its stream, at a node that was started by `headrace
    dev`, or with --create. Ctrl-C sends the lines read so far, and reports their number.

    Example: seq 1000 | headrace produce shop/orders
    """
    _check(given)
    runner = importlib.import_module(RUN_MODULE)
    options = {name: given[name] for name in ("batch", "linger")}
    if given["partition"] is not None:
        options["partitioning"] = given["partition"]
    wanted = runner.Wanted(
        topic=topic,
        format=given["form"],
        delimiter=_plain(given["delimiter"] or DELIMITERS.get(given["form"], "")),
        options=options,
        **{name: given[name] for name in PASSED},
    )
    done: Done = runner.produce(client, wanted)
    return done


def _check(given: dict[str, Any]) -> None:
    """Refuse options that contradict each other; report all problems at once."""
    form, delimiter = given["form"], given["delimiter"]
    problems = []
    if given["key_field"] is not None and form == "lines":
        problems.append("--key-field: lines have no fields; say --format jsonl or csv")
    ways = [name for name in ("key", "key_field", "partition") if given[name] is not None]
    if len(ways) > 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in ways)
        problems.append(f"{flags}: each decides the partition; give one of them")
    if delimiter is not None and form == "jsonl":
        problems.append("--delimiter: JSON lines end with a line")
    if delimiter == "" or (form == "csv" and delimiter is not None and len(_plain(delimiter)) != 1):
        problems.append(f"--delimiter: {delimiter!r} is not one character")
    if problems:
        raise click.UsageError("; ".join(problems))


def _plain(delimiter: str) -> str:
    r"""Return the delimiter with escapes resolved: `\t` is a tab."""
    return codecs.decode(delimiter, "unicode_escape") if "\\" in delimiter else delimiter
