"""XXH3-64 equals the `xxhash` package, on every path and at every alignment."""

from random import Random
from types import ModuleType

import pytest
from xxhash import xxh3_64_intdigest

LENGTHS_LONG = (4097, 8191, 8192, 8193, 65_535, 65_536, 100_003, 1_000_001, 3_145_728)


@pytest.fixture(scope="module", params=["xxh3_64", "xxh3_64_scalar"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_length_up_to_4096(native: ModuleType, path: str) -> None:
    hash_bytes = getattr(native, path)
    data = Random(1).randbytes(4096 + 64)
    view = memoryview(data)
    for length in range(4097):
        piece = view[length % 64 : length % 64 + length]
        assert hash_bytes(piece) == xxh3_64_intdigest(piece), length


def test_each_alignment(native: ModuleType, path: str) -> None:
    hash_bytes = getattr(native, path)
    view = memoryview(Random(2).randbytes(1300))
    for start in range(64):
        for length in (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 1064):
            piece = view[start : start + length]
            assert hash_bytes(piece) == xxh3_64_intdigest(piece), (start, length)


def test_long_inputs(native: ModuleType, path: str) -> None:
    hash_bytes = getattr(native, path)
    random = Random(3)
    data = memoryview(random.randbytes(max(LENGTHS_LONG) + 8))
    for length in (*LENGTHS_LONG, *(random.randrange(4097, 200_000) for _ in range(20))):
        piece = data[length % 8 : length % 8 + length]
        assert hash_bytes(piece) == xxh3_64_intdigest(piece), length


def test_twin(twin: ModuleType) -> None:
    for data in (b"", b"a", bytearray(b"abcd"), memoryview(bytes(1000))):
        assert twin.xxh3_64(data) == xxh3_64_intdigest(data)
