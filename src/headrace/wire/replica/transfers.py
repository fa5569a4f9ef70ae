"""Headers of a state transfer: it replaces the part of the log that peers no longer hold."""

from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind


class RequestStateTransferHeader(Header, frozen=True):
    """Asks for a description of the state."""

    nonce: int = 0
    group: int = 0


class StateTransferTargetHeader(Header, frozen=True):
    """Offers the state; its body is the manifest, if the state is available."""

    nonce: int = 0
    commit_op: int = 0
    group: int = 0
    available: int = 0
    unavailable_transient: int = 0
    commit_max: int = 0


class RequestStateChunkHeader(Header, frozen=True):
    """Pulls one piece of one artifact."""

    nonce: int = 0
    offset: int = 0
    group: int = 0
    length: int = 0
    artifact: int = 0


class StateChunkHeader(Header, frozen=True):
    """One piece of one artifact; its body is the bytes."""

    nonce: int = 0
    offset: int = 0
    group: int = 0
    artifact: int = 0


REQUEST_STATE_TRANSFER = Layout(
    FrameKind.REQUEST_STATE_TRANSFER,
    RequestStateTransferHeader,
    nonce=(128, 16),
    group=(144, 8),
)
STATE_TRANSFER_TARGET = Layout(
    FrameKind.STATE_TRANSFER_TARGET,
    StateTransferTargetHeader,
    nonce=(128, 16),
    commit_op=(144, 8),
    group=(152, 8),
    available=(160, 1),
    unavailable_transient=(161, 1),
    commit_max=(168, 8),
)
REQUEST_STATE_CHUNK = Layout(
    FrameKind.REQUEST_STATE_CHUNK,
    RequestStateChunkHeader,
    nonce=(128, 16),
    offset=(144, 8),
    group=(152, 8),
    length=(160, 4),
    artifact=(164, 4),
)
STATE_CHUNK = Layout(
    FrameKind.STATE_CHUNK,
    StateChunkHeader,
    nonce=(128, 16),
    offset=(144, 8),
    group=(152, 8),
    artifact=(160, 4),
)
