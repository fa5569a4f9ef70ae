"""The two hashes of the protocol."""

from typing import TYPE_CHECKING, cast

import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.base.ids import Checksum

# XXH3-64, seed 0, of frames, bodies, files and records. The library's own function, without one of
# ours around it: a small request takes half a dozen of these.
xxh3_64 = cast("Callable[[bytes | bytearray | memoryview], Checksum]", xxhash.xxh3_64_intdigest)


def xxh32(data: bytes | bytearray | memoryview) -> int:
    """Return the XXH32 hash, seed 0, by which keys choose partitions and consumer names offsets."""
    return xxhash.xxh32_intdigest(data)
