"""Checksums of headers between replicas.

A prepare's checksum is its identity: it excludes the view, and a repair counts as the prepare that
it repeats, so that a prepare sent again is still the same one. Zero is never a valid checksum.
"""

from headrace.base.checksum import xxh3_64
from headrace.base.ids import Checksum
from headrace.base.limits import HEADER_BYTES
from headrace.kernel.layout import BATCH_CHECKSUM_AT
from headrace.wire.batches import verify_batch
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError
from headrace.wire.layout import CHECKSUM, KIND_OFFSET, VIEW
from headrace.wire.numbers import FrameKind, Operation

_CHECKSUM_BYTES = CHECKSUM.stop
_VIEW_ZERO = bytes(VIEW.stop - VIEW.start)
_SEND = int(Operation.SEND_MESSAGES)
_IDENTITY_KINDS = (FrameKind.PREPARE, FrameKind.REPAIR_PREPARE)


def seal(header: bytes) -> bytes:
    """Return the header with its checksum set."""
    assert len(header) == HEADER_BYTES
    return _checksum_of(header).to_bytes(_CHECKSUM_BYTES, "little") + header[_CHECKSUM_BYTES:]


def is_sealed(header: Data) -> bool:
    """Whether the header is as its sender sealed it; an unsealed one is not."""
    stored = int.from_bytes(header[CHECKSUM], "little")
    return stored != 0 and stored == _checksum_of(header)


def body_checksum(operation: int, body: Data) -> Checksum:
    """Return the checksum of a body for the header of its prepare.

    A batch is covered by its own checksum, which the kernel verifies; so a large body is not
    hashed a second time (O3.1).
    """
    if operation == _SEND:
        return Checksum(int.from_bytes(body[BATCH_CHECKSUM_AT : BATCH_CHECKSUM_AT + 8], "little"))
    return xxh3_64(body)


def is_body(operation: Operation, checksum: int, body: Data) -> bool:
    """Whether a body is the one that a prepare's header was sealed with.

    A batch from a disk or a peer is walked by the kernel: its own checksum covers its messages only
    through theirs.
    """
    if checksum != body_checksum(operation, body):
        return False
    if operation != Operation.SEND_MESSAGES:
        return True
    try:
        verify_batch(body)
    except CorruptError:
        return False
    return True


def _checksum_of(header: Data) -> Checksum:
    if header[KIND_OFFSET] not in _IDENTITY_KINDS:
        return xxh3_64(header[_CHECKSUM_BYTES:HEADER_BYTES])
    identity = bytearray(header[:HEADER_BYTES])
    identity[CHECKSUM] = bytes(_CHECKSUM_BYTES)
    identity[VIEW] = _VIEW_ZERO
    identity[KIND_OFFSET] = FrameKind.PREPARE
    return xxh3_64(identity)
