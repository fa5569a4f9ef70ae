"""What a partition takes from its peers: ops of its own, and batches that follow what is here.

Flow: replicate, apply.
"""

from typing import Any

from headrace.partitions.log import PartitionLog
from headrace.ports.network import Buffer
from headrace.wire.batches import BatchHeader, decode_batch_header
from headrace.wire.codec import Codec, decode_exactly
from headrace.wire.commands.internal import (
    FORGET_GROUP_OFFSETS,
    LOST_RANGE,
    OFFSET_KEY,
    OFFSET_MARK,
    PURGE_PARTITION,
    RETAIN,
    TRIM_UP_TO,
)
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader

# The bodies of all ops of a partition but SendMessages, whose body is a batch.
BODIES: dict[int, Codec[Any]] = {  # Each has a type of its own.
    Operation.STORE_CONSUMER_OFFSET: OFFSET_MARK,
    Operation.DELETE_CONSUMER_OFFSET: OFFSET_KEY,
    Operation.AUTO_COMMIT_OFFSET: OFFSET_MARK,
    Operation.DELETE_SEGMENTS: TRIM_UP_TO,
    Operation.PURGE_PARTITION: PURGE_PARTITION,
    Operation.RETAIN: RETAIN,
    Operation.LOST_RANGE: LOST_RANGE,
    Operation.FORGET_GROUP_OFFSETS: FORGET_GROUP_OFFSETS,
}
assert Operation.SEND_MESSAGES not in BODIES, "a batch is verified by itself"


def is_op(partition: int, header: PrepareHeader, body: Buffer) -> bool:
    """Return whether an op is one of this partition's, with a body of its operation.

    A batch was verified when the frame was decoded.
    """
    if header.operation == Operation.SEND_MESSAGES:
        return decode_batch_header(body).partition_id == partition
    codec = BODIES.get(header.operation)
    if codec is None:
        return False
    try:
        decode_exactly(codec, body)
    except DecodeError:
        return False
    return True


def does_not_follow(log: PartitionLog, batch: BatchHeader) -> CorruptError:
    """Return the error for a batch that a primary ordered without knowing what it orders."""
    if batch.base_offset != log.next_offset:
        return CorruptError(f"batch of offset {batch.base_offset} where {log.next_offset} follows")
    assert batch.base_timestamp < log.newest_stamp, "otherwise it follows"
    return CorruptError(f"batch of time {batch.base_timestamp} after {log.newest_stamp}")
