"""Streams, topics, partitions and segments."""

from collections.abc import Mapping

from headrace.client.calls.names import TopicName, join_topic, split_topic
from headrace.client.session.call import Call, make_call, make_get
from headrace.wire.commands import streams, topics
from headrace.wire.commands.holders import GET_HOLDERS, GetHolders, TopicHolders
from headrace.wire.commands.streams import Stream, StreamDetails
from headrace.wire.commands.topics import Topic, TopicDetails
from headrace.wire.errors import Code
from headrace.wire.fields import Field, FieldValue, make_field
from headrace.wire.identifiers import Identifier
from headrace.wire.options import Options, make_options
from headrace.wire.topic_options import TOPIC_OPTIONS


def create_stream(name: str) -> Call[Stream]:
    """Add a stream.

    >>> client.create_stream("shop").name
    'shop'
    """
    return make_call(streams.CREATE_STREAM, streams.CreateStream(name), name)


def get_stream(stream: Identifier) -> Call[StreamDetails]:
    """Return a stream and its topics; `NotFound` if it does not exist.

    >>> _ = client.create_stream("shop")
    >>> client.get_stream("shop").topics
    ()
    """
    request = streams.GetStream(stream)
    return make_get(streams.GET_STREAM, request, stream, Code.STREAM_ID_NOT_FOUND)


def get_streams() -> Call[tuple[Stream, ...]]:
    """Return all streams that this user may see.

    >>> _ = client.create_stream("shop")
    >>> [stream.name for stream in client.get_streams()]
    ['shop']
    """
    return make_call(streams.GET_STREAMS, None)


def rename_stream(stream: Identifier, name: str) -> Call[None]:
    """Rename a stream.

    >>> _ = client.create_stream("shop")
    >>> client.rename_stream("shop", "store")
    """
    return make_call(streams.UPDATE_STREAM, streams.UpdateStream(stream, name), stream)


def delete_stream(stream: Identifier) -> Call[None]:
    """Remove a stream with all its topics.

    >>> _ = client.create_stream("shop")
    >>> client.delete_stream("shop")
    """
    return make_call(streams.DELETE_STREAM, streams.DeleteStream(stream), stream)


def purge_stream(stream: Identifier) -> Call[None]:
    """Remove all messages of all topics of a stream.

    >>> _ = client.create_stream("shop")
    >>> client.purge_stream("shop")
    """
    return make_call(streams.PURGE_STREAM, streams.PurgeStream(stream), stream)


def create_topic(
    topic: TopicName,
    *,
    partitions: int = 1,
    options: Mapping[str, FieldValue] | None = None,
) -> Call[TopicDetails]:
    """Add a topic to a stream that exists.

    `options` are those that `describe_options` lists, as values or as text such as `"7 days"`.

    >>> _ = client.create_stream("shop")
    >>> created = client.create_topic(
    ...     "shop/orders", partitions=3, options={"message_expiry": "7 days"}
    ... )
    >>> len(created.partitions)
    3
    """
    stream, name = split_topic(topic)
    request = topics.CreateTopic(stream, partitions, str(name), _make_options(options))
    return make_call(topics.CREATE_TOPIC, request, join_topic(topic))


def get_topic(topic: TopicName) -> Call[TopicDetails]:
    """Return a topic and its partitions; `find_topic` also says what exactly is missing."""
    request = topics.GetTopic(*split_topic(topic))
    return make_get(topics.GET_TOPIC, request, join_topic(topic), Code.TOPIC_ID_NOT_FOUND)


def get_holders(topic: TopicName) -> Call[TopicHolders]:
    """Return who keeps messages of a topic beyond its limits; a command of Headrace only.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.get_holders("shop/orders").count
    0
    """
    return make_call(GET_HOLDERS, GetHolders(*split_topic(topic)), join_topic(topic))


def get_topics(stream: Identifier) -> Call[tuple[Topic, ...]]:
    """Return the topics of a stream.

    >>> _ = client.create_stream("shop")
    >>> client.get_topics("shop")
    ()
    """
    return make_call(topics.GET_TOPICS, topics.GetTopics(stream), stream)


def update_topic(
    topic: TopicName,
    *,
    name: str | None = None,
    options: Mapping[str, FieldValue] | None = None,
) -> Call[None]:
    """Rename a topic, or change the given options.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.update_topic("shop/orders", name="sales")
    """
    stream, old = split_topic(topic)
    if name is None:
        if not isinstance(old, str):
            raise ValueError("a topic that is named by its number needs its name here")
        name = old
    request = topics.UpdateTopic(stream, old, name, _make_options(options))
    return make_call(topics.UPDATE_TOPIC, request, join_topic(topic))


def delete_topic(topic: TopicName) -> Call[None]:
    """Remove a topic with its messages, groups and offsets.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.delete_topic("shop/orders")
    """
    request = topics.DeleteTopic(*split_topic(topic))
    return make_call(topics.DELETE_TOPIC, request, join_topic(topic))


def purge_topic(topic: TopicName) -> Call[None]:
    """Remove all messages of a topic; its offsets begin again at 0.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.purge_topic("shop/orders")
    """
    request = topics.PurgeTopic(*split_topic(topic))
    return make_call(topics.PURGE_TOPIC, request, join_topic(topic))


def create_partitions(topic: TopicName, count: int) -> Call[None]:
    """Add partitions to a topic.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.create_partitions("shop/orders", 2)
    """
    request = topics.CreatePartitions(*split_topic(topic), count)
    return make_call(topics.CREATE_PARTITIONS, request, join_topic(topic))


def delete_partitions(topic: TopicName, count: int) -> Call[None]:
    """Remove partitions of a topic with their messages, the highest ids first.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders", partitions=3)
    >>> client.delete_partitions("shop/orders", 1)
    """
    request = topics.DeletePartitions(*split_topic(topic), count)
    return make_call(topics.DELETE_PARTITIONS, request, join_topic(topic))


def delete_segments(topic: TopicName, partition: int, count: int) -> Call[None]:
    """Remove the oldest sealed segments of a partition that every consumer has read.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.delete_segments("shop/orders", 0, 1)
    """
    request = topics.DeleteSegments(*split_topic(topic), partition, count)
    return make_call(topics.DELETE_SEGMENTS, request, join_topic(topic))


def flush_partition(topic: TopicName, partition: int, *, sync: bool = False) -> Call[None]:
    """Ask the server to write a partition to disk; it may refuse, as this is never necessary."""
    request = topics.FlushUnsavedBuffer(*split_topic(topic), partition, sync)
    return make_call(topics.FLUSH_UNSAVED_BUFFER, request, join_topic(topic))


def _make_options(options: Mapping[str, FieldValue] | None) -> Options:
    """Return an options block; numbers get the option's type, text is sent unchanged."""
    made: dict[str, FieldValue | Field] = {}
    for key, value in (options or {}).items():
        known = TOPIC_OPTIONS.get(key)
        kind = None if known is None or isinstance(value, str) else known.kind
        made[key] = make_field(value, kind)
    return make_options(made)
