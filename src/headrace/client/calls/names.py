"""How callers name objects: `shop/orders` for a topic, and the name of a consumer."""

from typing import TypeAlias

from headrace.wire.identifiers import Consumer, Identifier
from headrace.wire.numbers import ConsumerKind

# "stream/topic", or a tuple of both, each a name or a number.
TopicName: TypeAlias = str | tuple[Identifier, Identifier]

ANONYMOUS = Consumer(ConsumerKind.CONSUMER, 0)


def split_topic(topic: TopicName) -> tuple[Identifier, Identifier]:
    """Return the stream and the topic of a topic name.

    Raises:
        ValueError: It is not of the form `stream/topic`.
    """
    if isinstance(topic, tuple):
        return topic
    stream, slash, name = topic.partition("/")
    if not (stream and slash and name) or "/" in name:
        raise ValueError(
            f"{topic!r} is no topic: write 'stream/topic', or a tuple of both if a name has a slash"
        )
    return stream, name


def join_topic(topic: TopicName) -> str:
    """Return the name of a topic as errors show it."""
    return "/".join(str(part) for part in split_topic(topic))


def make_consumer(consumer: Identifier | None, group: Identifier | None) -> Consumer:
    """Return the consumer or the group that polls or stores an offset.

    Raises:
        ValueError: Both were given, or neither.
    """
    if (consumer is None) == (group is None):
        raise ValueError("name a consumer or a group, one of the two")
    if group is not None:
        return Consumer(ConsumerKind.GROUP, group)
    assert consumer is not None
    return Consumer(ConsumerKind.CONSUMER, consumer)
