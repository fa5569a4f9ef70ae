"""`headrace stream`: the namespaces of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.names import read_identifier
from headrace.cli.show.output import Done, Record, Rows, Values, with_output
from headrace.cli.show.quantities import write_count
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.client.sync.client import Client
    from headrace.wire.commands.streams import Stream
    from headrace.wire.identifiers import Identifier

stream_argument = click.argument("stream", callback=read_identifier, metavar="STREAM")


@click.group(cls=Noun, short_help="Streams: the namespaces that topics live in.")
def stream() -> None:
    """Streams: the namespaces that topics live in. STREAM is a name or a number."""


@stream.command("list", short_help="List all streams.")
@with_output
@with_client
def list_streams(client: Client) -> Rows:
    """List all streams.

    Example: headrace stream list -o json
    """
    return Rows([describe_stream(each) for each in client.get_streams()])


@stream.command("get", short_help="Show a stream and its topics.")
@stream_argument
@with_output
@with_client
def get_stream(client: Client, stream: Identifier) -> Record:
    """Show a stream and its topics.

    Example: headrace stream get shop
    """
    found = client.get_stream(stream)
    topics: list[Values] = [
        {
            "id": topic.id,
            "name": topic.name,
            "partitions_count": topic.partitions_count,
            "messages_count": topic.messages_count,
            "size_bytes": topic.size_bytes,
        }
        for topic in found.topics
    ]
    return Record({**describe_stream(found.stream), "topics": topics})


@stream.command("create", short_help="Create a stream.")
@click.argument("name")
@with_output
@with_client
def create_stream(client: Client, name: str) -> Record:
    """Create a stream and show it.

    Example: headrace stream create shop
    """
    return Record(describe_stream(client.create_stream(name)))


@stream.command("update", short_help="Rename a stream.")
@stream_argument
@click.argument("name")
@with_output
@with_client
def update_stream(client: Client, stream: Identifier, name: str) -> Done:
    """Rename a stream.

    Example: headrace stream update shop store
    """
    client.rename_stream(stream, name)
    return Done(f"The stream {stream} is now named {name}.", {"stream": stream, "name": name})


@stream.command("delete", short_help="Delete a stream with all its topics.")
@stream_argument
@with_yes
@with_output
@with_client
def delete_stream(client: Client, stream: Identifier, be_sure: Sure) -> Done:
    """Delete a stream with all its topics and messages.

    Example: headrace stream delete shop --yes
    """
    be_sure(f"delete {_content(client, stream)}")
    client.delete_stream(stream)
    return Done(f"The stream {stream} is deleted.", {"stream": stream, "is_deleted": True})


@stream.command("purge", short_help="Delete all messages of a stream.")
@stream_argument
@with_yes
@with_output
@with_client
def purge_stream(client: Client, stream: Identifier, be_sure: Sure) -> Done:
    """Delete all messages of all topics of a stream; offsets begin again at 0.

    Example: headrace stream purge shop --yes
    """
    be_sure(f"delete all messages of {_content(client, stream)}")
    client.purge_stream(stream)
    return Done(f"The stream {stream} is empty now.", {"stream": stream, "is_purged": True})


def describe_stream(found: Stream) -> Values:
    """Return a stream as values for programs."""
    return {
        "id": found.id,
        "name": found.name,
        "topics_count": found.topics_count,
        "messages_count": found.messages_count,
        "size_bytes": found.size_bytes,
        "created_at": found.created_at,
    }


def _content(client: Client, stream: Identifier) -> str:
    found = client.get_stream(stream).stream
    topics = write_count(found.topics_count, "topic")
    messages = write_count(found.messages_count, "message")
    return f"the stream {found.name} with {topics} and {messages}"
