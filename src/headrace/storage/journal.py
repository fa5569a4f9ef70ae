"""The journal: entries of all groups in one row of records, over a ring of files.

```
stage -> chunk -> flush: queue, sequence given -> placed: bytes, place -> written -> synced
```

A queued record waits for the opening of the store to be durable and for space; its sequence is
fixed, its place is not.

Flow:       replicate.
Invariants: sequences are placed in order, each once; a record carries the highest sequence that was
            synced when it was placed; a file is overwritten only when the ring has freed it.
"""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES, KIB, MIB
from headrace.ports.disk import AllocateJournal, WriteJournal
from headrace.storage.config import JournalKey
from headrace.storage.index import Index
from headrace.storage.outbox import Outbox
from headrace.storage.records import (
    ENTRY_BYTES,
    FLAG_NEVER_HELD,
    INDEXED,
    PREPARE_ENTRY_BYTES,
    RECORD_ALIGNMENT,
    RECORD_HEADER_BYTES,
    RECORD_VERSION,
    TERMINATOR,
    Entry,
    Head,
    Kind,
    Place,
    build_record,
    entries_bytes_max,
    prepare_body_bytes,
    record_bytes,
)
from headrace.storage.ring import CONTROL_FILES_FREE, Ring

SYNC_TICKS = 5
SYNC_BYTES = 16 * MIB
ALLOCATE_TICKS = 100
_PREPARE = int(Kind.PREPARE)
_REWRITE_RECORD_BYTES = 256 * KIB  # larger ones would waste the ends of files

assert _REWRITE_RECORD_BYTES < SYNC_BYTES, "copies do not force syncs of their own"


class _Batch(msgspec.Struct, frozen=True):
    """A record that has its sequence and waits for its place."""

    sequence: int
    entries: list[Entry]
    size: int
    sync: bool
    is_awaited: bool = False
    is_lone: bool = False


class JournalStart(msgspec.Struct, frozen=True):
    """Where the journal continues: behind which record, and in which opening of the store."""

    key: JournalKey
    opening: int
    sequence: int
    previous: int


