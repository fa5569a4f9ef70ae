"""Which ops may use the part of a journal that is kept for those that make room (O2.10).

On a full disk no checkpoint can be written, so the journal stays full. What an operator or
retention does then to make room must still find a place in it, and the operator must get in.

Flow: replicate.
"""

from headrace.base.limits import RESERVE_PARTS, RESERVE_PARTS_OF_LOGINS
from headrace.metadata.state import State
from headrace.metadata.topic_changes import keeps_less
from headrace.ports.network import Buffer
from headrace.wire.commands.topics import UPDATE_TOPIC
from headrace.wire.errors import RefusedError
from headrace.wire.numbers import Operation

MAKING_ROOM = (
    # Metadata: messages, partitions and what is remembered of clients go, or may expire.
    Operation.PURGE_STREAM,
    Operation.PURGE_TOPIC,
    Operation.DELETE_STREAM,
    Operation.DELETE_TOPIC,
    Operation.DELETE_PARTITIONS,
    Operation.DELETE_CONSUMER_GROUP,
    Operation.LOGOUT,
    Operation.DISCONNECT,
    Operation.ACCEPT_TIME,
    # Partitions: segments go, or stored offsets that hold them back.
    Operation.DELETE_SEGMENTS,
    Operation.PURGE_PARTITION,
    Operation.RETAIN,
    Operation.DELETE_CONSUMER_OFFSET,
    Operation.FORGET_GROUP_OFFSETS,
)
assert Operation.SEND_MESSAGES not in MAKING_ROOM, "what fills a disk has no part of it"
assert Operation.REGISTER not in MAKING_ROOM, "logins have a smaller part"


def reserve_parts(operation: int, _body: Buffer) -> int:
    """Return how many parts of the reserve an op may use."""
    if operation in MAKING_ROOM:
        return RESERVE_PARTS
    return RESERVE_PARTS_OF_LOGINS if operation == Operation.REGISTER else 0


def metadata_reserve_parts(state: State, operation: int, body: Buffer) -> int:
    """Return how many parts of the reserve an op may use, by what the metadata says now.

    A topic that is changed to keep its messages for a shorter time, or fewer of them, makes room.
    """
    if operation != Operation.UPDATE_TOPIC:
        return reserve_parts(operation, body)
    try:
        is_less = keeps_less(state, UPDATE_TOPIC.decode_request(memoryview(body)))
    except RefusedError:
        return 0
    return RESERVE_PARTS if is_less else 0
