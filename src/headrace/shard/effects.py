"""What a whole shard takes and gives."""

from typing import TypeAlias

from headrace.ports.audit import Audit
from headrace.ports.bus import BusEffect, BusEvent
from headrace.ports.credentials import CredentialEffect, CredentialEvent
from headrace.ports.disk import FromStore, OnStore
from headrace.ports.host import HostEffect, HostEvent
from headrace.ports.network import (
    CloseConnection,
    ConnectionLeft,
    ConnectionTrusted,
    NetworkEvent,
    ReadConnections,
    SendFrame,
    SendToConnection,
)
from headrace.ports.segments import SegmentEffect, SegmentEvent

ShardEvent: TypeAlias = (
    NetworkEvent | FromStore | SegmentEvent | CredentialEvent | HostEvent | BusEvent
)
ShardEffect: TypeAlias = (
    OnStore
    | SegmentEffect
    | CredentialEffect
    | HostEffect
    | Audit
    | SendFrame
    | SendToConnection
    | ConnectionTrusted
    | CloseConnection
    | ConnectionLeft
    | ReadConnections
    | BusEffect
)
