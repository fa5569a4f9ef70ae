"""`headrace offset`: the stored offsets of consumers and groups."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.exits import CommandError, Exit
from headrace.cli.names import (
    TopicName,
    partition_argument,
    read_identifier,
    show_topic,
    topic_argument,
)
from headrace.cli.show.output import Done, Record, with_output
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.sync.client import Client
    from headrace.wire.identifiers import Identifier

OFFSET_MAX = (1 << 64) - 1


@click.group(cls=Noun, short_help="Offsets: how far consumers and groups have read.")
def offset() -> None:
    """Offsets: how far consumers and groups have read.

    The stored offset is that of the last processed message; reading continues after it.
    """


def _reader_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --consumer and --group, one of which must be given; the command gets it as `reader`."""

    @click.option("--consumer", callback=read_identifier, metavar="NAME", help="A lone consumer.")
    @click.option("--group", callback=read_identifier, metavar="NAME", help="A consumer group.")
    @functools.wraps(command)
    def named(*, consumer: Identifier | None, group: Identifier | None, **rest: Any) -> Any:  # noqa: ANN401 - the command's own
        if (consumer is None) == (group is None):
            raise click.UsageError("name the reader by --consumer or by --group, one of the two")
        kind, name = ("consumer", consumer) if group is None else ("group", group)
        return command(reader={kind: name}, **rest)

    return named


@offset.command("get", short_help="Show the stored offset of a consumer or group.")
@topic_argument
@partition_argument
@_reader_options
@with_output
@with_client
def get_offset(
    client: Client, topic: TopicName, partition: int, reader: dict[str, Identifier]
) -> Record:
    """Show the offset that is stored for a consumer or a group in one partition.

    Example: headrace offset get shop/orders 0 --group billing
    """
    found = client.get_offset(topic, partition, **reader)
    if found is None:
        raise CommandError(
            f"no offset is stored for {_who(reader)} in {show_topic(topic)}, partition {partition}",
            Exit.NOT_FOUND,
        )
    return Record(
        {
            "topic": show_topic(topic),
            "partition": partition,
            **reader,
            "stored_offset": found.stored_offset,
            "current_offset": found.current_offset,
        }
    )


@offset.command("set", short_help="Store an offset for a consumer or group.")
@topic_argument
@partition_argument
@click.argument("offset", type=click.IntRange(0, OFFSET_MAX))
@_reader_options
@with_output
@with_client
def set_offset(
    client: Client, topic: TopicName, partition: int, offset: int, reader: dict[str, Identifier]
) -> Done:
    """Store the offset of the last message that a consumer or a group has processed.

    A lower offset than before makes it read messages again.

    Example: headrace offset set shop/orders 0 41 --group billing
    """
    client.store_offset(topic, partition, offset, **reader)
    where = f"{show_topic(topic)}, partition {partition}"
    return Done(
        f"The offset of {_who(reader)} in {where} is {offset}.",
        {"topic": show_topic(topic), "partition": partition, **reader, "stored_offset": offset},
    )


@offset.command("delete", short_help="Forget the offset of a consumer or group.")
@topic_argument
@partition_argument
@_reader_options
@with_yes
@with_output
@with_client
def delete_offset(
    client: Client,
    topic: TopicName,
    partition: int,
    reader: dict[str, Identifier],
    be_sure: Sure,
) -> Done:
    """Forget the offset of a consumer or a group in one partition.

    Example: headrace offset delete shop/orders 0 --consumer report --yes
    """
    where = f"{show_topic(topic)}, partition {partition}"
    be_sure(f"forget how far {_who(reader)} has read {where}")
    client.delete_offset(topic, partition, **reader)
    return Done(
        f"The offset of {_who(reader)} in {where} is forgotten.",
        {"topic": show_topic(topic), "partition": partition, **reader, "is_deleted": True},
    )


def _who(reader: dict[str, Identifier]) -> str:
    return " ".join(f"{kind} {name}" for kind, name in reader.items())
