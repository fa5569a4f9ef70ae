"""The frame that ends a session instead of a reply, and why."""

from enum import IntEnum

from headrace.wire.errors import Code, RemoteError
from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind
from headrace.wire.versions import (
    PROTOCOL_PACKED,
    PROTOCOL_PACKED_MIN,
    unpack_version,
)


class EvictionReason(IntEnum):
    """Why a session ends."""

    RESERVED = 0
    NO_SESSION = 1
    CLIENT_RELEASE_TOO_LOW = 2
    CLIENT_RELEASE_TOO_HIGH = 3
    INVALID_REQUEST_OPERATION = 4
    INVALID_REQUEST_BODY = 5
    INVALID_REQUEST_BODY_SIZE = 6
    SESSION_TOO_LOW = 7
    SESSION_RELEASE_MISMATCH = 8
    INVALID_CREDENTIALS = 9
    INVALID_TOKEN = 10
    USER_INACTIVE = 11
    SESSION_ERROR = 12
    STALE_CLIENT = 13
    INCOMPATIBLE_PROTOCOL = 14
    MALFORMED_LOGIN = 15


_REASONS = {int(reason): reason for reason in EvictionReason}

# The code of a reason on a client; for all others, unknown ones included, it logs in again.
_CODES = {
    EvictionReason.RESERVED: Code.INVALID_COMMAND,
    EvictionReason.CLIENT_RELEASE_TOO_LOW: Code.INVALID_COMMAND,
    EvictionReason.CLIENT_RELEASE_TOO_HIGH: Code.INVALID_COMMAND,
    EvictionReason.INVALID_REQUEST_OPERATION: Code.INVALID_COMMAND,
    EvictionReason.INVALID_REQUEST_BODY: Code.INVALID_COMMAND,
    EvictionReason.INVALID_REQUEST_BODY_SIZE: Code.INVALID_COMMAND,
    EvictionReason.INVALID_CREDENTIALS: Code.INVALID_CREDENTIALS,
    EvictionReason.INVALID_TOKEN: Code.INVALID_PERSONAL_ACCESS_TOKEN,
    EvictionReason.STALE_CLIENT: Code.STALE_CLIENT,
    EvictionReason.INCOMPATIBLE_PROTOCOL: Code.INCOMPATIBLE_PROTOCOL_VERSION,
    EvictionReason.MALFORMED_LOGIN: Code.INVALID_FORMAT,
}


class EvictedError(Exception):
    """A session ends: a server sends an eviction, a client received one."""

    def __init__(
        self,
        reason: EvictionReason | None,
        *,
        client: int,
        served: tuple[int, int] | None = None,
    ) -> None:
        self.reason = reason
        self.client = client
        self.served = served
        self.code = Code.UNAUTHENTICATED if reason is None else _code_of(reason)
        text = "an unknown reason" if reason is None else reason.name
        if served is not None:
            low, high = (unpack_version(packed) for packed in served)
            text += f": the server speaks {low} to {high}"
        super().__init__(f"session evicted for {text}")


def _code_of(reason: EvictionReason) -> Code:
    return _CODES.get(reason, Code.UNAUTHENTICATED)


class EvictionHeader(Header, frozen=True):
    """A header only; the versions are set for an incompatible protocol alone."""

    client: int = 0
    server_protocol_version: int = 0
    server_protocol_version_min: int = 0
    reason: int = 0


EVICTION = Layout(
    FrameKind.EVICTION,
    EvictionHeader,
    reserved_zero=True,
    client=(128, 16),
    server_protocol_version=(144, 4),
    server_protocol_version_min=(148, 4),
    reason=(255, 1),
)


def encode_eviction(reason: EvictionReason, client: int) -> bytes:
    """Return the frame that ends a client's session."""
    assert client != 0
    is_version = reason == EvictionReason.INCOMPATIBLE_PROTOCOL
    return EVICTION.encode(
        EvictionHeader(
            client=client,
            reason=reason,
            server_protocol_version=PROTOCOL_PACKED if is_version else 0,
            server_protocol_version_min=PROTOCOL_PACKED_MIN if is_version else 0,
        )
    )


def decode_eviction(frame: bytes | bytearray | memoryview) -> EvictedError:
    """Return the error of an eviction frame; an unknown reason asks for a new login.

    Raises:
        RemoteError: The frame breaks the rules of evictions.
    """
    header = EVICTION.decode(frame)
    if header.client == 0 or header.size != len(frame):
        raise RemoteError("eviction without a client id, or with a body")
    reason = _REASONS.get(header.reason)
    if reason != EvictionReason.INCOMPATIBLE_PROTOCOL:
        return EvictedError(reason, client=header.client)
    served = (header.server_protocol_version_min, header.server_protocol_version)
    if not 1 <= served[0] <= served[1]:
        raise RemoteError(f"eviction names the versions {served[0]} to {served[1]}")
    return EvictedError(reason, client=header.client, served=served)
