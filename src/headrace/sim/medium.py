"""What simulated disks and folders share: files on a medium, and what a power cut leaves."""

from headrace.base.prng import Prng

SECTOR_BYTES = 512


class File:
    """One file: the page cache's bytes and the medium's."""

    __slots__ = ("cached", "durable")

    def __init__(self, data: bytes = b"") -> None:
        self.cached = bytearray(data)
        self.durable = bytearray(data)

    def lose_cache(self) -> None:
        """Hold what the medium holds."""
        self.cached[:] = self.durable

    def make_durable(self) -> None:
        """Let the medium hold what the page cache does."""
        self.durable[:] = self.cached

    def spoil(self, position: int, data: bytes) -> None:
        """Damage both: who reads a damaged medium sees the damage."""
        for image in (self.durable, self.cached):
            image[position : position + len(data)] = data


def put(image: bytearray, position: int, data: bytes) -> None:
    """Write to an image; a hole before it is zeros."""
    end = position + len(data)
    if len(image) < end:
        image.extend(bytes(end - len(image)))
    image[position:end] = data


def tear(image: bytearray, position: int, data: bytes, prng: Prng) -> str:
    """Let a write that no sync covered reach the medium not at all, whole, in part or in sectors.

    Returns:
        What became of it, or nothing if it is whole.
    """
    kind = prng.below(4)
    if kind == 0:
        return "write_vanished"
    if kind == 1:
        put(image, position, data)
        return ""
    if kind == 2:
        put(image, position, data[: prng.below(len(data) + 1)])
        return "write_torn"
    end, at = position + len(data), position
    while at < end:
        sector_end = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if prng.chance(1, 2):
            put(image, at, data[at - position : sector_end - position])
        at = sector_end
    return "sectors_torn"
