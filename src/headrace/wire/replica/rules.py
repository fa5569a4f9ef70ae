"""What must hold of a header between replicas, whatever its body is."""

from collections.abc import Iterator

from headrace.base.ids import METADATA_GROUP, is_group
from headrace.base.limits import (
    HEADER_BYTES,
    OP_MAX,
    PIPELINE_OPS_MAX,
    REPLICAS_MAX,
    STAMP_MAX,
    VIEW_MAX,
)
from headrace.wire.errors import RemoteError
from headrace.wire.numbers import FrameKind, LogoutOutcome, RegisterOutcome, find_operation
from headrace.wire.replica.forwards import (
    ForwardLogoutHeader,
    ForwardLogoutResultHeader,
    ForwardRegisterHeader,
    ForwardRegisterResultHeader,
)
from headrace.wire.replica.kinds import WITH_BODY, ReplicaHeader
from headrace.wire.replica.prepares import (
    PrepareHeader,
    PrepareOkHeader,
    RangeEvictedHeader,
    RequestPreparesHeader,
)
from headrace.wire.replica.transfers import RequestStateChunkHeader, StateTransferTargetHeader
from headrace.wire.replica.views import (
    DoViewChangeHeader,
    RecoveryReportHeader,
    RequestStartViewHeader,
    StartViewHeader,
)


def check(kind: FrameKind, rules: Iterator[tuple[str, bool]]) -> None:
    """Refuse a frame that breaks a rule.

    Raises:
        RemoteError: It breaks one; the message names the rule.
    """
    for rule, holds in rules:
        if not holds:
            raise RemoteError(f"{kind.name} against the rule: {rule}")


def header_rules(
    kind: FrameKind, header: ReplicaHeader, frame_bytes: int
) -> Iterator[tuple[str, bool]]:
    """Yield what must hold, in words, and whether it does."""
    yield "size is that of the frame", header.size == frame_bytes
    yield "no body", kind in WITH_BODY or frame_bytes == HEADER_BYTES
    yield from common_rules(header)
    match header:
        case PrepareHeader():
            yield from prepare_rules(header)
        case PrepareOkHeader():
            yield "op is in range", header.op <= OP_MAX
            yield "1 <= op, commit <= op", header.op >= 1 and header.commit <= header.op
        case DoViewChangeHeader():
            yield "op is in range", header.op <= OP_MAX
            yield "log_view <= view", header.log_view <= header.view
            yield "commit <= op", header.commit <= header.op
            bits = (1 << (frame_bytes - HEADER_BYTES) // HEADER_BYTES) - 1
            yield "bits within the suffix", (header.nack_bitset | header.present_bitset) <= bits
            yield "suspect is a flag", header.is_suspect <= 1
        case StartViewHeader():
            yield "op is in range", header.op <= OP_MAX
            yield "commit <= op", header.commit <= header.op
        case RecoveryReportHeader():
            yield "commit is in range", header.commit <= OP_MAX
        case RequestStartViewHeader():
            yield "wiped is a flag", header.is_wiped <= 1
        case StateTransferTargetHeader():
            yield "commit_op is in range", header.commit_op <= OP_MAX
            yield "flags are flags", header.available | header.unavailable_transient <= 1
        case RequestPreparesHeader():
            yield "to_op is in range", header.to_op <= OP_MAX
            yield "1 <= from_op <= to_op", 1 <= header.from_op <= header.to_op
        case _:
            yield from _request_rules(header)


def _request_rules(header: ReplicaHeader) -> Iterator[tuple[str, bool]]:
    match header:
        case RangeEvictedHeader():
            yield "op is in range", header.op <= OP_MAX
        case RequestStateChunkHeader():
            yield "length is not 0", header.length > 0
        case ForwardRegisterHeader() | ForwardLogoutHeader():
            yield "client is not 0", header.client != 0
        case ForwardRegisterResultHeader():
            yield "outcome is known", header.outcome <= max(RegisterOutcome)
        case ForwardLogoutResultHeader():
            yield "outcome is known", header.outcome <= max(LogoutOutcome)
            yield "commit is in range", header.commit <= OP_MAX
        case _:
            pass


def common_rules(header: ReplicaHeader) -> Iterator[tuple[str, bool]]:
    """Yield what must hold of every header."""
    yield "release is 0", header.release == 0
    yield "view is in range", header.view <= VIEW_MAX
    yield "replica is below the largest cluster", header.replica < REPLICAS_MAX
    yield "group exists", is_group(getattr(header, "group", METADATA_GROUP))


def prepare_rules(header: PrepareHeader) -> Iterator[tuple[str, bool]]:
    """Yield what must hold of a prepare, with or without its body."""
    yield "operation is known", find_operation(header.operation) is not None
    yield "1 <= op, commit < op", header.commit < header.op
    yield "op is in range", header.op <= OP_MAX
    yield "no more ops in flight than a vote names", header.op - header.commit <= PIPELINE_OPS_MAX
    yield "timestamp is in range", header.timestamp <= STAMP_MAX
    yield "size is that of a frame", header.size >= HEADER_BYTES
    yield "body has a checksum", header.checksum_body != 0
    is_of_partition = header.group != METADATA_GROUP
    yield "anew is a flag of partitions", header.is_anew <= is_of_partition
