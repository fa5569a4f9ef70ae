"""Every kind of frame between replicas: its layout, and whether it has a body."""

from typing import Any, TypeAlias

from headrace.wire.layout import Layout
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.forwards import (
    FORWARD_LOGOUT,
    FORWARD_LOGOUT_RESULT,
    FORWARD_REGISTER,
    FORWARD_REGISTER_RESULT,
    ForwardLogoutHeader,
    ForwardLogoutResultHeader,
    ForwardRegisterHeader,
    ForwardRegisterResultHeader,
)
from headrace.wire.replica.heartbeats import (
    NODE_HEARTBEAT,
    NodeHeartbeatHeader,
)
from headrace.wire.replica.prepares import (
    PREPARE,
    PREPARE_OK,
    RANGE_EVICTED,
    REPAIR_PREPARE,
    REQUEST_PREPARES,
    PrepareHeader,
    PrepareOkHeader,
    RangeEvictedHeader,
    RequestPreparesHeader,
)
from headrace.wire.replica.transfers import (
    REQUEST_STATE_CHUNK,
    REQUEST_STATE_TRANSFER,
    STATE_CHUNK,
    STATE_TRANSFER_TARGET,
    RequestStateChunkHeader,
    RequestStateTransferHeader,
    StateChunkHeader,
    StateTransferTargetHeader,
)
from headrace.wire.replica.views import (
    DO_VIEW_CHANGE,
    RECOVERY_REPORT,
    REQUEST_START_VIEW,
    START_VIEW,
    START_VIEW_CHANGE,
    DoViewChangeHeader,
    RecoveryReportHeader,
    RequestStartViewHeader,
    StartViewChangeHeader,
    StartViewHeader,
)

ReplicaHeader: TypeAlias = (
    PrepareHeader
    | PrepareOkHeader
    | StartViewChangeHeader
    | DoViewChangeHeader
    | StartViewHeader
    | RequestStartViewHeader
    | RequestPreparesHeader
    | RangeEvictedHeader
    | RequestStateTransferHeader
    | StateTransferTargetHeader
    | RequestStateChunkHeader
    | StateChunkHeader
    | ForwardRegisterHeader
    | ForwardRegisterResultHeader
    | ForwardLogoutHeader
    | ForwardLogoutResultHeader
    | NodeHeartbeatHeader
    | RecoveryReportHeader
)

LAYOUTS: dict[int, Layout[Any]] = {  # Each kind has a header type of its own.
    layout.kind: layout
    for layout in (
        PREPARE,
        REPAIR_PREPARE,
        PREPARE_OK,
        START_VIEW_CHANGE,
        DO_VIEW_CHANGE,
        START_VIEW,
        REQUEST_START_VIEW,
        REQUEST_PREPARES,
        RANGE_EVICTED,
        REQUEST_STATE_TRANSFER,
        STATE_TRANSFER_TARGET,
        REQUEST_STATE_CHUNK,
        STATE_CHUNK,
        FORWARD_REGISTER,
        FORWARD_REGISTER_RESULT,
        FORWARD_LOGOUT,
        FORWARD_LOGOUT_RESULT,
        NODE_HEARTBEAT,
        RECOVERY_REPORT,
    )
}
WITH_BODY = (
    FrameKind.PREPARE,
    FrameKind.REPAIR_PREPARE,
    FrameKind.DO_VIEW_CHANGE,
    FrameKind.START_VIEW,
    FrameKind.STATE_TRANSFER_TARGET,
    FrameKind.STATE_CHUNK,
    FrameKind.NODE_HEARTBEAT,
)
