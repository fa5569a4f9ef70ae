"""Batches that are gathered message by message: the same in both kernels, and within limits."""

import gc
import importlib
import threading
from array import array
from contextlib import suppress
from itertools import accumulate, count
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel import (
    BATCH_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
)
from headrace.kernel.gathering import Frames
from headrace.kernel.layout import BATCH_BYTES_MAX
from tests.kernel.samples import CHECKED, U64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

# Times that rise, jump back, and jump ahead by more than a batch may span.
NANOS = (5 * 10**18, 5 * 10**18 + 1_999, 10**15, 0, 5 * 10**18 + 7200 * 10**9)
VALUES = (b"", b"v", b"x" * 50, b"y" * 300, "text", "\ud800", 7, None, bytearray(b"no"))


def make(kernel: ModuleType, *limits: int, clock: Any = lambda: 10**18) -> Any:
    messages_max, batch_bytes_max, buffer_bytes_max = limits or (1000, 10**6, 10**7)
    return kernel.Gatherer(messages_max, batch_bytes_max, buffer_bytes_max, clock, kernel.Receipt)


def opened(kernel: ModuleType, gatherer: Any) -> Any:
    """Return a current batch with one message."""
    batch = kernel.Frames()
    gatherer.append(batch, b"first", b"")
    gatherer.current = batch
    return batch


def play(kernel: ModuleType, seed: int) -> list[object]:
    """Carry out calls, good and bad ones; return what each of them came to."""
    random = Random(seed)
    limits = (random.randrange(1, 9), random.randrange(300, 900), random.randrange(300, 2000))
    gatherer = make(kernel, *limits, clock=lambda: random.choice(NANOS))
    batches = [kernel.Frames() for _ in range(3)]
    seen: list[object] = []
    for _ in range(40):
        batch = random.choice(batches)
        done = attempt(random, gatherer, batch)
        sizes = [(len(each), each.size) for each in batches]
        seen.append((done, gatherer.buffered_bytes, gatherer.messages_count, sizes))
    return seen


def attempt(random: Random, gatherer: Any, batch: Any) -> object:
    """Carry out one call; return its result, or its error."""
    value = random.choice(VALUES)
    headers = random.choice([b"", b"h" * 20, b"h" * (USER_HEADERS_BYTES_MAX + 1), None])
    pieces = [b"z" * random.randrange(1, 80) for _ in range(random.randrange(6))]
    ids = random.randbytes(16 * random.choice((0, 1, len(batch), len(batch))))
    calls: list[Callable[[], Any]] = [
        lambda: describe(gatherer.add(value)),
        lambda: describe(gatherer.add(value)),
        lambda: describe(gatherer.append(batch, value, headers)),
        lambda: gatherer.extend(batch, pieces, random.randrange(-1, 6), b"h"),
        lambda: gatherer.extend(batch, [*pieces, value], 0, headers),
        lambda: setattr(gatherer, "current", random.choice([batch, None])),
        lambda: gatherer.release(batch),
        lambda: batch.finish(ids),
    ]
    try:
        return random.choice(calls)()
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        return type(error), str(error)


def describe(receipt: Any) -> object:
    return None if receipt is None else (len(receipt.batch), receipt.index)


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_both_kernels_gather_alike(native: ModuleType, twin: ModuleType, seed: int) -> None:
    del twin
    assert play(native, seed) == play(gathering(), seed)


def gathering() -> ModuleType:
    return importlib.import_module("headrace.kernel.gathering")


@pytest.fixture(params=["twin", "native"])
def classes(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "twin":
        return gathering()
    chosen = request.getfixturevalue("native")
    assert isinstance(chosen, ModuleType)
    return chosen


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=30),
    header_sizes=st.lists(st.integers(0, 40), min_size=30, max_size=30),
)
def test_a_batch_is_the_one_that_columns_make(
    native: ModuleType, twin: ModuleType, sizes: list[int], header_sizes: list[int]
) -> None:
    for module in (native, gathering()):
        random, nanos = Random(1), count(10**18, 3000)
        gatherer = make(module, 99, 10**6, 10**7, clock=lambda nanos=nanos: next(nanos))
        batch = module.Frames()
        values = [random.randbytes(size) for size in sizes]
        headers = [b"h" * size for size in header_sizes[: len(sizes)]]
        for value, each in zip(values, headers, strict=True):
            gatherer.append(batch, value, each)
        ids = random.randbytes(16 * len(values))
        made = batch.finish(ids)
        times = array("Q", [10**15 + 3 * index for index in range(len(values))])
        ends = [array("i", accumulate(map(len, part), initial=0)) for part in (values, headers)]
        parts = (b"".join(values), ends[0], b"".join(headers), ends[1])
        assert made == twin.build(ids, times, *parts)
        assert twin.columns(made, 0, U64_MAX, CHECKED).payloads == b"".join(values)


def test_a_large_batch_is_finished_without_the_lock(classes: ModuleType, twin: ModuleType) -> None:
    gatherer = make(classes, 10**5, 10**8, 10**8)
    batch = classes.Frames()
    assert gatherer.extend(batch, [b"v" * 1000] * 500, 0, b"") == 500
    made = batch.finish(bytes(16 * 500))
    assert len(made) == batch.size == BATCH_HEADER_BYTES + 500 * (FRAME_HEADER_BYTES + 1000)
    twin.verify(made)


