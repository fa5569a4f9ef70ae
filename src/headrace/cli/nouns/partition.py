"""`headrace partition`: the parts of a topic, each with its own order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.names import TopicName, show_topic, topic_argument
from headrace.cli.show.output import Done, Rows, Values, with_output
from headrace.cli.show.quantities import write_count
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.client.sync.client import Client
    from headrace.wire.commands.topics import Partition

count_argument = click.argument("count", type=click.IntRange(min=1))


@click.group(cls=Noun, short_help="Partitions: the parts of a topic.")
def partition() -> None:
    """Partitions: the parts of a topic, each with an order of its own."""


@partition.command("list", short_help="List the partitions of a topic.")
@topic_argument
@with_output
@with_client
def list_partitions(client: Client, topic: TopicName) -> Rows:
    """List the partitions of a topic.

    Example: headrace partition list shop/orders
    """
    return Rows(describe_partitions(client.get_topic(topic).partitions))


@partition.command("create", short_help="Add partitions to a topic.")
@topic_argument
@count_argument
@with_output
@with_client
def create_partitions(client: Client, topic: TopicName, count: int) -> Done:
    """Add COUNT partitions to a topic.

    Example: headrace partition create shop/orders 2
    """
    client.create_partitions(topic, count)
    shown = show_topic(topic)
    return Done(
        f"{write_count(count, 'partition')} added to {shown}.",
        {"topic": shown, "created_count": count},
    )


@partition.command("delete", short_help="Remove partitions of a topic, the highest ids first.")
@topic_argument
@count_argument
@with_yes
@with_output
@with_client
def delete_partitions(client: Client, topic: TopicName, count: int, be_sure: Sure) -> Done:
    """Remove COUNT partitions of a topic with their messages, the highest ids first.

    Example: headrace partition delete shop/orders 1 --yes
    """
    shown = show_topic(topic)
    going = client.get_topic(topic).partitions[-count:]
    messages = write_count(sum(each.messages_count for each in going), "message")
    be_sure(f"delete {write_count(len(going), 'partition')} of {shown} with {messages}")
    client.delete_partitions(topic, count)
    return Done(
        f"{write_count(count, 'partition')} removed from {shown}.",
        {"topic": shown, "deleted_count": count},
    )


def describe_partitions(found: Sequence[Partition]) -> list[Values]:
    """Return partitions as values for programs.

    `current_offset` is the offset of the newest message, None if there never was one: the protocol
    reports 0 in both cases.
    """
    return [
        {
            "id": each.id,
            "segments_count": each.segments_count,
            "messages_count": each.messages_count,
            "current_offset": newest_offset(each),
            "size_bytes": each.size_bytes,
            "created_at": each.created_at,
        }
        for each in found
    ]


def newest_offset(found: Partition) -> int | None:
    """Return the offset of the newest message that a partition ever had, None if it had none."""
    return found.current_offset if found.current_offset or found.messages_count else None
