"""Who a consumer is: the number by which its offsets are kept, and what it may touch."""

from headrace.base.checksum import xxh32
from headrace.groups.roster import may_poll, owns
from headrace.metadata import resolve
from headrace.metadata.state import Topic
from headrace.wire.identifiers import Consumer, Identifier
from headrace.wire.numbers import ConsumerKind


def consumer_key(topic: Topic, consumer: Consumer) -> int:
    """Return the number under which offsets are stored: a group's id, a number, a name's hash.

    Raises:
        RefusedError: There is no such group.
    """
    if consumer.kind == ConsumerKind.GROUP:
        return resolve.group(topic, consumer.id).id
    return consumer.id if isinstance(consumer.id, int) else xxh32(consumer.id.encode())


def may_poll_partition(topic: Topic, group: Identifier, client: int, partition: int) -> bool:
    """Whether a client is served from a partition for its group (CG-14).

    A group that does not exist serves nobody: its members are told to sync, and sync tells them
    to join.
    """
    found = topic.groups.find(group)
    return found is not None and may_poll(found.roster, client=client, partition=partition)


def owns_partition(topic: Topic, group_id: int, client: int, partition: int) -> bool:
    """Whether a client may store offsets of a partition for its group.

    A group without members is anybody's who may poll: tools and Spark store there (O7.3).
    """
    roster = resolve.group(topic, group_id).roster
    return not roster.members or owns(roster, client=client, partition=partition)
