"""Malformed batches in great number: no crash, no foreign error, no runaway memory."""

import tracemalloc
from random import Random
from types import ModuleType

import pytest

from tests.kernel.samples import (
    U64_MAX,
    Message,
    Stamp,
    batch_of,
    damage,
    damage_source,
    headers_of,
    outcome,
    outcomes,
    simple_messages,
    source_of,
)

BATCHES = 200_000
COMPARED_EVERY = 20
TRACED = 2_000


def sound_batches() -> list[bytes]:
    headers = headers_of([(b"key", b"value"), (b"k", b"v" * 30)])
    sizes = (1, 20, 90, 200, 300, 1_100)
    mixed = [
        Message(bytes([index]) * 16, 10 + index % 3, bytes(size), headers if index % 2 else b"")
        for index, size in enumerate(sizes)
    ]
    return [
        batch_of(simple_messages(1, 1), Stamp()),
        batch_of(simple_messages(1, 1), None),
        batch_of(simple_messages(3, 20), Stamp()),
        batch_of(simple_messages(2, 5, headers), None),
        batch_of(simple_messages(4, 5, headers), Stamp(1, U64_MAX - 5, 3)),
        batch_of(mixed, Stamp()),
    ]


def column_outcomes(kernel: ModuleType, source: list[bytes | None]) -> list[object]:
    return [outcome(kernel.build, *source), outcome(kernel.cut, *source[2:4])]


@pytest.mark.slow
def test_malformed_batches(native: ModuleType, twin: ModuleType) -> None:
    random = Random(20_260_821)
    sound = sound_batches()
    sources = [
        source_of(simple_messages(3, 9)),
        source_of(simple_messages(3, 9, headers_of([(b"a", b"b")]))),
    ]
    for number in range(BATCHES):
        if number % 50 == 0:
            batch = random.randbytes(random.randrange(600))
        else:
            batch = damage(random, random.choice(sound))
        arguments = (
            batch,
            random.randrange(1, 5),
            1_000 + random.randrange(5),
            random.randrange(1, 5),
        )
        source = damage_source(random, random.choice(sources))
        found = [*outcomes(native, *arguments), *column_outcomes(native, source)]
        outcome(native.hash_frames, batch)
        if number % COMPARED_EVERY == 0:
            assert found == [*outcomes(twin, *arguments), *column_outcomes(twin, source)], number


@pytest.mark.slow
def test_memory_stays_near_the_size_of_the_input(native: ModuleType) -> None:
    random = Random(7)
    sound = [*sound_batches(), batch_of(simple_messages(2_000, 60), Stamp())]
    tracemalloc.start()
    try:
        for _ in range(TRACED):
            batch = damage(random, random.choice(sound))
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            outcomes(native, batch, 3, 1_000, 4)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 8 * len(batch) + 20_000
    finally:
        tracemalloc.stop()
