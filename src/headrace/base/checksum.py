"""The two hashes of the protocol."""

import xxhash

from headrace.base.ids import Checksum


def xxh3_64(data: bytes | bytearray | memoryview) -> Checksum:
    """Return the XXH3-64 checksum, seed 0, of frames, bodies, files and records."""
    return Checksum(xxhash.xxh3_64_intdigest(data))


def xxh32(data: bytes | bytearray | memoryview) -> int:
    """Return the XXH32 hash, seed 0, by which keys choose partitions and consumer names offsets."""
    return xxhash.xxh32_intdigest(data)
