"""Each reason to refuse a batch, in both kernels, at the right frame and byte."""

import mmap
import struct
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import pytest

from headrace.kernel import BatchError, Reason
from headrace.kernel.layout import BATCH_BYTES_MAX, COLUMN_BYTES_MAX, PAYLOAD_BYTES_MAX
from tests.kernel.samples import (
    CHECKED,
    NO_UPPER_BOUND,
    UNCHECKED,
    Message,
    Stamp,
    batch_of,
    field,
    headers_of,
    reseal,
    simple_messages,
    source_of,
)

HEADERS = headers_of([(b"k", b"v")])
PAYLOAD = 20
# The second of the frames that `producer_batch` makes, and its user headers.
FRAME = 256 + 48 + PAYLOAD + len(HEADERS)
FRAME_HEADERS = FRAME + 48 + PAYLOAD


def producer_batch(*changes: tuple[int, bytes], sealed: bool = True) -> bytearray:
    """Three messages with user headers, some bytes changed, checksums set anew unless refused."""
    batch = bytearray(batch_of(simple_messages(3, PAYLOAD, HEADERS)))
    for at, change in changes:
        batch[at : at + len(change)] = change
    return bytearray(reseal(batch)) if sealed else batch


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


class Case(NamedTuple):
    reason: Reason
    frame: int
    position: int
    call: Callable[[ModuleType], object]


def admitting(reason: Reason, frame: int, position: int, batch: bytearray, count: int = 3) -> Case:
    return Case(reason, frame, position, lambda kernel: kernel.admit(batch, count, 7, 8, 9))


def building(reason: Reason, frame: int, position: int, *columns: object) -> Case:
    return Case(reason, frame, position, lambda kernel: kernel.build(*columns))


def cutting(
    reason: Reason, frame: int, position: int, values: bytes, offsets: "array[int] | bytes"
) -> Case:
    return Case(reason, frame, position, lambda kernel: kernel.cut(values, offsets))


GOOD = source_of(simple_messages(3, PAYLOAD))
LENGTH = 256 + 3 * (48 + PAYLOAD + len(HEADERS))

