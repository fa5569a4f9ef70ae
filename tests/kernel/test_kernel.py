"""What each function of the kernel promises, for both kernels."""

import pickle
import sys
import tracemalloc
from array import array
from itertools import accumulate
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import kernel as public
from headrace.kernel import BatchError, Reason, layout
from tests.kernel.samples import (
    CHECKED,
    NO_UPPER_BOUND,
    U64_MAX,
    UNCHECKED,
    Message,
    Stamp,
    batch_of,
    headers_of,
    messages_strategy,
    rows_of,
    rows_of_columns,
    rows_of_split,
    simple_messages,
    source_of,
    stamp_strategy,
)

FEW = settings(max_examples=60)


def admitted(kernel: ModuleType, messages: list[Message], stamp: Stamp) -> bytes:
    buffer = bytearray(kernel.build(*source_of(messages)))
    checksum = kernel.admit(buffer, len(messages), *stamp)
    assert checksum == int.from_bytes(buffer[40:48], "little")
    return bytes(buffer)


def cut(batch: bytes, parts: tuple[bytes, int, int]) -> bytes:
    header, start, end = parts
    return header + batch[start:end]


@FEW
@given(messages=messages_strategy, stamp=stamp_strategy)
def test_columns_become_a_batch_and_columns_again(
    kernel: ModuleType, messages: list[Message], stamp: Stamp
) -> None:
    batch = admitted(kernel, messages, stamp)
    assert batch == batch_of(messages, stamp)
    assert kernel.verify(batch) == int.from_bytes(batch[40:48], "little")
    for check in (CHECKED, UNCHECKED):
        rows = rows_of_columns(kernel.columns(batch, 0, NO_UPPER_BOUND, check))
        assert rows == rows_of(batch)
        assert [row.message for row in rows] == messages


@FEW
@given(messages=messages_strategy, before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_build_takes_a_cut_of_longer_columns(
    kernel: ModuleType, messages: list[Message], before: bytes, after: bytes
) -> None:
    assert kernel.build(*source_of(messages, before=before, after=after)) == batch_of(messages)


@FEW
@given(
    values=st.lists(st.binary(max_size=9), max_size=9),
    before=st.binary(max_size=9),
    after=st.binary(max_size=9),
)
def test_a_column_is_cut_into_its_values(
    kernel: ModuleType, values: list[bytes], before: bytes, after: bytes
) -> None:
    offsets = array("i", accumulate(map(len, values), initial=len(before)))
    column = before + b"".join(values) + after
    assert kernel.cut(column, offsets) == values
    assert kernel.cut(memoryview(bytearray(column)), offsets.tobytes()) == values


def test_values_that_were_cut_outlive_their_column(kernel: ModuleType) -> None:
    column = bytearray(b"one" + b"two" * 500)
    values = kernel.cut(column, array("i", [0, 3, len(column)]))
    column[:] = bytes(len(column))
    assert values == [b"one", b"two" * 500]
    assert {type(value) for value in values} == {bytes}


@FEW
@given(data=st.data(), messages=messages_strategy, stamp=stamp_strategy)
def test_a_slice_verifies_and_holds_its_range(
    kernel: ModuleType, data: st.DataObject, messages: list[Message], stamp: Stamp
) -> None:
    batch = batch_of(messages, stamp)
    offset = stamp.base_offset + data.draw(st.integers(0, len(messages) - 1))
    if data.draw(st.booleans()):
        offset = max(stamp.base_offset - 1, 0)
    count = data.draw(st.integers(1, len(messages) + 1))
    whole = rows_of(batch)
    wanted = [row for row in whole if row.offset >= offset][:count]

    piece = cut(batch, kernel.slice_batch(batch, offset, count))
    kernel.verify(piece)
    assert rows_of(piece) == wanted
    assert rows_of_columns(kernel.columns(piece, 0, NO_UPPER_BOUND, CHECKED)) == wanted

    last = cut(piece, kernel.slice_batch(piece, wanted[-1].offset, 1))
    kernel.verify(last)
    assert rows_of(last) == wanted[-1:]


@FEW
@given(data=st.data(), messages=messages_strategy, stamp=stamp_strategy)
def test_find_agrees_with_a_naive_search(
    kernel: ModuleType, data: st.DataObject, messages: list[Message], stamp: Stamp
) -> None:
    batch = batch_of(messages, stamp)
    rows = rows_of(batch)
    positions = [kernel.slice_batch(batch, row.offset, 1)[1] for row in rows]
    ends = (len(rows), len(batch))

    offset = stamp.base_offset + data.draw(st.integers(-2, len(messages) + 2))
    offset = max(offset, 0)
    naive = [(index, positions[index]) for index, row in enumerate(rows) if row.offset >= offset]
    assert kernel.find_offset(batch, offset) == [*naive, ends][0]

    time = data.draw(st.sampled_from([row.message.time for row in rows])) + data.draw(
        st.integers(-1, 1)
    )
    naive = [
        (index, positions[index]) for index, row in enumerate(rows) if row.message.time >= time
    ]
    assert kernel.find_timestamp(batch, time) == [*naive, ends][0]
    assert kernel.find_timestamp(batch, U64_MAX) == ends
    assert kernel.find_timestamp(batch, 0) == (0, positions[0])


@FEW
@given(data=st.data(), messages=messages_strategy, stamp=stamp_strategy)
def test_one_flipped_bit_is_noticed(
    kernel: ModuleType, data: st.DataObject, messages: list[Message], stamp: Stamp
) -> None:
    batch = bytearray(batch_of(messages, stamp))
    at = data.draw(st.integers(0, len(batch) - 1))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BatchError):
        kernel.verify(batch)


