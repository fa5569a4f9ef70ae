"""`headrace segment`: the files that hold a partition's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.names import TopicName, partition_argument, show_topic, topic_argument
from headrace.cli.show.output import Done, with_output
from headrace.cli.show.quantities import write_count
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.client.sync.client import Client


@click.group(cls=Noun, short_help="Segments: the files of a partition.")
def segment() -> None:
    """Segments: the files that a partition's messages lie in."""


@segment.command("delete", short_help="Delete the oldest segments of a partition.")
@topic_argument
@partition_argument
@click.argument("count", type=click.IntRange(min=1))
@with_yes
@with_output
@with_client
def delete_segments(
    client: Client, topic: TopicName, partition: int, count: int, be_sure: Sure
) -> Done:
    """Delete the COUNT oldest sealed segments of a partition.

    What a consumer with a stored offset has not read stays, and so does the newest segment.

    Example: headrace segment delete shop/orders 0 2 --yes
    """
    shown = show_topic(topic)
    going = f"up to {write_count(count, 'segment')} of {shown}, partition {partition}"
    be_sure(f"delete {going}")
    client.delete_segments(topic, partition, count)
    return Done(
        f"Deleted {going}.",
        {"topic": shown, "partition": partition, "segments_count_max": count},
    )
