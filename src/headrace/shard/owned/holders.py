"""Decides which stored offsets still keep messages from retention (O3.4).

```
stored -- counts --> no store, poll or join for `idle_ticks` --> does not count --> used: counts
```

When an offset was last used is known in memory alone. A start, and a new primary, take every stored
offset as used just now: data is kept longer, never shorter (decision 0020). Ticks are counted, so
a clock that leaps changes nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headrace.partitions.offsets import StoredMark
from headrace.wire.numbers import ConsumerKind

Key: TypeAlias = tuple[ConsumerKind, int]


class Holders:
    """The stored offsets of all partitions whose topics have limits."""

    def __init__(self, idle_ticks: int) -> None:
        assert idle_ticks > 0
        self._idle_ticks = idle_ticks
        # By partition and key: when it was used, and the generation of its group then.
        self._used: dict[int, dict[Key, tuple[int, int]]] = {}

    def touch(self, namespace: int, key: Key, now: int) -> None:
        """Note a store or a poll; an offset that is not known yet is known with the next look."""
        used = self._used.get(namespace)
        if used is not None and key in used:
            assert used[key][0] <= now, "ticks do not go back"
            used[key] = (now, used[key][1])

    def find_idle(
        self,
        namespace: int,
        marks: Iterable[StoredMark],
        generation_of: Callable[[int], int],
        now: int,
    ) -> dict[Key, None]:
        """Return those of the stored offsets that do not count now.

        `generation_of` returns the generation of a group: it rises when a member joins.
        """
        before = self._used.get(namespace, {})
        used: dict[Key, tuple[int, int]] = {}
        for mark in marks:
            key = (mark.kind, mark.id)
            generation = generation_of(mark.id) if mark.kind == ConsumerKind.GROUP else 0
            last, seen = before.get(key, (now, generation))
            assert last <= now, "ticks do not go back"
            used[key] = (last if seen == generation else now, generation)
        self._used[namespace] = used
        oldest = now - self._idle_ticks
        return {key: None for key, (last, _) in used.items() if last <= oldest}

    def forget(self, namespace: int) -> None:
        """Forget a partition that is gone, or has no limits any more."""
        self._used.pop(namespace, None)

    def check(self, now: int, limited: Mapping[int, object]) -> None:
        """Assert that it knows of partitions with limits alone, and of nothing in the future."""
        assert self._used.keys() <= limited.keys(), "only where segments are dropped offsets count"
        for used in self._used.values():
            for (kind, _), (last, generation) in used.items():
                assert last <= now, "no offset was used in the future"
                assert generation >= 0, "generations are counted from 0"
                assert generation == 0 or kind == ConsumerKind.GROUP, "only groups have members"