class Journal:
    """Writes the journal of one store; its methods handle completions and time."""

    def __init__(
        self,
        start: JournalStart,
        *,
        ring: Ring,
        index: Index,
        record_bytes_max: int,
        outbox: Outbox,
    ) -> None:
        sequence = start.sequence
        assert record_bytes_max <= ring.file_bytes, "a record fits a file"
        assert ring.head.last == sequence, "the ring ends with the last record"
        self.ring = ring
        self.index = index
        self.is_open = False  # until the superblock names this opening, nothing is placed
        self.is_urgent = False  # live entries are rewritten: the last free file may be opened
        self.issued = sequence
        self.placed = sequence
        self.written = sequence
        self.synced = sequence
        self.placed_bytes = 0  # since the store was opened
        self._key = start.key
        self._opening = start.opening
        self._record_bytes_max = record_bytes_max
        self._previous = start.previous
        self._outbox = outbox
        # The entries of the next record and their size, and before it the records that are full.
        self._staged: list[Entry] = []
        self._staged_bytes = 0
        self._full: list[tuple[list[Entry], int]] = []
        self._entries_bytes_max = entries_bytes_max(record_bytes_max)
        self._queue: deque[_Batch] = deque()
        self._now = 0
        self._recorded = sequence  # the highest synced sequence that stands in a record
        self._data_last = sequence  # the last record that is no mere sync point
        self._sync_asked = sequence
        self._unsynced_bytes = 0
        self._unsynced_since = 0
        self._synced_at = 0
        self._allocating: int | None = None
        self._starved_at: int | None = None
        self._ask_space()

    @property
    def is_starved(self) -> bool:
        """Whether the disk had no space for the next file."""
        return self._starved_at is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is staged and nothing waits for its place."""
        return not self._staged and not self._queue

    def stage(self, entry: Entry, size: int) -> None:
        """Add an entry of that size to the next record."""
        assert size <= self._entries_bytes_max, "admission has refused larger ones"
        staged_bytes = self._staged_bytes + size
        if staged_bytes > self._entries_bytes_max:
            self._full.append((self._staged, self._staged_bytes))
            self._staged, staged_bytes = [], size
        self._staged.append(entry)
        self._staged_bytes = staged_bytes

    def flush(self, *, sync: bool, is_awaited: bool = True, is_lone: bool = False) -> int:
        """Queue what was staged; return the sequence of its last record, 0 if there is none.

        Without `sync` a sync follows after 5 ticks or 16 MiB. With `is_awaited` the disk reports
        the write too, not only the sync. `is_lone` as in `WriteJournal`.
        """
        entries = self._staged
        if not entries:
            return 0
        if self._full:
            for full, full_bytes in self._full:
                self._enqueue(full, full_bytes)
            self._full.clear()
        size = RECORD_HEADER_BYTES + self._staged_bytes
        size += -size % RECORD_ALIGNMENT
        self._staged, self._staged_bytes = [], 0
        assert self._data_last <= self.issued, "what was staged has a sequence of its own"
        self.issued = self._data_last = sequence = self.issued + 1
        batch = _Batch(sequence, entries, size, sync, is_awaited, is_lone)
        ring = self.ring
        is_fitting = ring.is_roomy and ring.position + size <= ring.file_bytes
        if is_fitting and self.is_open and not self._queue:
            self._place(batch)  # The usual case, where `pump` would do the same.
        else:
            self._queue.append(batch)
            self.pump()
        return sequence

    def rewrite_sizes(self, entries: Iterable[Entry]) -> list[int]:
        """Return the sizes of the records that `rewrite` would make."""
        chunks = [*self._rewrite_chunks(entries), [Entry(Kind.SYNC_POINT)]]
        return [record_bytes(sum(entry.size for entry in chunk)) for chunk in chunks]

    def queued_sizes(self) -> list[int]:
        """Return the sizes of the records that wait for their place."""
        return [batch.size for batch in self._queue]

    def rewrite(self, entries: Iterable[Entry]) -> int:
        """Queue live entries of files that are to be freed, before what is staged now."""
        for chunk in self._rewrite_chunks(entries):
            self._enqueue(chunk, sum(entry.size for entry in chunk))
            self._data_last = self.issued
        return self.write_sync_point()

    def write_sync_point(self) -> int:
        """Queue a record that asks for a sync and carries nothing else; return its sequence."""
        self._enqueue([Entry(Kind.SYNC_POINT)], ENTRY_BYTES, sync=True)
        self.pump()
        return self.issued

    def has_room(self, body_bytes: int, held_count: int, held_bytes: int) -> bool:
        """Whether an op may be admitted behind so many others of that size together."""
        assert held_bytes == 0 or held_count > 0, "bytes are held back with their ops"
        size = record_bytes(PREPARE_ENTRY_BYTES + body_bytes)
        if size > self._record_bytes_max or self.is_starved:
            return False
        if not held_count and self.fits(body_bytes):
            return True
        staged = [record_bytes(count) for count in self._staged_sizes()]
        full = self._full_records(held_count * PREPARE_ENTRY_BYTES + held_bytes)
        return self.ring.can_admit([*self.queued_sizes(), *staged, *full, size])

    def fits(self, body_bytes: int) -> bool:
        """Whether an op fits behind what is staged, in the file that is written.

        The usual case of `has_room` if nothing is held back, without a walk.
        """
        ring = self.ring
        if not ring.is_roomy or self._queue or self._full or self._starved_at is not None:
            return False
        staged_bytes = self._staged_bytes
        before = RECORD_HEADER_BYTES + staged_bytes if staged_bytes else 0
        size = RECORD_HEADER_BYTES + PREPARE_ENTRY_BYTES + body_bytes
        size += -size % RECORD_ALIGNMENT
        end = ring.position + before + -before % RECORD_ALIGNMENT + size
        return size <= self._record_bytes_max and end <= ring.file_bytes

    def _staged_sizes(self) -> list[int]:
        """Return how many bytes the entries of each record take that is not queued yet."""
        last = [self._staged_bytes] if self._staged else []
        return [size for _, size in self._full] + last

    def has_reserve(self, body_bytes: int, held_count: int, held_bytes: int, parts: int) -> bool:
        """Whether an op that may use so many parts of the reserve may be admitted (O2.10).

        It may join the record that is staged, which then as a whole may need another file.
        """
        assert held_bytes == 0 or held_count > 0, "bytes are held back with their ops"
        size = PREPARE_ENTRY_BYTES + body_bytes
        if not self._holds(size):
            return False
        staged = self._staged_sizes()
        if staged and self._holds(staged[-1] + size):
            staged[-1] += size
        else:
            staged.append(size)
        full = self._full_records(held_count * PREPARE_ENTRY_BYTES + held_bytes)
        sizes = [record_bytes(count) for count in staged]
        return self.ring.can_admit_reserved([*self.queued_sizes(), *full, *sizes], parts)

    def _full_records(self, held_bytes: int) -> list[int]:
        """Return the sizes of the records that so many bytes fill in the worst case."""
        return [self._record_bytes_max] * -(-held_bytes // self._record_bytes_max)

    def holds(self, body_bytes: int) -> bool:
        """Whether an op with a body of this size fits a record at all."""
        return self._holds(PREPARE_ENTRY_BYTES + body_bytes)

    def pump(self) -> None:
        """Place every record that has its space."""
        if not self.is_open:
            return
        leave = 0 if self.is_urgent else CONTROL_FILES_FREE
        queue, ring = self._queue, self.ring
        while queue:
            size = queue[0].size
            is_fitting = ring.is_roomy and ring.position + size <= ring.file_bytes
            if not is_fitting and not ring.can_place([size], leave=leave):
                break
            self._place(queue.popleft())
        if queue:
            self._outbox.probes.hit("journal: a record waits for space")
        assert queue or self.placed == self.issued, "a record waits until it is placed"
        if ring.is_wanting:
            self._ask_space()

    def on_allocated(self, file: int, *, is_done: bool) -> None:
        """Handle the answer to the last request for space."""
        assert file == self._allocating, "one file is asked for at a time"
        self._allocating = None
        if is_done:
            self._starved_at = None
            self.ring.allocate(file)
            self.pump()
            self._ask_space()
        else:
            self._outbox.probes.hit("journal: no space for a file")
            self._starved_at = self._now

    def on_written(self, sequence: int) -> None:
        """Handle the completion of writes."""
        assert sequence <= self.placed, "only placed records are written"
        if sequence > self.written:  # noqa: PLR1730 - a call less for every send
            self.written = sequence

    def on_synced(self, sequence: int) -> None:
        """Handle the completion of a sync."""
        assert sequence <= self.placed, "only placed records are synced"
        if sequence > self.synced:
            self.synced = sequence
            self.written = max(self.written, sequence)
            self._synced_at = self._now
        assert self.synced <= self.written, "what is synced was written"

    def tick(self, now: int) -> None:
        """Force what is due: a sync, a sync point, another request for space."""
        assert self._now <= now, "time never falls"
        self._now = now
        if self._starved_at is not None and now - self._starved_at >= ALLOCATE_TICKS:
            self._ask_space(is_retry=True)
        if self._queue or not self.is_open:
            return
        if self.placed > self._sync_asked:
            if now - self._unsynced_since >= SYNC_TICKS:
                self._outbox.probes.hit("journal: a sync is forced")
                self.write_sync_point()
        elif (
            self._recorded < self._data_last <= self.synced and now - self._synced_at >= SYNC_TICKS
        ):
            self._outbox.probes.hit("journal: idle sync point")
            self.write_sync_point()

    def check(self) -> None:
        """Assert that positions, queue, ring and index agree."""
        self.ring.check()
        self.index.check(
            newest=self.ring.head.ordinal,
            files_count=self.ring.files_count,
            file_bytes=self.ring.file_bytes,
        )
        self._check_positions()
        self._check_staged()
        self._check_queue()
        self._check_writes()

    def _check_positions(self) -> None:
        assert self.synced <= self.written <= self.placed <= self.issued, "a record goes one way"
        assert self._recorded <= self.synced, "records vouch for synced records alone"
        assert self._sync_asked <= self.placed, "a sync is asked for with a record"
        assert self._data_last <= self.issued, "data has a sequence once it is queued"
        assert self.ring.head.last == self.placed, "the ring ends with the last placed record"
        assert self.ring.used[0].first <= self.synced + 1, "only synced records are freed"
        assert self.ring.position % RECORD_ALIGNMENT == 0, "recovery looks at aligned places"
        assert self._unsynced_bytes <= self.placed_bytes, "what waits for a sync was placed"
        assert self._unsynced_bytes < SYNC_BYTES, "so many bytes ask for a sync"
        is_sync_asked = self._sync_asked == self.placed
        assert is_sync_asked == (not self._unsynced_bytes), "the rest of the records is counted"
        assert self.is_open or self.placed_bytes == 0, "the opening is durable before any record"
        assert self._unsynced_since <= self._now, "time never falls"
        assert self._synced_at <= self._now, "time never falls"

    def _check_staged(self) -> None:
        assert self._staged or not self._full, "the last record is the one that is not full"
        for entries, size in [*self._full, (self._staged, self._staged_bytes)]:
            assert size == sum(entry.size for entry in entries), "a record is as its entries"
            for entry in entries:
                if entry.has_body:
                    body_bytes = prepare_body_bytes(entry.extra)
                    assert body_bytes == len(entry.body or b""), "a header names its body"
            assert self._holds(size), "what is staged together fits one record"

    def _check_queue(self) -> None:
        sequences = [batch.sequence for batch in self._queue]
        wanted = list(range(self.placed + 1, self.issued + 1))
        assert sequences == wanted, "what was issued and not placed is queued, in order"
        for batch in self._queue:
            size = record_bytes(sum(entry.size for entry in batch.entries))
            assert batch.size == size, "a record is as large as its entries"
            assert batch.size <= self._record_bytes_max, "a record fits a file"
        leave = 0 if self.is_urgent else CONTROL_FILES_FREE
        is_placeable = self.is_open and self.ring.can_place(self.queued_sizes()[:1], leave=leave)
        assert not (self._queue and is_placeable), "no record waits that has its space"
        is_asked = self._allocating is not None or self.is_starved
        assert self.ring.wanted_file() is None or is_asked, "a wanted file is asked for"

    def _check_writes(self) -> None:
        """Assert that the records to be written lie one behind another and end at the position."""
        writes = self._outbox.waiting(WriteJournal)
        end = len(TERMINATOR)
        for before, after in pairwise(writes):
            assert before.sequence + 1 == after.sequence, "records are written in their order"
            if before.file == after.file:
                assert after.position == before.position + before.length - end, "they are adjacent"
            else:
                assert after.position == 0, "a new file begins with a record"
        if writes:
            last = writes[-1]
            is_full = self.ring.position == self.ring.file_bytes
            written = last.length if is_full else last.length - end
            assert last.sequence == self.placed, "a placed record is written"
            assert last.file == self.ring.file_of(self.ring.head.ordinal), "it is in the head"
            assert last.position + written == self.ring.position, "the next one follows it"
        asked = [effect.file for effect in self._outbox.waiting(AllocateJournal)]
        assert asked in ([], [self._allocating]), "one file is asked for at a time"

    def _holds(self, entries_bytes: int) -> bool:
        return entries_bytes <= self._entries_bytes_max

    def _rewrite_chunks(self, entries: Iterable[Entry]) -> list[list[Entry]]:
        size_max = min(_REWRITE_RECORD_BYTES, self._record_bytes_max)
        chunks: list[list[Entry]] = []
        size = 0
        for entry in entries:
            if not chunks or record_bytes(size + entry.size) > size_max:
                chunks.append([])
                size = 0
            chunks[-1].append(entry)
            size += entry.size
        return chunks

    def _enqueue(
        self,
        entries: list[Entry],
        entries_bytes: int,
        *,
        sync: bool = False,
    ) -> None:
        self.issued += 1
        size = record_bytes(entries_bytes)
        assert size <= self._record_bytes_max, "a record fits a file"
        self._queue.append(_Batch(self.issued, entries, size, sync))

    def _place(self, batch: _Batch) -> None:
        assert batch.sequence == self.placed + 1, "sequences have no gap"
        assert self.synced <= self.written <= self.placed, "a record vouches for placed ones"
        ring, sequence, size = self.ring, batch.sequence, batch.size
        head_before = ring.head.ordinal
        position = ring.advance(size, sequence)
        ordinal, files_count = ring.head.ordinal, ring.files_count
        if ordinal != head_before:
            self.index.drop_file(ordinal - files_count)
        file = ordinal % files_count
        head = Head(
            RECORD_VERSION,
            file,
            self._key.place,
            self._key.life,
            ordinal // files_count + 1,
            sequence,
            self._opening,
            self._previous,
            self.synced,
            position,
            size,
        )
        built = build_record(head, batch.entries, is_followed=position + size < ring.file_bytes)
        self._previous = built.checksum
        for entry, (header_at, body_at) in zip(batch.entries, built.places, strict=True):
            apply_to_index(
                self.index,
                entry,
                ordinal=ordinal,
                header_at=position + header_at,
                body_at=position + body_at if body_at else 0,
            )
        self.placed = sequence
        self.placed_bytes += size
        self._recorded = self.synced
        # Whether the record asks for a sync, and since when one is due.
        assert self._sync_asked < sequence, "a sync is asked for with a new record"
        self._unsynced_bytes += size
        sync = batch.sync or self._unsynced_bytes >= SYNC_BYTES
        if sync:
            self._sync_asked = sequence
            self._unsynced_bytes = 0
        elif self._sync_asked == sequence - 1:
            self._unsynced_since = self._now
        self._outbox.effects.append(
            WriteJournal(
                sequence,
                file,
                position,
                built.parts,
                built.length,
                sync,
                batch.is_awaited,
                batch.is_lone,
            )
        )

    def _ask_space(self, *, is_retry: bool = False) -> None:
        if self._allocating is not None or (self.is_starved and not is_retry):
            return
        file = self.ring.wanted_file()
        if file is None:
            self._starved_at = None
            return
        self._allocating = file
        self._outbox.put(AllocateJournal(file, self.ring.file_bytes))


def apply_to_index(
    index: Index, entry: Entry, *, ordinal: int, header_at: int, body_at: int
) -> None:
    """Apply one entry to the index, in recovery and in writing."""
    if entry.kind == _PREPARE:
        header = entry.extra
        assert body_at == 0 or header_at < body_at, "bodies follow the entries of their record"
        frame_bytes, op, group = INDEXED.unpack_from(header)
        is_never_held = bool(entry.flags & FLAG_NEVER_HELD)
        place = Place(
            ordinal,
            header_at,
            xxh3_64(header),
            body_at,
            frame_bytes - HEADER_BYTES,
            is_never_held,
        )
        index.put(group, op, place)
    elif entry.kind == Kind.TRUNCATE:
        index.truncate(entry.first, entry.second)
    elif entry.kind == Kind.GROUP_GONE:
        index.drop_group(entry.first)
