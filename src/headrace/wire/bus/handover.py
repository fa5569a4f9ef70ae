"""Headers about connections and links that another shard holds."""

from enum import IntEnum

from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind


class Order(IntEnum):
    """What shard 0 has a home do with one of its connections."""

    SEND = 1
    TRUST = 2
    DISTRUST = 3
    CLOSE = 4
    END = 5  # distrust it: what its session rested on no longer holds


class ConnectionSetupHeader(Header, frozen=True):
    """An accepted client for its home; the descriptor travels with it, the body is its address."""

    connection: int = 0
    transport: int = 0


class SlotHeader(Header, frozen=True):
    """An accepted replica, or the end of its handshake: a slot on shard 0."""

    slot: int = 0


class ForwardReplicaSendHeader(Header, frozen=True):
    """The body is a frame for a replica; the receiver holds its link."""

    to_replica: int = 0


class ConnectionOrderHeader(Header, frozen=True):
    """An order to the home of a connection; numbered per home, from 1 without a gap."""

    connection: int = 0
    number: int = 0
    order: int = 0
    client: int = 0  # who is trusted
    session: int = 0
    user_id: int = 0


class ConnectionGoneHeader(Header, frozen=True):
    """A connection has closed, or lost its session; numbered per home, from 1 without a gap."""

    connection: int = 0
    number: int = 0
    is_open: int = 0  # whether it may log in again


CONNECTION_SETUP = Layout(
    FrameKind.CONNECTION_SETUP,
    ConnectionSetupHeader,
    reserved_zero=True,
    connection=(128, 16),
    transport=(144, 1),
)
REPLICA_INBOUND_SETUP = Layout(
    FrameKind.REPLICA_INBOUND_SETUP, SlotHeader, reserved_zero=True, slot=(128, 4)
)
REPLICA_INBOUND_DONE = Layout(
    FrameKind.REPLICA_INBOUND_DONE, SlotHeader, reserved_zero=True, slot=(128, 4)
)
FORWARD_REPLICA_SEND = Layout(
    FrameKind.FORWARD_REPLICA_SEND,
    ForwardReplicaSendHeader,
    reserved_zero=True,
    to_replica=(128, 1),
)
CONNECTION_ORDER = Layout(
    FrameKind.CONNECTION_ORDER,
    ConnectionOrderHeader,
    reserved_zero=True,
    connection=(128, 16),
    number=(144, 8),
    order=(152, 1),
    user_id=(156, 4),
    client=(160, 16),
    session=(176, 8),
)
CONNECTION_GONE = Layout(
    FrameKind.CONNECTION_GONE,
    ConnectionGoneHeader,
    reserved_zero=True,
    connection=(128, 16),
    number=(144, 8),
    is_open=(152, 1),
)
