"""Which shard of this node holds the link to a shard of another: a table that all shards share.

Flow:       route.
Invariants: a link has at most one holder; only the holder gives it up (SH-28).

The table is an anonymous memory file that is made before the shards are started and inherited by
all. A slot is two bytes, and names a shard of this node or `NOBODY`:

```
slot of (replica, shard) = replica * shard_count + shard
empty  -- claim by k -->  k  -- clear by k -->  empty
                          k  -- claim by k -->  k          granted: it has the link already
                          k  -- claim or clear by another: refused
```

Compare-and-set: Python has none for mapped memory, so a claim or clear holds a record lock on the
bytes of its slot. It is a lock of POSIX, which a process owns and the kernel frees when that dies;
those of open file descriptions would not do, because an inherited descriptor is the same open file
in all shards and would let all of them in. A function of the C kernel would be faster, but could
have no twin in Python; a slot changes only when a link is made or lost. A shard that is stopped
within a claim holds up only who wants the same link.

Readers take no lock: a slot is aligned and copied as one word of two bytes, so it is read before
or after a change and never between. What a shard that died has left is not cleaned up: its node
starts again, with a new table.
"""

import fcntl
import mmap
import os

from headrace.base.ids import NOBODY, ShardId
from headrace.base.placement import SHARDS_MAX

REPLICA_IDS = 256

_SLOT_BYTES = 2
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class OwnerTable:
    """The table as one process has it; only one thread of a process may claim and clear."""

    def __init__(self, fd: int, shard_count: int) -> None:
        """Map the table of an inherited descriptor, which the table now owns."""
        assert 0 < shard_count <= SHARDS_MAX
        assert os.fstat(fd).st_size == _table_bytes(shard_count)
        self.fd = fd
        self._shard_count = shard_count
        self._memory = mmap.mmap(fd, _table_bytes(shard_count))
        self._slots = memoryview(self._memory).cast("H")

    @classmethod
    def create(cls, shard_count: int) -> "OwnerTable":
        """Make an empty table; children inherit it by its `fd`."""
        assert 0 < shard_count <= SHARDS_MAX
        fd = os.memfd_create("headrace-owners", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, _table_bytes(shard_count))
        # Its size is fixed: a table that shrank would end every process that reads it.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        table = cls(fd, shard_count)
        table._memory[:] = NOBODY.to_bytes(_SLOT_BYTES, "little") * len(table._slots)
        return table

    def holder_of(self, *, replica: int, shard: ShardId) -> ShardId:
        """Return the shard of this node that holds the link to a peer's shard, or `NOBODY`."""
        return ShardId(self._slots[self._slot(replica, shard)])

    def claim(self, *, replica: int, shard: ShardId, holder: ShardId) -> bool:
        """Take a link for a shard of this node; return whether it has it now.

        Refused, the new connection is dropped before anything is started on it.
        """
        self._checked(holder)
        found = self._exchange(self._slot(replica, shard), NOBODY, holder)
        return found in (NOBODY, holder)

    def clear(self, *, replica: int, shard: ShardId, holder: ShardId) -> bool:
        """Give a link up; return whether the shard had it. Another's link is left alone."""
        self._checked(holder)
        return self._exchange(self._slot(replica, shard), holder, NOBODY) == holder

    def close(self) -> None:
        """Let go of the memory and the descriptor; the table of the others stays."""
        self._slots.release()
        self._memory.close()
        os.close(self.fd)

    def _exchange(self, slot: int, expected: ShardId, wanted: ShardId) -> int:
        """Set a slot if it is as expected; return what it was."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX, _SLOT_BYTES, slot * _SLOT_BYTES)
        try:
            found = self._slots[slot]
            if found == expected:
                self._slots[slot] = wanted
            return found
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, _SLOT_BYTES, slot * _SLOT_BYTES)

    def _slot(self, replica: int, shard: ShardId) -> int:
        assert 0 <= replica < REPLICA_IDS
        return replica * self._shard_count + self._checked(shard)

    def _checked(self, shard: ShardId) -> ShardId:
        assert 0 <= shard < self._shard_count
        return shard


def _table_bytes(shard_count: int) -> int:
    return REPLICA_IDS * shard_count * _SLOT_BYTES
