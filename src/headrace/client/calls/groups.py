"""Consumer groups and the offsets of consumers."""

from headrace.client.calls.names import TopicName, join_topic, make_consumer, split_topic
from headrace.client.session.call import Call, make_call, make_get
from headrace.wire.commands import groups, messages
from headrace.wire.commands.groups import Assignment, Group, GroupDetails
from headrace.wire.commands.messages import StoredOffset
from headrace.wire.errors import Code
from headrace.wire.identifiers import Identifier


def create_group(topic: TopicName, name: str) -> Call[GroupDetails]:
    """Add a consumer group to a topic.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.create_group("shop/orders", "billing").group.name
    'billing'
    """
    request = groups.CreateGroup(*split_topic(topic), name)
    return make_call(groups.CREATE_GROUP, request, name)


def get_group(topic: TopicName, group: Identifier) -> Call[GroupDetails]:
    """Return a consumer group and its members; `NotFound` if it does not exist.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.create_group("shop/orders", "billing")
    >>> client.get_group("shop/orders", "billing").members
    ()
    """
    request = groups.GetGroup(*split_topic(topic), group)
    return make_get(groups.GET_GROUP, request, group, Code.CONSUMER_GROUP_ID_NOT_FOUND)


def get_groups(topic: TopicName) -> Call[tuple[Group, ...]]:
    """Return the consumer groups of a topic.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.get_groups("shop/orders")
    ()
    """
    return make_call(groups.GET_GROUPS, groups.GetGroups(*split_topic(topic)), join_topic(topic))


def delete_group(topic: TopicName, group: Identifier) -> Call[None]:
    """Remove a consumer group and its stored offsets.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.create_group("shop/orders", "billing")
    >>> client.delete_group("shop/orders", "billing")
    """
    return make_call(groups.DELETE_GROUP, groups.DeleteGroup(*split_topic(topic), group), group)


def join_group(topic: TopicName, group: Identifier) -> Call[None]:
    """Make this client a member of a group; consumers with a group do this themselves.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.create_group("shop/orders", "billing")
    >>> client.join_group("shop/orders", "billing")
    """
    return make_call(groups.JOIN_GROUP, groups.JoinGroup(*split_topic(topic), group), group)


def leave_group(topic: TopicName, group: Identifier) -> Call[None]:
    """End this client's membership of a group.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.create_group("shop/orders", "billing")
    >>> client.join_group("shop/orders", "billing")
    >>> client.leave_group("shop/orders", "billing")
    """
    return make_call(groups.LEAVE_GROUP, groups.LeaveGroup(*split_topic(topic), group), group)


def sync_group(topic: TopicName, group: Identifier) -> Call[Assignment | None]:
    """Return the partitions assigned to this member, or None if it is not a member.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders", partitions=2)
    >>> _ = client.create_group("shop/orders", "billing")
    >>> client.join_group("shop/orders", "billing")
    >>> client.sync_group("shop/orders", "billing").partitions
    (0, 1)
    """
    return make_call(groups.SYNC_GROUP, groups.SyncGroup(*split_topic(topic), group), group)


def get_offset(
    topic: TopicName,
    partition: int,
    *,
    consumer: Identifier | None = None,
    group: Identifier | None = None,
) -> Call[StoredOffset | None]:
    """Return the offset stored for a consumer or a group, or None if nothing is stored.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> client.get_offset("shop/orders", 0, consumer="report") is None
    True
    """
    who = make_consumer(consumer, group)
    request = messages.GetOffset(who, *split_topic(topic), partition)
    return make_call(messages.GET_OFFSET, request, who.id)


def store_offset(
    topic: TopicName,
    partition: int,
    offset: int,
    *,
    consumer: Identifier | None = None,
    group: Identifier | None = None,
) -> Call[None]:
    """Store the offset of the last message that a consumer or a group has processed.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.send("shop/orders", [b"one"])
    >>> client.store_offset("shop/orders", 0, 0, consumer="report")
    """
    who = make_consumer(consumer, group)
    stream, name = split_topic(topic)
    request = messages.StoreOffset(
        consumer=who, stream=stream, topic=name, partition_id=partition, offset=offset
    )
    return make_call(messages.STORE_OFFSET, request, who.id)


def delete_offset(
    topic: TopicName,
    partition: int,
    *,
    consumer: Identifier | None = None,
    group: Identifier | None = None,
) -> Call[None]:
    """Delete the offset stored for a consumer or a group; `NotFound` if there is none.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.send("shop/orders", [b"one"])
    >>> client.store_offset("shop/orders", 0, 0, consumer="report")
    >>> client.delete_offset("shop/orders", 0, consumer="report")
    """
    who = make_consumer(consumer, group)
    stream, name = split_topic(topic)
    request = messages.DeleteOffset(consumer=who, stream=stream, topic=name, partition_id=partition)
    return make_call(messages.DELETE_OFFSET, request, who.id)
