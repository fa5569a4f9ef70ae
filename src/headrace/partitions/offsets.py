"""How far consumers and groups have come in a partition: one offset for each.

An offset that lies beyond the data after recovery is never moved in silence (PT-20): it is marked,
counted, and by the policy either an error for its reader or set to the end.

Flow:       apply.
Invariants: changed by applying ops and by recovery only; a stored offset moves backwards only when
            a client asks for it (P5).
"""

from collections.abc import Container, Iterable, Iterator

import msgspec

from headrace.partitions.options import AheadPolicy
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import ConsumerKind


class StoredMark(msgspec.Struct, frozen=True):
    """The last offset that a consumer or group has consumed."""

    kind: ConsumerKind
    id: int
    offset: int
    is_ahead: bool  # found beyond the data after recovery, and not stored anew since


class ConsumerOffsets:
    """All stored offsets of one partition."""

    __slots__ = ("_ahead", "_offsets_max", "by_consumer")

    def __init__(self, offsets_max: int) -> None:
        self._offsets_max = offsets_max
        self.by_consumer: dict[tuple[ConsumerKind, int], int] = {}
        self._ahead: dict[tuple[ConsumerKind, int], None] = {}

    def find(self, kind: ConsumerKind, consumer_id: int) -> int | None:
        """Return a stored offset, if there is one.

        Raises:
            RefusedError: It was ahead of the data after recovery, and the policy is to say so.
        """
        key = (kind, consumer_id)
        if key in self._ahead:
            raise RefusedError(
                Code.INVALID_OFFSET,
                offset=self.by_consumer[key],
                what="stored beyond the recovered data: store it anew or delete it",
            )
        return self.by_consumer.get(key)

    def peek(self, kind: ConsumerKind, consumer_id: int) -> int | None:
        """Return a stored offset as it is."""
        return self.by_consumer.get((kind, consumer_id))

    def refusal_to_store(self, kind: ConsumerKind, consumer_id: int) -> Code | None:
        """Return why an offset cannot be stored, or None if it can."""
        is_new = (kind, consumer_id) not in self.by_consumer
        if is_new and len(self.by_consumer) >= self._offsets_max:
            return Code.CONSUMER_OFFSET_LIMIT_REACHED
        return None

    def store(self, kind: ConsumerKind, consumer_id: int, offset: int) -> None:
        """Store an offset, also a smaller one."""
        assert (
            len(self.by_consumer) < self._offsets_max or (kind, consumer_id) in self.by_consumer
        ), "a new consumer has room: the op was refused otherwise"
        self.by_consumer[kind, consumer_id] = offset
        self._ahead.pop((kind, consumer_id), None)

    def delete(self, kind: ConsumerKind, consumer_id: int) -> bool:
        """Forget an offset; return whether there was one."""
        self._ahead.pop((kind, consumer_id), None)
        return self.by_consumer.pop((kind, consumer_id), None) is not None

    def clear(self) -> None:
        """Forget all."""
        assert len(self._ahead) <= len(self.by_consumer), "only a stored offset can be ahead"
        self.by_consumer.clear()
        self._ahead.clear()

    def smallest(self) -> int | None:
        """Return the smallest stored offset: every consumer has read up to it."""
        return min(self.by_consumer.values(), default=None)

    def lowest(self, *, but: Container[tuple[ConsumerKind, int]]) -> int | None:
        """Return the smallest offset of all but some consumers and groups."""
        found = [offset for key, offset in self.by_consumer.items() if key not in but]
        return min(found, default=None)

    def check(self, next_offset: int) -> None:
        """Assert that offsets lie in the data, but for those that recovery has marked."""
        assert self._ahead.keys() <= self.by_consumer.keys(), "only a stored offset can be ahead"
        for key, offset in self.by_consumer.items():
            assert 0 <= offset < next_offset or key in self._ahead, "a stored offset was consumed"
        smallest, lowest = self.smallest(), self.lowest(but=())
        assert smallest == lowest, "who is excepted from nothing waits for all"
        marks = list(self.marks())
        keys = [(mark.kind, mark.id) for mark in marks]
        assert keys == sorted(self.by_consumer), "the state names every consumer, in a fixed order"
        ahead = sum(mark.is_ahead for mark in marks)
        assert ahead == len(self._ahead), "the state names whoever is ahead"

    def marks(self) -> Iterator[StoredMark]:
        """Return all offsets in a fixed order."""
        for kind, consumer_id in sorted(self.by_consumer):
            key = (kind, consumer_id)
            yield StoredMark(kind, consumer_id, self.by_consumer[key], key in self._ahead)

    def restore(self, marks: Iterable[StoredMark], *, next_offset: int, policy: AheadPolicy) -> int:
        """Take over all offsets; return how many were found beyond the data."""
        self.clear()
        found = 0
        for mark in marks:
            key = (mark.kind, mark.id)
            self.by_consumer[key] = mark.offset
            is_beyond = mark.offset >= next_offset
            found += is_beyond
            if not is_beyond and not mark.is_ahead:
                continue
            if policy == AheadPolicy.FAIL:
                self._ahead[key] = None
            elif next_offset == 0:
                del self.by_consumer[key]  # There is no message that it could stand at.
            else:
                self.by_consumer[key] = min(mark.offset, next_offset - 1)
        assert policy == AheadPolicy.FAIL or not self._ahead, "by this policy none stays ahead"
        assert len(self._ahead) <= len(self.by_consumer), "only a stored offset can be ahead"
        return found
