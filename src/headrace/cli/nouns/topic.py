"""`headrace topic`: where messages go."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.names import TopicName, read_identifier, show_topic, topic_argument
from headrace.cli.nouns.partition import describe_partitions
from headrace.cli.nouns.topic_settings import settings_options
from headrace.cli.show.output import Done, Record, Rows, Values, with_output
from headrace.cli.show.quantities import write_count
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.client.sync.client import Client
    from headrace.wire.commands.topics import Topic
    from headrace.wire.identifiers import Identifier

HOLDERS_MODULE = "headrace.cli.nouns.holders"  # loads the protocol
_UNLIMITED = (1 << 64) - 1
_COLUMNS = ("id", "name", "partitions_count", "messages_count", "size_bytes", "created_at")


@click.group(cls=Noun, short_help="Topics: where messages go.")
def topic() -> None:
    """Topics: where messages go. STREAM and TOPIC are names or numbers: shop/orders, 1/2."""


@topic.command("list", short_help="List the topics of a stream.")
@click.argument("stream", callback=read_identifier)
@with_output
@with_client
def list_topics(client: Client, stream: Identifier) -> Rows:
    """List the topics of a stream.

    Example: headrace topic list shop
    """
    found = client.get_topics(stream)
    if not found:
        client.get_stream(stream)  # the answer is also empty if the stream does not exist
    return Rows([describe_topic(each) for each in found], _COLUMNS)


@topic.command("get", short_help="Show a topic and its partitions.")
@topic_argument
@with_output
@with_client
def get_topic(client: Client, topic: TopicName) -> Record:
    """Show a topic, its options, its partitions, and who keeps messages beyond its limits.

    Example: headrace topic get shop/orders
    """
    found = client.get_topic(topic)
    partitions = describe_partitions(found.partitions)
    held = importlib.import_module(HOLDERS_MODULE).describe_holders(client, topic)
    return Record({**describe_topic(found.topic), "partitions": partitions, **held})


@topic.command("create", short_help="Create a topic in a stream.")
@topic_argument
@click.option("--partitions", type=click.IntRange(min=0), default=1, help="How many. [1]")
@settings_options
@with_output
@with_client
def create_topic(
    client: Client, topic: TopicName, partitions: int, settings: Mapping[str, str]
) -> Record:
    """Create a topic in a stream and show it.

    `headrace options` lists what --option can set.

    Example: headrace topic create shop/orders --partitions 3 --expiry "7 days"
    """
    stream, name = topic
    created = client.create_topic((stream, str(name)), partitions=partitions, options=settings)
    shown = describe_partitions(created.partitions)
    return Record({**describe_topic(created.topic), "partitions": shown})


@topic.command("update", short_help="Rename a topic or change its options.")
@topic_argument
@click.option("--name", help="Another name.")
@settings_options
@with_output
@with_client
def update_topic(
    client: Client, topic: TopicName, name: str | None, settings: Mapping[str, str]
) -> Done:
    """Rename a topic, or change the given options.

    Example: headrace topic update shop/orders --name sales --max-size "10 GiB"
    """
    if name is None and not settings:
        raise click.UsageError("say what is to change: --name, --expiry, --max-size, --option ...")
    kept = name or client.get_topic(topic).topic.name
    client.update_topic(topic, name=kept, options=settings)
    shown = show_topic(topic)
    return Done(
        f"The topic {shown} is changed.", {"topic": shown, "name": kept, "options": dict(settings)}
    )


@topic.command("delete", short_help="Delete a topic with its messages.")
@topic_argument
@with_yes
@with_output
@with_client
def delete_topic(client: Client, topic: TopicName, be_sure: Sure) -> Done:
    """Delete a topic with its messages, groups and offsets.

    Example: headrace topic delete shop/orders --yes
    """
    be_sure(f"delete {_content(client, topic)}")
    client.delete_topic(topic)
    shown = show_topic(topic)
    return Done(f"The topic {shown} is deleted.", {"topic": shown, "is_deleted": True})


@topic.command("purge", short_help="Delete all messages of a topic.")
@topic_argument
@with_yes
@with_output
@with_client
def purge_topic(client: Client, topic: TopicName, be_sure: Sure) -> Done:
    """Delete all messages of a topic; its offsets begin again at 0.

    Example: headrace topic purge shop/orders --yes
    """
    be_sure(f"delete all messages of {_content(client, topic)}")
    client.purge_topic(topic)
    shown = show_topic(topic)
    return Done(f"The topic {shown} is empty now.", {"topic": shown, "is_purged": True})


def describe_topic(found: Topic) -> Values:
    """Return a topic as values for programs; a missing limit is None."""
    return {
        "id": found.id,
        "name": found.name,
        "partitions_count": found.partitions_count,
        "messages_count": found.messages_count,
        "size_bytes": found.size_bytes,
        "created_at": found.created_at,
        "message_expiry_micros": _bound(found.message_expiry),
        "max_topic_size_bytes": _bound(found.max_topic_size),
        "compression": found.compression.name.lower(),
        "options": {each.key: _plain(each.value.value) for each in found.explicit},
    }


def _bound(value: int) -> int | None:
    return None if value in (0, _UNLIMITED) else value


def _plain(value: object) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else repr(value)


def _content(client: Client, topic: TopicName) -> str:
    found = client.get_topic(topic).topic
    partitions = write_count(found.partitions_count, "partition")
    messages = write_count(found.messages_count, "message")
    return f"the topic {show_topic(topic)} with {partitions} and {messages}"
