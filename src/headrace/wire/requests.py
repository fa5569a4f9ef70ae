"""The header of a client's request, and the checks before its body is read.

Flow:       decode.
Invariants: what passes `check_request` has a client, an operation a client may send, and a session
            where one is needed; every refusal is one that can be answered.
"""

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.errors import Code, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import (
    FrameKind,
    Operation,
    find_operation,
    is_internal,
    is_stamped,
    is_unavailable,
)


class RequestHeader(Header, frozen=True):
    """Fields 128 to 256 of a request; the server sets `user_id` and all from `is_anew` on."""

    client: int = 0
    request_checksum: int = 0
    timestamp: int = 0
    request: int = 0
    operation: int = 0
    session: int = 0
    user_id: int = 0
    code: int = 0
    is_anew: int = 0  # new, though its number may be used (O4.2)
    ticket: int = 0  # identifies the waiting connection; 0 if the number alone does
    group: int = 0


REQUEST = Layout(
    FrameKind.REQUEST,
    RequestHeader,
    client=(128, 16),
    request_checksum=(144, 16),
    timestamp=(160, 8),
    request=(168, 8),
    operation=(176, 1),
    session=(184, 8),
    user_id=(192, 4),
    code=(196, 4),
    is_anew=(200, 1),
    ticket=(208, 8),
    group=(248, 8),
)


def encode_request(  # noqa: PLR0913 - the fields of a header
    operation: Operation,
    body: Data,
    *,
    client: int,
    session: int,
    request: int,
    code: int,
    batch_bytes: int = 0,
) -> bytes:
    """Return the header of a client's request; the frame is that header and the body.

    A send's batch may be apart from the rest of the body: then `batch_bytes` is its size.

    The command code travels only with reads and local actions, and partition operations
    carry no checksum of their body: that is what the released SDK sends.
    """
    return REQUEST.encode(
        RequestHeader(
            size=HEADER_BYTES + len(body) + batch_bytes,
            client=client,
            request_checksum=xxh3_64(body) if is_stamped(operation) else 0,
            request=request,
            operation=operation,
            session=session,
            code=code if operation == Operation.NON_REPLICATED else 0,
        )
    )


def without_marks(header: RequestHeader) -> RequestHeader:
    """Return a header as a client may send it: the fields that only a server sets are cleared."""
    if header.is_anew or header.ticket:
        return msgspec.structs.replace(header, is_anew=0, ticket=0)
    return header


def check_request(header: RequestHeader) -> Operation:
    """Return the operation of a request whose header is valid.

    Raises:
        RemoteError: No answer could reach this client.
        EvictedError: The client may not send this operation, or has no session for it.
        RefusedError: The operation is one of ours that this server does not have, or unnumbered.
    """
    if header.client == 0:
        raise RemoteError("request without a client id")
    if is_unavailable(header.operation):
        raise RefusedError(Code.FEATURE_UNAVAILABLE, operation=header.operation)
    operation = find_operation(header.operation)
    if operation is None or operation == Operation.RESERVED or is_internal(operation):
        raise EvictedError(EvictionReason.INVALID_REQUEST_OPERATION, client=header.client)
    if operation == Operation.REGISTER:
        if header.session or header.request:
            raise EvictedError(EvictionReason.MALFORMED_LOGIN, client=header.client)
    elif operation != Operation.NON_REPLICATED:
        if header.session == 0:
            raise EvictedError(EvictionReason.NO_SESSION, client=header.client)
        if header.request == 0:
            raise RefusedError(Code.INVALID_COMMAND, request=0)
    return operation


def check_body(header: RequestHeader, body: Data) -> None:
    """Compare a request's body with the checksum it carries; zero means it carries none.

    Raises:
        RefusedError: They differ.
    """
    if header.request_checksum and header.request_checksum != xxh3_64(body):
        raise RefusedError(Code.INVALID_FORMAT, request_checksum=header.request_checksum)