def test_limits_of_many_at_once(classes: ModuleType) -> None:
    values = [b"v" * 52] * 10  # 100 bytes each
    for limits, taken in [
        ((4, 10**6, 10**6), 4),
        ((99, BATCH_HEADER_BYTES + 300, 10**6), 3),
        ((99, 10**6, 250), 2),
        ((99, 10**6, 99), 1),  # the caller has waited for room
    ]:
        gatherer, batch = make(classes, *limits), classes.Frames()
        assert gatherer.extend(batch, values, 0, b"") == taken
        assert (gatherer.messages_count, gatherer.buffered_bytes) == (taken, 100 * taken)
        gatherer.release(batch)
        assert (gatherer.messages_count, gatherer.buffered_bytes) == (0, 0)


def test_a_batch_ends_with_finish(classes: ModuleType) -> None:
    gatherer = make(classes)
    batch = opened(classes, gatherer)
    assert gatherer.add(b"second").index == 1
    batch.finish(bytes(32))
    assert gatherer.add(b"third") is None
    calls: tuple[Callable[[], Any], ...] = (
        lambda: gatherer.append(batch, b"v", b""),
        lambda: gatherer.extend(batch, [b"v"], 0, b""),
        lambda: batch.finish(bytes(32)),
    )
    for call in calls:
        with pytest.raises(ValueError, match="the batch is finished"):
            call()
    assert (len(batch), gatherer.messages_count) == (2, 2)
    with pytest.raises(ValueError, match="no messages"):
        classes.Frames().finish(b"")


def test_wrong_arguments(classes: ModuleType) -> None:
    gatherer, batch = make(classes), classes.Frames()
    calls: tuple[Callable[[], Any], ...] = (
        lambda: gatherer.append(object(), b"v", b""),
        lambda: gatherer.extend(None, [b"v"], 0, b""),
        lambda: gatherer.extend(batch, (b"v",), 0, b""),
        lambda: gatherer.extend(batch, [b"v"], "0", b""),
        lambda: gatherer.release(7),
        lambda: setattr(gatherer, "current", 7),
        lambda: classes.Gatherer(1, 2, 3, int, object),
        lambda: classes.Gatherer(1, 2),
        lambda: make(classes, clock=lambda: None).append(batch, b"v", b""),
    )
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(OverflowError):
        classes.Gatherer(1, -2, 3, int, classes.Receipt)
    with pytest.raises(ValueError, match="not counted"):
        gatherer.release(opened(classes, make(classes)))
    with pytest.raises(AttributeError):
        _ = classes.Receipt().batch
    assert len(batch) == 0
    opened(classes, gatherer)
    assert gatherer.add(b"x" * (PAYLOAD_BYTES_MAX + 1)) is None


def test_an_error_of_the_clock_is_raised_and_nothing_is_added(classes: ModuleType) -> None:
    nanos = iter([10**18])
    gatherer = make(classes, clock=lambda: next(nanos))
    batch = opened(classes, gatherer)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: gatherer.add(b"v"),
        lambda: gatherer.append(batch, b"v", b""),
        lambda: gatherer.extend(batch, [b"v"], 0, b""),
    )
    for call in calls:
        with pytest.raises(StopIteration):
            call()
    assert (len(batch), gatherer.messages_count) == (1, 1)


def test_a_clock_that_finishes_the_batch(classes: ModuleType) -> None:
    """What runs in the middle of a call may change everything: the call sees it."""
    batches: list[Any] = []

    def clock() -> int:
        for batch in batches:
            batch.finish(bytes(16))
        batches.clear()
        return 10**18

    adds: tuple[Callable[[Any, Any], Any], ...] = (
        lambda gatherer, _: gatherer.add(b"late"),
        lambda gatherer, batch: gatherer.append(batch, b"late", b""),
        lambda gatherer, batch: gatherer.extend(batch, [b"late"], 0, b""),
    )
    for add in adds:
        gatherer = make(classes, clock=clock)
        batch = opened(classes, gatherer)
        batches.append(batch)
        with suppress(ValueError):
            assert add(gatherer, batch) is None
        assert (len(batch), gatherer.messages_count) == (1, 1)


def test_a_receipt_that_is_kept_stays_as_it_is(native: ModuleType) -> None:
    gatherer = make(native)
    opened(native, gatherer)
    kept = gatherer.add(b"kept")
    assert [gatherer.add(b"v").index for _ in range(3)] == [2, 3, 4]
    assert kept.index == 1
    places = {id(gatherer.add(b"v")) for _ in range(50)}
    assert len(places) == 1  # nobody kept one: no new object


def test_cycles_are_collected(native: ModuleType) -> None:
    class Batch(native.Frames):  # type: ignore[misc,name-defined] # a module's attribute
        pass

    gatherer = make(native)
    batch = Batch()
    receipt = gatherer.append(batch, b"v", b"")
    batch.kept = [receipt, gatherer]
    gatherer.current = batch
    del batch, receipt, gatherer
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Batch]


def test_threads_add_without_a_lock(native: ModuleType) -> None:
    gatherer = make(native, 10**6, 10**8, 10**9)
    batch = opened(native, gatherer)

    def add(value: bytes) -> None:
        for _ in range(20_000):
            assert gatherer.add(value) is not None

    threads = [threading.Thread(target=add, args=(b"%d" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(batch) == gatherer.messages_count == 80_001
    made = batch.finish(bytes(16 * len(batch)))
    values = native.cut(*native.columns(made, 0, U64_MAX, CHECKED)[5:7][::-1])
    assert {value: values.count(value) for value in set(values)} == {
        b"first": 1,
        **{b"%d" % number: 20_000 for number in range(4)},
    }


def test_a_batch_of_the_twin_is_never_larger_than_a_batch_may_be() -> None:
    frames = Frames()
    with pytest.raises(OverflowError, match="limit"):
        frames.put([b"v"], b"", 0, BATCH_BYTES_MAX + 1)
    assert len(frames) == 0
