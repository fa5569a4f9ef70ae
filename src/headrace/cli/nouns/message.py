"""`headrace message`: send, poll or flush once. Use `produce` and `tail` for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.connect.target import with_client
from headrace.cli.names import (
    TopicName,
    partition_argument,
    read_identifier,
    read_pairs,
    show_topic,
    topic_argument,
)
from headrace.cli.show.message_values import describe_message
from headrace.cli.show.output import Done, Record, Rows, with_output
from headrace.cli.tail.starts import parse_time
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.client.calls.messages import Start
    from headrace.client.sync.client import Client
    from headrace.wire.identifiers import Identifier

COUNT_MAX = 1_000_000


@click.group(cls=Noun, short_help="Messages: send, poll or flush once.")
def message() -> None:
    """Messages: send, poll or flush once. For more than that there are `produce` and `tail`."""


@message.command("send", short_help="Send messages to a topic as one batch.")
@topic_argument
@click.argument("messages", nargs=-1, required=True)
@click.option("--partition", type=click.IntRange(min=0), help="The partition. [balanced]")
@click.option("--key", help="The key decides the partition: equal keys go to the same one.")
@click.option(
    "--header",
    "headers",
    metavar="KEY=VALUE",
    multiple=True,
    callback=read_pairs,
    help="A header of each message; may be given more than once.",
)
@with_output
@with_client
def send_messages(
    client: Client,
    topic: TopicName,
    messages: tuple[str, ...],
    partition: int | None,
    key: str | None,
    headers: dict[str, str],
) -> Record:
    """Send messages to a topic as one batch, and show where it is stored.

    Example: headrace message send shop/orders "one order" "another" --key ada
    """
    if key is not None and partition is not None:
        raise click.UsageError("give --key or --partition, not both")
    sent = client.send(topic, messages, key=key, partition=partition, headers=headers)
    return Record(
        {
            "topic": show_topic(topic),
            "partition": sent.partition,
            "offset": sent.offset,
            "count": sent.count,
        }
    )


@message.command("poll", short_help="Show messages of a partition.")
@topic_argument
@click.argument("partition", type=click.IntRange(min=0), default=0)
@click.option("--offset", type=click.IntRange(min=0), help="Begin at this offset.")
@click.option("--time", "moment", metavar="TIME", help="Begin at this time: 2026-01-31T12:00Z.")
@click.option("--first", is_flag=True, help="Begin at the oldest message, as by default.")
@click.option("--last", is_flag=True, help="The newest messages.")
@click.option("--next", "is_next", is_flag=True, help="Begin after the stored offset.")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=10, help="At most. [10]")
@click.option("--consumer", callback=read_identifier, metavar="NAME", help="Who reads.")
@click.option("--commit", is_flag=True, help="Store the last offset for the consumer.")
@with_output
@with_client
def poll_messages(
    client: Client,
    topic: TopicName,
    partition: int,
    count: int,
    consumer: Identifier | None,
    commit: bool,  # noqa: FBT001 - as click gives it
    **places: object,
) -> Rows:
    """Show messages of a partition, by default its oldest ones.

    Example: headrace message poll shop/orders 0 --offset 40 --count 5
    """
    start = _read_start(places)
    if consumer is None and (commit or start == "next"):
        raise click.UsageError("--next and --commit need the name of a --consumer")
    found = client.poll(topic, partition, start=start, count=count, consumer=consumer)
    if commit and len(found):
        client.store_offset(topic, partition, found.last_offset, consumer=consumer)
    columns = ("offset", "timestamp_at", "value", "headers")
    return Rows([describe_message(each) for each in found], columns)


@message.command("flush", short_help="Have a partition written out.")
@topic_argument
@partition_argument
@click.option("--sync", is_flag=True, help="Wait until it is on the disk.")
@with_output
@with_client
def flush_messages(client: Client, topic: TopicName, partition: int, sync: bool) -> Done:  # noqa: FBT001 - as click gives it
    """Write the messages that a partition has in memory to its segment.

    This is never needed for safety: confirmed messages are durable.

    Example: headrace message flush shop/orders 0 --sync
    """
    client.flush_partition(topic, partition, sync=sync)
    shown = show_topic(topic)
    return Done(
        f"Partition {partition} of {shown} is written out.",
        {"topic": shown, "partition": partition, "is_synced": sync},
    )


def _read_start(places: dict[str, object]) -> Start:
    """Return where to start; at most one of the flags may be given."""
    given = {name: value for name, value in places.items() if value not in (None, False)}
    if len(given) > 1:
        raise click.UsageError("give one of --offset, --time, --first, --last and --next")
    offset, moment = given.get("offset"), given.get("moment")
    if isinstance(offset, int):
        return offset
    if isinstance(moment, str):
        return _read_time(moment)
    if "last" in given:
        return "latest"
    return "next" if "is_next" in given else "earliest"


def _read_time(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError:
        raise click.UsageError(f"--time: {text!r} is no time: write 2026-01-31T12:00Z") from None