def test_each_flipped_byte_is_noticed(kernel: ModuleType) -> None:
    headers = headers_of([(b"key", b"value")])
    batch = bytearray(batch_of(simple_messages(2, headers=headers), Stamp()))
    for at in range(len(batch)):
        batch[at] ^= 0xFF
        with pytest.raises(BatchError):
            kernel.verify(batch)
        batch[at] ^= 0xFF
    kernel.verify(batch)


@FEW
@given(data=st.data(), sizes=st.lists(st.integers(1, 4), max_size=4), check=st.booleans())
def test_columns_of_several_batches(
    kernel: ModuleType, data: st.DataObject, sizes: list[int], *, check: bool
) -> None:
    headers = headers_of([(b"k", b"v")])
    batches, base = [], 50
    for size in sizes:
        messages = simple_messages(size, headers=headers if size % 2 else b"")
        batches.append(batch_of(messages, Stamp(1, base, 2_000 + base)))
        base += size
    rows = [row for batch in batches for row in rows_of(batch)]
    low = data.draw(st.integers(48, base + 1))
    high = data.draw(st.one_of(st.integers(48, base + 1), st.just(NO_UPPER_BOUND)))
    result = kernel.columns(b"".join(batches), low, high, check)
    assert isinstance(result, layout.Columns)
    assert rows_of_columns(result) == [row for row in rows if low <= row.offset < high]
    taken = kernel.split(b"".join(batches), low, high)
    assert isinstance(taken, layout.Split)
    assert rows_of_split(taken) == rows_of_columns(result)


def test_what_was_split_outlives_its_batch(kernel: ModuleType) -> None:
    headers = headers_of([(b"k", b"v")])
    batch = bytearray(batch_of(simple_messages(300, 400, headers), Stamp()))
    taken = kernel.split(batch, 0, NO_UPPER_BOUND)
    batch[:] = bytes(len(batch))
    assert taken.payloads == [bytes([index % 255]) * 400 for index in range(300)]
    assert taken.headers == [headers] * 300
    assert {type(each) for each in (*taken.payloads, *taken.headers)} == {bytes}


def test_a_payload_is_copied_once(native: ModuleType) -> None:
    """What else there is takes a few dozen bytes: its offset, its id, its places in lists."""
    count, size = 1_000, 1_024
    batch = batch_of(simple_messages(count, size), Stamp())
    tracemalloc.start()
    try:
        taken = native.split(batch, 0, NO_UPPER_BOUND)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    payloads = sum(map(sys.getsizeof, taken.payloads))
    assert payloads < peak < payloads + 200 * count


