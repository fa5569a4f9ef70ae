"""Who has waited too long: keys in the order of their deadlines, all with the same patience.

One sweep a second replaces a timer for each connection: beginning and ending cost one dict entry.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class Deadlines(Generic[K]):
    """Keys that began something and must end it within so many sweeps."""

    __slots__ = ("_due", "_now", "_patience")

    def __init__(self, patience: int) -> None:
        assert patience > 0
        self._patience = patience
        self._now = 0
        self._due: dict[K, int] = {}  # Patience is one for all: order of insertion is order by due.

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def __iter__(self) -> Iterator[K]:
        return iter(self._due)

    def begin(self, key: K) -> None:
        """Give a key all the time; one that has begun already begins anew."""
        self._due.pop(key, None)
        # It began between two sweeps: the one more makes the time at least as long as promised.
        self._due[key] = self._now + self._patience + 1

    def end(self, key: K) -> None:
        """Forget a key, if it is there."""
        self._due.pop(key, None)

    def oldest(self) -> K:
        """Give the key that has waited longest; there must be one."""
        return next(iter(self._due))

    def sweep(self) -> list[K]:
        """Let a second pass; give the keys whose time is over, oldest first, and forget them."""
        self._now += 1
        expired = []
        for key, due in self._due.items():
            if due > self._now:
                break
            expired.append(key)
        for key in expired:
            del self._due[key]
        return expired