CASES = [
    admitting(Reason.HEADER_TRUNCATED, -1, 0, producer_batch()[:255]),
    admitting(Reason.BATCH_LENGTH, -1, 32, producer_batch((32, u64(LENGTH - 1)))),
    admitting(Reason.BATCH_LENGTH, -1, 32, producer_batch((32, u64(LENGTH + 1)))),
    admitting(Reason.BATCH_LENGTH, -1, 32, producer_batch((32, u64(255)))[:256]),
    admitting(Reason.BATCH_RESERVED, -1, 52, producer_batch((52, b"\x01\x01"))),
    admitting(Reason.BATCH_RESERVED, -1, 255, producer_batch((255, b"\x80"))),
    admitting(Reason.MESSAGE_COUNT_RANGE, -1, 48, producer_batch((48, u32(0))), 0),
    admitting(Reason.MESSAGE_COUNT_RANGE, -1, 48, producer_batch((48, u32(2**32 - 1)))),
    admitting(Reason.MESSAGE_COUNT, -1, 48, producer_batch(), 2),
    admitting(Reason.PAYLOAD_LENGTH, 1, FRAME + 36, producer_batch((FRAME + 36, u32(0)))),
    admitting(
        Reason.PAYLOAD_LENGTH,
        1,
        FRAME + 36,
        producer_batch((FRAME + 36, u32(PAYLOAD_BYTES_MAX + 1))),
    ),
    admitting(
        Reason.USER_HEADERS_LENGTH, 1, FRAME + 32, producer_batch((FRAME + 32, u32(100_001)))
    ),
    admitting(Reason.FRAME_LENGTH, 1, FRAME, producer_batch((FRAME + 36, u32(1_000)))),
    admitting(Reason.FRAME_CHECKSUM, 1, FRAME, producer_batch((FRAME + 50, b"!"), sealed=False)),
    admitting(Reason.FRAME_RESERVED, 1, FRAME + 40, producer_batch((FRAME + 47, b"\x01"))),
    admitting(Reason.OFFSET_DELTA, 1, FRAME + 24, producer_batch((FRAME + 24, u32(2)))),
    admitting(Reason.OFFSET_DELTA, 0, 256 + 24, producer_batch((256 + 24, u32(1)))),
    admitting(
        Reason.TRAILING_BYTES,
        -1,
        LENGTH,
        bytearray(reseal(producer_batch((32, u64(LENGTH + 1))) + b"\0")),
    ),
    admitting(Reason.BATCH_CHECKSUM, -1, 40, producer_batch((0, b"\x01"), sealed=False)),
    Case(
        Reason.BASE_OFFSET,
        -1,
        8,
        lambda kernel: kernel.verify(producer_batch((8, u64(2**64 - 3)))),
    ),
    Case(
        Reason.BASE_OFFSET,
        -1,
        8,
        lambda kernel: kernel.verify(producer_batch((8, u64(2**64 - 9)), (256 + 24, u32(6)))),
    ),
    Case(
        Reason.HEADER_TRUNCATED,
        -1,
        LENGTH,
        lambda kernel: kernel.columns(producer_batch() + bytes(9), 0, NO_UPPER_BOUND, CHECKED),
    ),
    building(Reason.COLUMN_LENGTH, -1, 0, GOOD.ids[:-1], *GOOD[1:]),
    building(Reason.COLUMN_LENGTH, -1, 0, GOOD.ids, GOOD.timestamps[:-8], *GOOD[2:]),
    building(Reason.COLUMN_LENGTH, -1, 0, *GOOD[:3], GOOD.payload_offsets[:-4], None, None),
    building(Reason.COLUMN_LENGTH, -1, 0, *GOOD[:4], b"", b""),
    building(Reason.MESSAGE_COUNT_RANGE, -1, 0, b"", b"", b"", u32(0), None, None),
    building(Reason.COLUMN_OFFSETS, -1, 12, *GOOD[:3], array("i", [0, 1, 2, 61]), None, None),
    building(Reason.COLUMN_OFFSETS, -1, 12, *GOOD[:3], array("i", [0, 1, 2, -1]), None, None),
    building(Reason.COLUMN_OFFSETS, -1, 0, *GOOD[:3], array("i", [-1, 1, 2, 3]), None, None),
    building(Reason.COLUMN_OFFSETS, 1, 8, *GOOD[:3], array("i", [0, 2, 1, 3]), None, None),
    building(Reason.COLUMN_OFFSETS, 1, 8, *GOOD[:3], array("i", [0, 2, 4, 3]), None, None),
    building(Reason.COLUMN_OFFSETS, 0, 4, *GOOD[:4], b"abc", array("i", [1, 0, 2, 3])),
    building(Reason.PAYLOAD_LENGTH, 1, 4, *GOOD[:3], array("i", [0, 2, 2, 3]), None, None),
    building(
        Reason.USER_HEADERS_LENGTH, 0, 0, *GOOD[:4], bytes(100_001), array("i", [0] + [100_001] * 3)
    ),
    building(Reason.TIMESTAMP_SPAN, 2, 16, GOOD.ids, array("q", [9, 5, 5 + 2**32]), *GOOD[2:]),
    cutting(Reason.COLUMN_LENGTH, -1, 0, b"abc", b""),
    cutting(Reason.COLUMN_LENGTH, -1, 0, b"abc", bytes(7)),
    cutting(Reason.COLUMN_OFFSETS, -1, 8, b"abc", array("i", [0, 1, 4])),
    cutting(Reason.COLUMN_OFFSETS, -1, 0, b"abc", array("i", [-1, 1, 3])),
    cutting(Reason.COLUMN_OFFSETS, 1, 8, b"abc", array("i", [0, 2, 1, 3])),
    cutting(Reason.COLUMN_OFFSETS, 0, 4, b"abc", array("i", [0, 3, 2])),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.reason.name}-{case.position}")
def test_reason(kernel: ModuleType, case: Case) -> None:
    with pytest.raises(BatchError) as caught:
        case.call(kernel)
    error = caught.value
    assert (error.reason, error.frame, error.position) == case[:3]
    assert f"byte {case.position}" in str(error)


