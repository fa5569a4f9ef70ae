"""Both kernels give the same result, or the same error, on sound and on damaged input."""

from array import array
from random import Random
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.samples import (
    CHECKED,
    U64_MAX,
    UNCHECKED,
    Message,
    Stamp,
    batch_of,
    damage,
    damage_source,
    headers_of,
    messages_strategy,
    outcome,
    outcomes,
    simple_messages,
    source_of,
    stamp_strategy,
)


@settings(max_examples=60)
@given(
    messages=messages_strategy,
    stamp=stamp_strategy,
    offset=st.integers(0, 9),
    limit=st.integers(0, 9),
)
def test_sound_batches(
    native: ModuleType,
    twin: ModuleType,
    messages: list[Message],
    stamp: Stamp,
    offset: int,
    limit: int,
) -> None:
    for batch in (batch_of(messages), batch_of(messages, stamp)):
        arguments = (batch, len(messages), stamp.base_offset + offset, limit)
        assert outcomes(native, *arguments) == outcomes(twin, *arguments)


@settings(max_examples=80)
@given(messages=messages_strategy, stamp=stamp_strategy, seed=st.integers(0, 2**32))
def test_damaged_batches(
    native: ModuleType, twin: ModuleType, messages: list[Message], stamp: Stamp, seed: int
) -> None:
    random = Random(seed)
    batch = damage(random, batch_of(messages, random.choice((stamp, None))))
    offset = stamp.base_offset + random.randrange(10)
    arguments = (batch, len(messages), offset, random.randrange(10))
    assert outcomes(native, *arguments) == outcomes(twin, *arguments)


@settings(max_examples=100)
@given(data=st.binary(max_size=700))
def test_arbitrary_bytes(native: ModuleType, twin: ModuleType, data: bytes) -> None:
    assert outcomes(native, data, 1, 0, 1) == outcomes(twin, data, 1, 0, 1)
    assert native.xxh3_64(data) == twin.xxh3_64(data)


@settings(max_examples=80)
@given(messages=messages_strategy, seed=st.integers(0, 2**32))
def test_damaged_columns(
    native: ModuleType, twin: ModuleType, messages: list[Message], seed: int
) -> None:
    random = Random(seed)
    source = damage_source(random, source_of(messages, before=b"--", after=b"---"))
    assert outcome(native.build, *source) == outcome(twin.build, *source)
    for column in (source[2:4], source[4:6]):
        if None not in column:
            assert outcome(native.cut, *column) == outcome(twin.cut, *column)


@settings(max_examples=100)
@given(values=st.binary(max_size=9), offsets=st.lists(st.integers(-1, 11), max_size=5))
def test_any_offsets(
    native: ModuleType, twin: ModuleType, values: bytes, offsets: list[int]
) -> None:
    ends = array("i", offsets).tobytes()
    for given_ends in (ends, ends + b"\0"):
        assert outcome(native.cut, values, given_ends) == outcome(twin.cut, values, given_ends)


def test_every_length_of_payload(native: ModuleType, twin: ModuleType) -> None:
    """On either side of each way to hash and to copy, with and without user headers behind."""
    random = Random(3)
    headers = headers_of([(b"k", b"v" * 100)] * 3)
    messages = [
        Message(bytes(16), 5, random.randbytes(length), headers if length % 3 == 0 else b"")
        for length in range(1, 1_300)
    ]
    batch = native.build(*source_of(messages))
    assert batch == batch_of(messages)
    wanted = twin.columns(batch, 0, U64_MAX, CHECKED)
    assert wanted.payloads == b"".join(message.payload for message in messages)
    for columns in (native.columns, native.columns_scalar):
        assert columns(batch, 0, U64_MAX, CHECKED) == wanted
        assert columns(batch, 0, U64_MAX, UNCHECKED) == wanted
        assert columns(batch, 100, 1_200, CHECKED) == twin.columns(batch, 100, 1_200, UNCHECKED)
    for split in (native.split, native.split_scalar):
        for first, end in ((0, U64_MAX), (100, 1_200), (1_298, 1_299), (1_299, 1_300)):
            assert split(batch, first, end) == twin.split(batch, first, end)
    assert native.split(batch, 0, U64_MAX).payloads == [message.payload for message in messages]


def test_a_fault_behind_another_is_not_the_one_that_is_told(
    native: ModuleType, twin: ModuleType
) -> None:
    """Objects are made by the lengths of frames before any is checked; errors keep their order."""
    good = batch_of(simple_messages(4, 300), Stamp())
    at = 256 + 348  # the second frame
    for places in (
        (at + 60,),
        (at + 36,),
        (at + 60, at + 348 + 36),
        (at + 348 + 36, len(good) - 1),
    ):
        batch = bytearray(good)
        for place in places:
            batch[place] ^= 0xFF
        for data in (bytes(batch), good + batch, batch + good):
            for first in (0, 1_001, 1_003):
                told = outcome(twin.split, data, first, U64_MAX)
                assert isinstance(told, tuple)
                assert outcome(native.split, data, first, U64_MAX) == told
                assert outcome(native.columns, data, first, U64_MAX, CHECKED) == told


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
    is_damaged=st.booleans(),
)
def test_runs_of_batches(
    native: ModuleType, twin: ModuleType, counts: list[int], seed: int, is_damaged: bool
) -> None:
    """Both stop at the same batch; without damage they go to the end, link by link."""
    random = Random(seed)
    offset, chain = random.randrange(1 << 40), random.randrange(1 << 64)
    batches, rows, end, links = [], [], offset, chain
    position = 0
    for number, count in enumerate(counts):
        batch = batch_of(simple_messages(count, 9), Stamp(7, end, 1000 + number))
        rows += [end, 1000 + number, position, links]
        links = twin.xxh3_64(links.to_bytes(8, "little") + batch[40:48])
        end += count
        position += len(batch)
        batches.append(batch)
    data = b"".join(batches)
    good = (len(data), end, links, array("Q", rows).tobytes())
    assert twin.prove(data, 7, offset, chain) == good
    if is_damaged:
        data = damage(random, data)
    assert native.prove(data, 7, offset, chain) == twin.prove(data, 7, offset, chain)
    cut = data[: random.randrange(len(data) + 1)]
    assert native.prove(cut, 7, offset, chain) == twin.prove(cut, 7, offset, chain)
    for wrong in ((8, offset, chain), (7, offset + 1, chain)):
        assert native.prove(data, *wrong) == twin.prove(data, *wrong)
    size = random.randrange(60)
    for records in (data[: 4 * size], data[:5]):
        arguments = (chain, records, size)
        assert outcome(native.fold, *arguments) == outcome(twin.fold, *arguments)


def test_a_chain_of_checksums_is_a_fold(native: ModuleType, twin: ModuleType) -> None:
    data = bytes(range(160))
    for module in (native, twin):
        chain = 5
        for at in range(0, 160, 8):
            chain = module.xxh3_64(chain.to_bytes(8, "little") + data[at : at + 8])
        assert module.fold(5, data, 8) == chain
        assert module.fold(5, b"", 8) == 5
