"""A seeded random generator of our own, so that no upgrade changes what a seed means.

xoshiro256** (Blackman and Vigna), its state filled by SplitMix64.
"""

from collections.abc import MutableSequence, Sequence
from typing import TypeVar

from headrace.base.checksum import xxh3_64

_T = TypeVar("_T")
_U64 = (1 << 64) - 1


class Prng:
    """Equal seeds give equal draws, on every machine and in every process."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        assert 0 <= seed <= _U64
        state = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & _U64
            mixed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & _U64
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _U64
            state.append(mixed ^ mixed >> 31)
        self._state = (state[0], state[1], state[2], state[3])

    def u64(self) -> int:
        """Draw a number of 64 bits."""
        s0, s1, s2, s3 = self._state
        result = _rotate_left(s1 * 5 & _U64, 7) * 9 & _U64
        shifted = s1 << 17 & _U64
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        self._state = (s0, s1, s2, _rotate_left(s3, 45))
        return result

    def below(self, bound: int) -> int:
        """Draw a number from 0 up to, not including, `bound`, all equally likely."""
        assert 0 < bound <= _U64
        # Draws past the last whole multiple of the bound would favour small results.
        limit = (1 << 64) - (1 << 64) % bound
        while (draw := self.u64()) >= limit:
            pass
        return draw % bound

    def between(self, low: int, high: int) -> int:
        """Draw a number from `low` to `high`, both included."""
        assert low <= high
        return low + self.below(high - low + 1)

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return true in `numerator` of `denominator` draws."""
        assert 0 <= numerator <= denominator
        return self.below(denominator) < numerator

    def choice(self, options: Sequence[_T]) -> _T:
        """Draw one of the options."""
        return options[self.below(len(options))]

    def shuffle(self, items: MutableSequence[_T]) -> None:
        """Put the items in a random order, in place."""
        for last in range(len(items) - 1, 0, -1):
            chosen = self.below(last + 1)
            items[last], items[chosen] = items[chosen], items[last]

    def bytes(self, count: int) -> bytes:
        """Draw `count` bytes."""
        assert count >= 0
        words = (count + 7) // 8
        return b"".join(self.u64().to_bytes(8, "little") for _ in range(words))[:count]

    def fork(self, name: str) -> "Prng":
        """Return a generator for one purpose, so that draws for another do not disturb it.

        Forking the same name twice returns two different generators: the parent moves on.
        """
        return Prng(self.u64() ^ xxh3_64(name.encode()))


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _U64
