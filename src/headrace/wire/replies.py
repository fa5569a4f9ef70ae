"""Replies: their header, the result section, and the three forms of an answer.

An answer is an eviction, or a status in the reply's header, or, for operations that are ordered by
consensus, a result section that leads the body.

Flow: reply.
"""

from headrace.base.limits import HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.evictions import decode_eviction
from headrace.wire.layout import KIND_OFFSET, Header, Layout
from headrace.wire.numbers import FrameKind, Operation, find_operation, is_result_framed
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader

RESULT_OK = bytes(4)
_REJECTION_CODE = slice(8, 12)  # of the first entry


class ReplyHeader(Header, frozen=True):
    """Fields 128 to 256 of a reply; most echo the request."""

    request_checksum: int = 0
    context: int = 0
    client: int = 0
    op: int = 0
    commit: int = 0
    timestamp: int = 0
    request: int = 0
    operation: int = 0
    status: int = 0


REPLY = Layout(
    FrameKind.REPLY,
    ReplyHeader,
    request_checksum=(128, 16),
    context=(144, 16),
    client=(160, 16),
    op=(176, 8),
    commit=(184, 8),
    timestamp=(192, 8),
    request=(200, 8),
    operation=(208, 1),
    status=(216, 4),
)


def encode_reply(
    header: RequestHeader,
    body: Data,
    *,
    operation: Operation | None = None,
    op: int = 0,
    commit: int = 0,
    status: int = 0,
) -> bytes:
    """Return the reply to a request: header and body.

    `operation` is the committed one if it differs from the requested one. Only status 0 has a
    body.
    """
    assert status == 0 or not body
    reply = ReplyHeader(
        cluster=header.cluster,
        size=HEADER_BYTES + len(body),
        view=header.view,
        replica=header.replica,
        request_checksum=header.request_checksum,
        client=header.client,
        op=op,
        commit=commit,
        timestamp=header.timestamp,
        request=header.request,
        operation=header.operation if operation is None else operation,
        status=status,
    )
    return REPLY.encode(reply) + body


_COMMITTED = REPLY.struct(
    "cluster",
    "size",
    "kind",
    "request_checksum",
    "client",
    "op",
    "commit",
    "timestamp",
    "request",
    "operation",
    end=HEADER_BYTES,
    are_halved=True,
)
_KIND = int(FrameKind.REPLY)
_LOW = (1 << 64) - 1


def encode_committed(prepare: PrepareHeader, payload: bytes) -> bytes:
    """Return the reply to a request whose op is committed: the same on every replica (VS-28).

    The same bytes as `REPLY` writes, in one call: there is one for every request.
    """
    return (
        _COMMITTED.pack(
            prepare.cluster & _LOW,
            prepare.cluster >> 64,
            HEADER_BYTES + len(payload),
            _KIND,
            prepare.request_checksum & _LOW,
            prepare.request_checksum >> 64,
            prepare.client & _LOW,
            prepare.client >> 64,
            prepare.op,
            prepare.op,
            prepare.timestamp,
            prepare.request,
            prepare.operation,
        )
        + payload
    )


_COMMIT = REPLY.span("commit")


def with_commit(frame: bytes, commit: int) -> bytes:
    """Return a reply with another commit position in its header."""
    told = bytearray(frame)
    told[_COMMIT] = commit.to_bytes(8, "little")
    return bytes(told)


def encode_rejection(code: Code) -> bytes:
    """Return the body of a refusal of a result-framed operation."""
    return (1).to_bytes(4, "little") + bytes(4) + int(code).to_bytes(4, "little")


_ECHO = REPLY.struct("client", "request")


def read_echo(frame: Data) -> tuple[int, int]:
    """Return the client and the number of the request that a reply answers: part of its header.

    The same values as `REPLY` reads, in one call: a client asks for them with every answer.
    """
    client, request = _ECHO.unpack_from(frame)
    return int.from_bytes(client, "little"), request


def read_answer(frame: Data) -> memoryview:
    """Return the payload of the answer to a request.

    Raises:
        EvictedError: The session ended.
        RefusedError: The request was refused, by status or by result.
        RemoteError: The frame is no answer.
        DecodeError: The result section is damaged, or missing where it must be.
    """
    if len(frame) < HEADER_BYTES:
        raise RemoteError(f"answer of {len(frame)} bytes")
    if frame[KIND_OFFSET] == FrameKind.EVICTION:
        raise decode_eviction(frame)
    header = REPLY.decode(frame)
    if header.size != len(frame):
        raise RemoteError(f"reply of {len(frame)} bytes declares {header.size}")
    if header.status:
        raise _refusal(header.status)
    operation = find_operation(header.operation)
    if operation is None:
        raise RemoteError(f"reply to operation {header.operation}")
    body = memoryview(frame)[HEADER_BYTES:]
    return read_result(body) if is_result_framed(operation) else body


def read_result(body: memoryview) -> memoryview:
    """Return the bytes after a result section of success; otherwise raise its first error."""
    if len(body) < len(RESULT_OK):
        raise DecodeError(f"result section of {len(body)} bytes")
    if body[:4] == RESULT_OK:
        return body[4:]
    if len(body) < _REJECTION_CODE.stop:
        raise DecodeError(f"rejection of {len(body)} bytes")
    raise _refusal(read_rejection(body))


def read_rejection(body: Data) -> int:
    """Return the number of the error in the result section of a refusal."""
    return int.from_bytes(body[_REJECTION_CODE], "little")


def _refusal(number: int) -> RefusedError:
    code = Code.read(number)
    return RefusedError(code) if code == number else RefusedError(code, number=number)
