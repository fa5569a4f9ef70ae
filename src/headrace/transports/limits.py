"""Limits for connections: their number, their memory and their time."""

import msgspec

from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES, KIB, MIB
from headrace.transports.memory import share_of_large

FRAME_BYTES_MAX_BEFORE_LOGIN = 64 * KIB


class TcpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one listener; seconds are counted in sweeps, one per second.

    A pause of the process therefore closes no connection: it is not the clients' fault.
    """

    frame_bytes_max: int = FRAME_BYTES_MAX
    frame_bytes_max_before_login: int = FRAME_BYTES_MAX_BEFORE_LOGIN
    connections_max: int = 10_000
    connections_per_address_max: int = 1_000
    connections_before_login_max: int = 500
    requests_in_flight_max: int = 256
    receive_bytes_max: int = 256 * MIB  # of all connections: unfinished frames and this turn's
    replies_bytes_max: int = 256 * MIB  # of all connections: replies that wait; the core's bound
    send_bytes_high: int = MIB  # above it a connection's requests are not read
    send_bytes_max: int = 2 * FRAME_BYTES_MAX  # above it a connection is closed
    first_frame_seconds: int = 10
    login_seconds: int = 30
    # A frame that has begun must end, or grow by this many bytes, in each such period.
    frame_seconds: int = 30
    frame_progress_bytes_min: int = 64 * KIB
    send_seconds: int = 30  # without any byte read by the peer
    close_seconds: int = 10  # for sent data to leave a connection that is being closed

    def __post_init__(self) -> None:
        assert HEADER_BYTES <= self.frame_bytes_max_before_login <= self.frame_bytes_max
        assert self.frame_bytes_max <= share_of_large(self.receive_bytes_max)
        assert 0 < self.send_bytes_high <= self.send_bytes_max
        assert 0 < self.connections_max < 1 << 32
        assert self.connections_per_address_max > 0
        assert self.connections_before_login_max > 0
        assert self.requests_in_flight_max > 0
