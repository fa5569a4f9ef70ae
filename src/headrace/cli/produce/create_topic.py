"""Creates the missing stream and topic of a producer, if that is wanted, and reports it.

```
--create       create it
--no-create    do not
neither        only at a node started by `headrace dev`, which reports it (O8, GetCounters)
```
"""

import click

from headrace.cli.names import TopicName, show_topic
from headrace.cli.nouns.node_counters import ask_counters
from headrace.client.errors import NotFound, RefusedByServer, Unauthorized
from headrace.client.sync.client import Client


def ensure_topic(
    client: Client, topic: TopicName, *, is_create: bool | None, partitions: int
) -> bool:
    """Create stream and topic if they are missing and it is wanted; return whether it did.

    Raises:
        NotFound: They are missing, and must not be created.
    """
    try:
        client.get_topic(topic)
    except NotFound as error:
        if not _is_meant(client, topic, is_create):
            shown = f"produce to {show_topic(topic)}"
            raise NotFound(error.code, shown, "--create creates it") from None
    except Unauthorized:
        return False  # A user who may send may lack the permission to read topics: try to send.
    else:
        return False
    _create(client, topic, partitions)
    return True


def _is_meant(client: Client, topic: TopicName, is_create: bool | None) -> bool:  # noqa: FBT001 - three answers
    if not all(isinstance(name, str) for name in topic):
        return False  # The node assigns numbers, so a topic cannot be created by number.
    if is_create is not None:
        return is_create
    try:
        counted = ask_counters(client)
    except RefusedByServer:
        return False
    return counted is not None and counted.profile == "dev"


def _create(client: Client, topic: TopicName, partitions: int) -> None:
    stream, name = (str(part) for part in topic)
    made = []
    try:
        client.get_stream(stream)
    except NotFound:
        client.create_stream(stream)
        made.append(f"the stream {stream}")
    client.create_topic((stream, name), partitions=partitions)
    count = f"{partitions} partition" + ("s" if partitions > 1 else "")
    made.append(f"the topic {show_topic(topic)} with {count}")
    click.echo(f"Created {' and '.join(made)}.", err=True)