def test_batches_outside_the_range_are_passed_over(kernel: ModuleType) -> None:
    good = batch_of(simple_messages(2), Stamp(1, 10, 1))
    bad = bytearray(batch_of(simple_messages(2), Stamp(1, 12, 1)))
    bad[-1] ^= 1
    both = good + bytes(bad)
    assert kernel.columns(both, 0, 12, CHECKED).messages_count == 2
    assert kernel.columns(both, 0, 13, UNCHECKED).messages_count == 3
    with pytest.raises(BatchError) as caught:
        kernel.columns(both, 0, 13, CHECKED)
    assert (caught.value.reason, caught.value.frame) == (Reason.FRAME_CHECKSUM, 1)
    assert caught.value.position == len(good) + 256 + 48 + 20


def test_large_batches_leave_the_stack(kernel: ModuleType) -> None:
    messages = simple_messages(1_500, payload_bytes=50)
    batch = admitted(kernel, messages, Stamp())
    assert batch == batch_of(messages, Stamp())
    kernel.verify(batch)
    header, start, end = kernel.slice_batch(batch, 1_001, 1_400)
    kernel.verify(header + batch[start:end])
    assert rows_of_columns(kernel.columns(batch, 0, NO_UPPER_BOUND, CHECKED)) == rows_of(batch)
    assert rows_of_split(kernel.split(batch, 0, NO_UPPER_BOUND)) == rows_of(batch)


def test_any_contiguous_buffer_will_do(kernel: ModuleType) -> None:
    batch = batch_of(simple_messages(3), Stamp())
    for buffer in (batch, bytearray(batch), memoryview(batch), memoryview(b"--" + batch)[2:]):
        assert kernel.verify(buffer) == kernel.verify(batch)
        assert kernel.columns(buffer, 0, NO_UPPER_BOUND, CHECKED).messages_count == 3


def test_wrong_buffers_are_refused(kernel: ModuleType) -> None:
    batch = batch_of(simple_messages(3))
    with pytest.raises(BufferError):
        kernel.verify(memoryview(batch)[::2])
    with pytest.raises(BufferError):
        kernel.admit(batch, 3, 0, 0, 0)
    for wrong in ("text", 7, None, [1]):
        with pytest.raises(TypeError):
            kernel.verify(wrong)
        with pytest.raises(TypeError):
            kernel.xxh3_64(wrong)
        with pytest.raises(TypeError):
            kernel.columns(wrong, 0, 1, CHECKED)
        with pytest.raises(TypeError):
            kernel.split(wrong, 0, 1)
        with pytest.raises(TypeError):
            kernel.admit(wrong, 3, 0, 0, 0)
        with pytest.raises(TypeError):
            kernel.build(*source_of(simple_messages(1))[:3], wrong, None, None)
        with pytest.raises(TypeError):
            kernel.cut(wrong, bytes(4))
        with pytest.raises(TypeError):
            kernel.cut(b"", wrong)


def test_wrong_arguments_are_refused(kernel: ModuleType) -> None:
    batch = bytearray(batch_of(simple_messages(3)))
    source = source_of(simple_messages(3))
    for call in (
        lambda: kernel.admit(batch, 3, 0, 0),
        lambda: kernel.admit(batch, 3, 0, 0, 1.5),
        kernel.verify,
        lambda: kernel.find_offset(batch),
        lambda: kernel.find_timestamp(batch, "1"),
        lambda: kernel.slice_batch(batch, 1),
        lambda: kernel.slice_batch(batch, 1, "1"),
        lambda: kernel.slice_batch(batch, None, 1),
        lambda: kernel.columns(batch, 0, 1),
        lambda: kernel.columns(batch, 0, 1.5, CHECKED),
        lambda: kernel.columns(batch, None, 1, CHECKED),
        lambda: kernel.split(batch, 0),
        lambda: kernel.split(batch, 0, 1.5),
        lambda: kernel.split(batch, None, 1),
        lambda: kernel.cut(b""),
        lambda: kernel.cut(b"", [0]),
        lambda: kernel.build(*source[:4]),
        lambda: kernel.build(*source[:4], b"", None),
        lambda: kernel.build(*source[:4], None, b""),
    ):
        with pytest.raises(TypeError):
            call()


