"""What the kernel's findings mean to a client and to the disk."""

from array import array

import pytest

from headrace import kernel
from headrace.kernel import BATCH_HEADER_BYTES, FRAME_HEADER_BYTES
from headrace.wire.batches import (
    admit_batch,
    decode_batch_header,
    split_batches,
    verify_batch,
)
from headrace.wire.errors import Code, CorruptError, DecodeError, RefusedError
from headrace.wire.fields import encode_user_headers, make_field

FIRST_FRAME = BATCH_HEADER_BYTES
PAYLOAD = FIRST_FRAME + FRAME_HEADER_BYTES
HEADERS = encode_user_headers([(make_field("k"), make_field("v"))])


def batch(payloads: list[bytes], headers: bytes = b"") -> bytearray:
    count = len(payloads)
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + len(payload))
    return bytearray(
        kernel.build(
            bytes(range(16)) * count,
            array("q", range(1000, 1000 + count)),
            b"".join(payloads),
            array("i", ends),
            headers * count if headers else None,
            array("i", range(0, (count + 1) * len(headers), len(headers))) if headers else None,
        )
    )


def admit(data: bytearray, messages_count: int) -> int:
    return admit_batch(data, messages_count, partition_id=3, base_offset=40, base_timestamp=99)


def refusal(data: bytearray, messages_count: int = 2) -> Code:
    before = bytes(data)
    with pytest.raises(RefusedError) as caught:
        admit(data, messages_count)
    assert data == before
    return caught.value.code


def test_an_admitted_batch_carries_its_stamps() -> None:
    data = batch([b"one", b"two"], HEADERS)
    checksum = admit(data, 2)
    header = decode_batch_header(data)
    assert (header.partition_id, header.base_offset, header.base_timestamp) == (3, 40, 99)
    assert (header.origin_timestamp, header.length, header.messages_count) == (1000, len(data), 2)
    assert header.checksum == checksum == verify_batch(data)


def test_what_a_client_is_told() -> None:
    """CL6: a batch is refused as a whole with a definite error, and nothing of it is changed."""
    good = batch([b"one", b"two"], HEADERS)
    assert refusal(bytearray(good), messages_count=3) == Code.INVALID_COMMAND
    assert refusal(bytearray(good[:-1])) == Code.INVALID_COMMAND
    damaged = bytearray(good)
    damaged[PAYLOAD] ^= 1
    assert refusal(damaged) == Code.INVALID_MESSAGE_CHECKSUM
    damaged = bytearray(good)
    damaged[24] ^= 1
    assert refusal(damaged) == Code.INVALID_BATCH_CHECKSUM


@pytest.mark.parametrize(
    ("position", "value", "code"),
    [
        (36, 0, Code.INVALID_MESSAGE_PAYLOAD_LENGTH),
        (36, 64_000_001, Code.TOO_BIG_MESSAGE_PAYLOAD),
        (32, 100_001, Code.TOO_BIG_USER_HEADERS),
    ],
)
def test_a_length_out_of_bounds(position: int, value: int, code: Code) -> None:
    data = batch([b"one", b"two"])
    data[FIRST_FRAME + position : FIRST_FRAME + position + 4] = value.to_bytes(4, "little")
    assert refusal(data) == code


@pytest.mark.parametrize("length", [1, 40, 100_000])
def test_headers_are_judged_by_their_length_alone(length: int) -> None:
    """Clients that encrypt messages encrypt their headers too."""
    opaque = b"\xff" * length
    data = batch([b"one", b"two"], opaque)
    assert admit(data, 2) == verify_batch(data)
    assert data.count(opaque) == 2


def test_damage_of_our_own_is_corruption() -> None:
    """DK10: what was stamped once is not the client's fault any more."""
    data = batch([b"one"])
    admit(data, 1)
    data[-1] ^= 1
    with pytest.raises(CorruptError, match="frame checksum"):
        verify_batch(data)


def test_batches_back_to_back() -> None:
    batches = [bytes(batch([b"one"])), bytes(batch([b"two", b"three"]))]
    assert [bytes(each) for each in split_batches(b"".join(batches))] == batches
    assert list(split_batches(b"")) == []


@pytest.mark.parametrize("cut", [1, 39, 255, 300])
def test_a_cut_run_of_batches(cut: int) -> None:
    whole = bytes(batch([b"one"]))
    with pytest.raises(DecodeError):
        list(split_batches(whole + whole[:cut]))
    with pytest.raises(DecodeError):
        decode_batch_header(whole[: min(cut, 255)])
