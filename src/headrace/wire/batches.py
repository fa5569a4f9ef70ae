"""Batches: their header, and what the kernel's findings mean to the rest of the system.

The kernel alone walks messages. Here its findings become a refusal, if a client sent the batch, or
damage, if it was stored by us.

Flow: decode, store, reply.
"""

import struct
from collections.abc import Iterator

import msgspec

from headrace import kernel
from headrace.base.checksum import xxh3_64
from headrace.kernel import BATCH_HEADER_BYTES, PAYLOAD_BYTES_MAX, BatchError, Reason
from headrace.kernel.layout import BATCH_LENGTH_AT
from headrace.wire.codec import Data
from headrace.wire.errors import Code, CorruptError, DecodeError, RefusedError

BATCH_HEADER = struct.Struct("<6QI")  # the fields of `BatchHeader`
BATCH_SPAN = struct.Struct("<8xQ32xI")  # its first offset, and how many messages it has
_LENGTH = struct.Struct("<Q")
CHAIN = struct.Struct("<QQ")

# The code for the client; every other finding is one of structure.
_CODES = {
    Reason.FRAME_CHECKSUM: Code.INVALID_MESSAGE_CHECKSUM,
    Reason.BATCH_CHECKSUM: Code.INVALID_BATCH_CHECKSUM,
    Reason.USER_HEADERS_LENGTH: Code.TOO_BIG_USER_HEADERS,
}


class BatchHeader(msgspec.Struct, frozen=True):
    """The header of a batch; the first three fields are stamped by the server."""

    partition_id: int
    base_offset: int
    base_timestamp: int
    origin_timestamp: int
    length: int
    checksum: int
    messages_count: int


def decode_batch_header(data: Data) -> BatchHeader:
    """Read the header that a buffer begins with; nothing but its size is checked."""
    if len(data) < BATCH_HEADER_BYTES:
        raise DecodeError(f"batch header of {len(data)} bytes")
    return BatchHeader(*BATCH_HEADER.unpack_from(data))


def split_batches(data: Data) -> Iterator[memoryview]:
    """Yield the batches that lie back to back in a buffer, each whole, none verified.

    Raises:
        DecodeError: A batch is cut, or shorter than its own header.
    """
    view = memoryview(data)
    position = 0
    while position < len(view):
        left = len(view) - position
        if left < BATCH_HEADER_BYTES:
            raise DecodeError(f"batch header of {left} bytes at {position}")
        (length,) = _LENGTH.unpack_from(view, position + BATCH_LENGTH_AT)
        if not BATCH_HEADER_BYTES <= length <= left:
            raise DecodeError(f"batch of {length} bytes at {position}, {left} left")
        yield view[position : position + length]
        position += length


def admit_batch(
    batch: Data,
    messages_count: int,
    *,
    partition_id: int,
    base_offset: int,
    base_timestamp: int,
) -> int:
    """Check a producer's batch and stamp it in place; return its new checksum.

    The buffer must be writable.

    Raises:
        RefusedError: The batch is refused as a whole and unchanged.
    """
    try:
        return kernel.admit(batch, messages_count, partition_id, base_offset, base_timestamp)
    except BatchError as error:
        raise refusal_of(error) from None


def verify_batch(batch: Data) -> int:
    """Check a batch that was stamped before; return its checksum.

    Raises:
        CorruptError: It is not what was stamped.
    """
    try:
        return kernel.verify(batch)
    except BatchError as error:
        raise CorruptError(str(error)) from None


def chain_batch(chain: int, batch_checksum: int) -> int:
    """Return the checksum of a run of batches that is longer by one; that of an empty run is 0."""
    return xxh3_64(CHAIN.pack(chain, batch_checksum))


def refusal_of(error: BatchError) -> RefusedError:
    """Return the refusal for a client whose batch the kernel refuses."""
    code = _CODES.get(error.reason, Code.INVALID_COMMAND)
    if error.reason == Reason.PAYLOAD_LENGTH:
        code = (
            Code.TOO_BIG_MESSAGE_PAYLOAD
            if error.found > PAYLOAD_BYTES_MAX
            else Code.INVALID_MESSAGE_PAYLOAD_LENGTH
        )
    return RefusedError(code, what=str(error))