def test_the_largest_batch(kernel: ModuleType) -> None:
    values = mmap.mmap(-1, BATCH_BYTES_MAX)  # Untouched pages of an anonymous map take no memory.
    offsets = array("i", [0, BATCH_BYTES_MAX - 256 - 48 + 1])
    with pytest.raises(BatchError) as caught:
        kernel.build(bytes(16), bytes(8), values, offsets, None, None)
    assert caught.value.reason == Reason.BATCH_SIZE
    assert caught.value.found == BATCH_BYTES_MAX + 1


def test_every_reason_has_a_test() -> None:
    assert [*dict.fromkeys([*sorted(case.reason for case in CASES), Reason.BATCH_SIZE])] == [
        *Reason
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.reason.name}-{case.position}")
def test_both_kernels_word_it_alike(native: ModuleType, twin: ModuleType, case: Case) -> None:
    errors = []
    for kernel in (native, twin):
        with pytest.raises(BatchError) as caught:
            case.call(kernel)
        errors.append((caught.value.args, str(caught.value)))
    assert errors[0] == errors[1]


def test_a_refused_batch_is_left_alone(kernel: ModuleType) -> None:
    batch = producer_batch((FRAME + 40, b"\1"))
    before = bytes(batch)
    with pytest.raises(BatchError):
        kernel.admit(batch, 3, 7, 8, 9)
    assert bytes(batch) == before


def test_columns_hold_at_most_what_arrow_can_address(kernel: ModuleType) -> None:
    # 34 messages of the largest payload in as many batches; only their headers are ever touched.
    length = 256 + 48 + PAYLOAD_BYTES_MAX
    batches = mmap.mmap(-1, 34 * length)
    for index in range(34):
        struct.pack_into("<QQQQQQI", batches, index * length, 1, index, 2, 3, length, 0, 1)
    with pytest.raises(ValueError, match=str(COLUMN_BYTES_MAX)):
        kernel.columns(batches, 0, NO_UPPER_BOUND, UNCHECKED)
    with pytest.raises(ValueError, match=str(COLUMN_BYTES_MAX)):
        kernel.split(batches, 0, NO_UPPER_BOUND)


def test_limits_are_allowed(kernel: ModuleType) -> None:
    largest = headers_of([(b"k" * 255, b"v" * 255)])
    batch = bytearray(batch_of([Message(bytes(16), 0, b"x", largest)]))
    kernel.admit(batch, 1, *Stamp())
    pair = headers_of([(b"k" * 245, b"v" * 245)])
    many = pair * 200
    assert len(many) == 100_000
    kernel.admit(bytearray(batch_of([Message(bytes(16), 0, b"x", many)])), 1, *Stamp())


@pytest.mark.parametrize(
    "opaque",
    [
        b"\0",
        b"\xff" * 40,
        field(0, b"k") + field(1, b"v"),
        field(1, b"k") + field(1, b""),
        field(1, b"k"),
        bytes(100_000),
    ],
    ids=["short", "ciphertext", "kind 0", "empty value", "key without value", "longest"],
)
def test_user_headers_are_opaque(kernel: ModuleType, opaque: bytes) -> None:
    """Clients encrypt them: every batch function takes any bytes within the length limit."""
    message = Message(bytes(16), 5, b"x", opaque)
    batch = bytearray(kernel.build(*source_of([message])))
    assert bytes(batch) == batch_of([message])
    kernel.admit(batch, 1, *Stamp())
    kernel.verify(batch)
    assert kernel.columns(batch, 0, NO_UPPER_BOUND, CHECKED).headers == opaque
    assert kernel.split(batch, 0, NO_UPPER_BOUND).headers == [opaque]


@pytest.mark.slow
def test_the_largest_payload(kernel: ModuleType) -> None:
    batch = kernel.build(*source_of([Message(bytes(16), 0, bytes(PAYLOAD_BYTES_MAX))]))
    kernel.admit(bytearray(batch), 1, *Stamp())
    with pytest.raises(BatchError) as caught:
        kernel.build(*source_of([Message(bytes(16), 0, bytes(PAYLOAD_BYTES_MAX + 1))]))
    assert caught.value.reason == Reason.PAYLOAD_LENGTH
