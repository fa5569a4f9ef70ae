"""The two headers that are written in one call are what their layouts write."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from headrace.base.limits import HEADER_BYTES
from headrace.wire.replica.prepares import PREPARE, PrepareHeader, seal_prepare
from headrace.wire.replica.seals import is_sealed, seal
from headrace.wire.replies import REPLY, ReplyHeader, encode_committed

u8, u32 = st.integers(0, 2**8 - 1), st.integers(0, 2**32 - 1)
u64, u128 = st.integers(0, 2**64 - 1), st.integers(0, 2**128 - 1)
prepares = st.builds(
    PrepareHeader,
    checksum_body=u128,
    cluster=u128,
    size=u32,
    view=u32,
    replica=u8,
    life=u64,
    origin=u64,
    client=u128,
    parent=u128,
    request_checksum=u128,
    op=u64,
    commit=u64,
    timestamp=u64,
    request=u64,
    operation=u8,
    group=u64,
    user_id=u32,
)


@given(prepares)
def test_a_prepare(header: PrepareHeader) -> None:
    sealed, data = seal_prepare(*astuple(header)[1:])
    assert data == seal(PREPARE.encode(header))
    assert PREPARE.decode(data) == sealed
    assert is_sealed(data)


@given(prepares, st.binary(max_size=40))
def test_a_reply(header: PrepareHeader, payload: bytes) -> None:
    reply = ReplyHeader(
        cluster=header.cluster,
        size=HEADER_BYTES + len(payload),
        request_checksum=header.request_checksum,
        client=header.client,
        op=header.op,
        commit=header.op,
        timestamp=header.timestamp,
        request=header.request,
        operation=header.operation,
    )
    assert encode_committed(header, payload) == REPLY.encode(reply) + payload
