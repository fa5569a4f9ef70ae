"""Deadlines of equal length: keys in the order in which they expire.

One sweep per second replaces a timer per connection: begin and end cost one dict entry.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class Deadlines(Generic[K]):
    """Keys that must end what they began within a number of sweeps."""

    __slots__ = ("_due", "_now", "_patience")

    def __init__(self, patience: int) -> None:
        assert patience > 0
        self._patience = patience
        self._now = 0
        self._due: dict[K, int] = {}  # All have equal time: insertion order is deadline order.

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def __iter__(self) -> Iterator[K]:
        return iter(self._due)

    def begin(self, key: K) -> None:
        """Start the time of a key, or start it again."""
        self._due.pop(key, None)
        # It began between two sweeps: one sweep more makes the time at least as long as specified.
        self._due[key] = self._now + self._patience + 1

    def end(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._due.pop(key, None)

    def oldest(self) -> K:
        """Return the key that has waited longest; there must be one."""
        return next(iter(self._due))

    def sweep(self) -> list[K]:
        """Advance by a second; remove and return the keys whose time is over, oldest first."""
        self._now += 1
        expired = []
        for key, due in self._due.items():
            if due > self._now:
                break
            expired.append(key)
        for key in expired:
            del self._due[key]
        return expired