def test_numbers_beyond_64_bits_are_refused(kernel: ModuleType) -> None:
    batch = bytearray(batch_of(simple_messages(3)))
    before = bytes(batch)
    for wrong in (-1, 2**64, 2**100, -(2**100)):
        for place in range(4):
            arguments = [3, 0, 0, 0]
            arguments[place] = wrong
            with pytest.raises(OverflowError):
                kernel.admit(batch, *arguments)
        with pytest.raises(OverflowError):
            kernel.find_offset(batch, wrong)
        with pytest.raises(OverflowError):
            kernel.find_timestamp(batch, wrong)
        with pytest.raises(OverflowError):
            kernel.slice_batch(batch, wrong, 1)
        with pytest.raises(OverflowError):
            kernel.columns(batch, wrong, 1, CHECKED)
        with pytest.raises(OverflowError):
            kernel.columns(batch, 0, wrong, CHECKED)
        with pytest.raises(OverflowError):
            kernel.split(batch, wrong, 1)
        with pytest.raises(OverflowError):
            kernel.split(batch, 0, wrong)
    assert bytes(batch) == before


def test_the_last_offset_is_never_given(kernel: ModuleType) -> None:
    batch = bytearray(batch_of(simple_messages(3)))
    with pytest.raises(OverflowError):
        kernel.admit(batch, 3, 0, U64_MAX - 2, 0)
    kernel.admit(batch, 3, 0, U64_MAX - 3, 0)
    kernel.verify(batch)
    result = kernel.columns(batch, 0, NO_UPPER_BOUND, CHECKED)
    assert result.offsets[-8:] == (U64_MAX - 1).to_bytes(8, "little")
    assert kernel.split(batch, 0, NO_UPPER_BOUND).offsets == [-4, -3, -2]  # signed, as columns are
    assert kernel.find_offset(batch, U64_MAX) == (3, len(batch))


def test_empty_slices_are_refused(kernel: ModuleType) -> None:
    batch = batch_of(simple_messages(3), Stamp())
    for count in (0, -1, -(2**80)):
        with pytest.raises(ValueError, match="at least one message"):
            kernel.slice_batch(batch, 1_000, count)
    with pytest.raises(OverflowError):
        kernel.slice_batch(batch, 1_000, 2**64)
    with pytest.raises(ValueError, match="no message at or after offset 1003"):
        kernel.slice_batch(batch, 1_003, 1)


def test_creation_times_may_wrap(kernel: ModuleType) -> None:
    late = [Message(bytes(16), U64_MAX, b"x"), Message(bytes(16), U64_MAX - 5, b"y")]
    batch = admitted(kernel, late, Stamp())
    assert kernel.find_timestamp(batch, U64_MAX) == (0, 256)
    assert kernel.columns(batch, 0, NO_UPPER_BOUND, CHECKED).origin_timestamps[:8] == b"\xff" * 8
    assert kernel.split(batch, 0, NO_UPPER_BOUND).origin_timestamps == [-1, -6]


def test_an_error_can_be_pickled() -> None:
    error = BatchError(Reason.BATCH_LENGTH, -1, 32, 300, 256)
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, str(again)) == (Reason.BATCH_LENGTH, str(error))
    assert str(error) == "batch_length 300, 256 bytes there (byte 32)"


def test_the_public_names_are_those_of_one_kernel(native: ModuleType, twin: ModuleType) -> None:
    served = native if public.NATIVE else twin
    functions = [name for name in public.__all__ if name.islower()]
    assert {"admit", "build", "columns", "cut", "split"} <= set(functions)
    for name in functions:
        assert getattr(public, name).__doc__ == getattr(served, name).__doc__
