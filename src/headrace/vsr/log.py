"""The part of a group's log that consensus works on: from the commit point to the head.

Invariants: ops from `linked` to the head are known and form a chain of parent checksums; below
            `linked`, entries are only candidates.
"""

import msgspec

from headrace.ports.network import Buffer
from headrace.wire.replica.prepares import PREPARE, PrepareHeader

GENESIS = 0  # the parent of op 1


class Entry(msgspec.Struct):
    """One prepare; the body is None if only the header is known."""

    header: PrepareHeader
    body: Buffer | None
    data: bytes  # of the header
    is_durable: bool = False
    is_never_held: bool = False  # this replica certainly never acknowledged it


def entry_of(
    header: PrepareHeader,
    body: Buffer | None,
    *,
    is_durable: bool = False,
    is_never_held: bool = False,
) -> Entry:
    """Return the entry of a prepare whose bytes are not at hand."""
    return Entry(header, body, PREPARE.encode(header), is_durable, is_never_held)


class Log:
    """Entries by op, the head, and the lowest op that is linked to the head."""

    __slots__ = ("_lowest", "entries", "head", "linked")

    def __init__(self, head: int = 0) -> None:
        self.entries: dict[int, Entry] = {}
        self._lowest = head + 1  # no entry lies below
        self.head = head
        self.linked = head + 1

    def check(self) -> None:
        """Assert what holds between two steps."""
        entries, head, linked = self.entries, self.head, self.linked
        assert all(entry.header.op == op for op, entry in entries.items()), "entries are by op"
        assert self._lowest > 0, "ops are counted from one"
        assert all(self._lowest <= op <= head for op in entries), "no op lies beyond the ends"
        assert linked <= head + 1, "at most nothing is linked"
        low = max(linked, self._lowest)
        assert all(op in entries for op in range(low, head + 1)), "every linked op is known"
        for op in range(low + 1, head + 1):
            header, before = entries[op].header, entries[op - 1].header
            assert header.parent == before.checksum, "linked ops hang together"
            assert header.timestamp > before.timestamp, "stamps rise from op to op"
            assert header.commit < op, "an op is ordered before it is committed"
            assert before.commit <= header.commit, "commit points rise from op to op"

    def get(self, op: int) -> Entry | None:
        """Return the entry of an op, if it is known."""
        return self.entries.get(op)

    def put(self, entry: Entry) -> None:
        """Set or replace the entry of its op; the head does not move."""
        op = entry.header.op
        assert 0 < op <= self.head, "only an append moves the head"
        self.entries[op] = entry
        self._lowest = min(self._lowest, op)

    def append(self, entry: Entry) -> None:
        """Extend the log by the next op, whose parent is the head."""
        header, op = entry.header, self.head + 1
        assert header.op == op
        assert header.parent == (self.entries[op - 1].header.checksum if op > 1 else GENESIS)
        assert self.linked <= op, "the chain reaches from the head down"
        self.entries[op] = entry
        self.head = op

    def checksum(self, op: int) -> int:
        """Return the checksum of a known op; op 0 is the parent of the first one."""
        if op == 0:
            return GENESIS
        assert op <= self.head, "what lies above the head is not part of the log"
        return self.entries[op].header.checksum

    def whole_up_to(self, op: int) -> int:
        """Return the last op after the given one up to which every op has its body."""
        while (entry := self.entries.get(op + 1)) is not None and entry.body is not None:
            op += 1
        assert op <= self.head, "no body lies above the head"
        return op

    def drop_below(self, op: int) -> None:
        """Drop the entries below an op."""
        assert op <= self.head, "the head is never dropped"
        if op == self._lowest + 1:  # The usual case.
            if self._lowest in self.entries:
                del self.entries[self._lowest]
            self._lowest = op
            return
        if op - self._lowest > len(self.entries) + 1:
            for below in [each for each in self.entries if each < op]:
                del self.entries[below]
        else:
            for below in range(self._lowest, op):
                self.entries.pop(below, None)
        self._lowest = max(self._lowest, op)
