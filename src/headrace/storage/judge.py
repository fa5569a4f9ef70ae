"""Distinguishes a torn tail from rot; decides where the journal ends and continues.

```
tail ........ synced ........ end
     rot: never cut    torn: cut at the first bad record
```

The highest sequence known to be synced alone decides. Below it a missing record is damage: what
lies behind it is still used. Above it the row ends at the first missing record, and what lies
behind that was never acknowledged.

Invariants: judging the same bytes twice gives the same verdict; what this opening will overwrite is
            returned as cut bytes first.
"""

from collections.abc import Mapping

import msgspec

from headrace.ports.recovered import Finding
from headrace.storage.config import journal_name
from headrace.storage.records import TERMINATOR, Entry, Head, Kind, read_entries
from headrace.storage.ring import UsedFile
from headrace.storage.superblock import Superblock
from headrace.wire.errors import CorruptError


class Cut(msgspec.Struct, frozen=True):
    """Bytes behind the end of the journal, kept as evidence: they go to a file `quarantine.<n>`."""

    file: str
    position: int
    data: bytes


class GoodRecord(msgspec.Struct, frozen=True):
    """A record of the row, its entries with the places of their headers and bodies."""

    head: Head
    ordinal: int
    entries: list[tuple[Entry, int, int]]


class Hole(msgspec.Struct, frozen=True):
    """Synced records that are missing; they may have begun `file_next` if it is set."""

    first: int
    last: int
    file: str
    position: int
    file_next: str = ""


class Shortened(msgspec.Struct, frozen=True):
    """A file that was allocated and is shorter now: synced records at its end may be lost."""

    file: str
    length: int
    length_wanted: int


class Verdict(msgspec.Struct, kw_only=True):
    """The contents of the journal; it continues at `position` of the last file in use."""

    records: list[GoodRecord]
    holes: list[Hole]
    shortened: list[Shortened]
    cuts: list[Cut]
    findings: list[Finding]
    synced: int
    last: int
    previous: int
    used: list[UsedFile]
    position: int
    is_torn: bool

    @property
    def is_rotten(self) -> bool:
        """Whether synced records are missing."""
        return bool(self.holes)


class Judge:
    """Judges the records of one journal."""

    def __init__(
        self, superblock: Superblock, files: Mapping[str, bytes], *, replica_count: int
    ) -> None:
        self._superblock = superblock
        self._files = files
        self._files_count = superblock.journal_files
        self._file_bytes = superblock.file_bytes
        # Whether a torn body ends the row: a single replica has no peer to restore it.
        self._ends_at_torn_body = replica_count == 1
        self._findings: list[Finding] = []
        self._synced = superblock.synced

    def judge(self, heads: list[Head]) -> Verdict:
        """Return the row of records from the tail on, with the damage found in it."""
        row = self._current(heads)
        self._synced = max([self._synced, *(record.head.synced for record in row.values())])
        records, holes, last = self._walk(row)
        ordinal, position = self._end(records, last)
        is_cut = self._is_torn(heads, row, last, ordinal, position)
        if is_cut and not self._has_view_behind_torn_body(records):
            # All groups are suspect anyway: they end where they are whole.
            self._ends_at_torn_body = True
            records, holes, last = self._walk(row)
            ordinal, position = self._end(records, last)
        used = self._used_files(records, ordinal, last)
        assert self._superblock.synced <= self._synced, "no record takes back what was named"
        assert self._synced <= last, "what was synced is read, or is a hole"
        assert len(used) <= self._files_count, "no file is in use twice"
        is_end_known = not holes or holes[-1].last != last
        is_torn = is_end_known and self._is_torn(heads, row, last, ordinal, position)
        cuts = []
        if is_torn:
            cuts = self._cuts(heads, row, last, ordinal, position)
        elif not is_end_known:
            cuts = self._evidence(heads, ordinal + 1)
        if (holes or self._is_short(ordinal)) and len(used) < self._files_count:
            # The head may be damaged too: the next record begins a new file, and the next
            # checkpoint frees everything before it.
            used.append(UsedFile(ordinal + 1, last + 1, last))
            position = 0
        elif not is_end_known:
            # No file is free: overwrite what cannot be read any more.
            position = self._good_end(records, ordinal)
            data = self._data(ordinal)[position:].rstrip(b"\0")
            cuts = [Cut(journal_name(ordinal % self._files_count), position, data)]
        assert not cuts or is_torn or not is_end_known, "a known, whole end is not cut"
        previous = 0
        if records and records[-1].head.sequence == last:
            previous = records[-1].head.checksum
        return Verdict(
            records=records,
            holes=holes,
            shortened=self._shortened(heads, ordinal),
            cuts=cuts,
            findings=self._findings,
            synced=self._synced,
            last=last,
            previous=previous,
            used=used,
            position=position,
            is_torn=is_torn,
        )

    def _ordinal(self, head: Head) -> int:
        return (head.lap - 1) * self._files_count + head.file

    def _data(self, ordinal: int) -> bytes:
        return self._files.get(journal_name(ordinal % self._files_count), b"")

    def _shortened(self, heads: list[Head], ordinal: int) -> list[Shortened]:
        """Return the files of the row, and the next one, that have lost their end.

        No record says how far the newest file was synced once its end is lost. Nothing can follow
        the next file while it is empty.
        """
        first = self._superblock.tail_ordinal
        found = []
        for each in range(first, min(ordinal + 2, first + self._files_count)):
            length = len(self._data(each))
            if length < self._file_bytes and self._was_allocated(heads, each):
                name = journal_name(each % self._files_count)
                found.append(Shortened(name, length, self._file_bytes))
        return found

    def _was_allocated(self, heads: list[Head], ordinal: int) -> bool:
        """Whether a file had its length once: it was written, or one that is made later is there.

        Files are made one after another, each durable before the next.
        """
        if ordinal >= self._files_count:
            return True  # An earlier lap has been through it.
        later = range(ordinal + 1, self._files_count)
        return any(head.file == ordinal for head in heads) or any(
            len(self._data(each)) >= self._file_bytes for each in later
        )

    def _is_short(self, ordinal: int) -> bool:
        """Whether an allocated file has become shorter."""
        data = self._data(ordinal)
        return 0 < len(data) < self._file_bytes

    def _current(self, heads: list[Head]) -> dict[int, GoodRecord]:
        """Return each sequence once, without old laps and records that an earlier recovery cut."""
        floors = self._void_from(heads)
        row: dict[int, GoodRecord] = {}
        for head in sorted(heads, key=lambda one: (one.sequence, one.opening)):
            if not self._superblock.tail <= head.sequence < floors[head.opening]:
                continue
            ordinal = self._ordinal(head)
            if not 0 <= ordinal - self._superblock.tail_ordinal < self._files_count:
                continue
            try:
                entries = read_entries(self._data(ordinal), head)
            except CorruptError:
                continue
            assert len(entries) == head.entries_count, "entries are read whole or not at all"
            row[head.sequence] = GoodRecord(head, ordinal, entries)
        return {sequence: row[sequence] for sequence in row if _is_linked(row, sequence)}

    def _void_from(self, heads: list[Head]) -> dict[int, int]:
        """Return for each opening the sequence from which a later one made its records void."""
        starts: dict[int, int] = {}
        for head in heads:
            starts[head.opening] = min(starts.get(head.opening, head.sequence), head.sequence)
        for one in self._superblock.history:
            starts[one.number] = one.first_sequence
        floors: dict[int, int] = {}
        floor = 1 << 64
        for opening in sorted(starts, reverse=True):
            floors[opening] = floor
            floor = min(floor, starts[opening])
        return floors

    def _walk(self, row: dict[int, GoodRecord]) -> tuple[list[GoodRecord], list[Hole], int]:
        """Follow the sequences from the tail on; end at the first that is missing and unsynced."""
        records: list[GoodRecord] = []
        holes: list[Hole] = []
        sequence = self._superblock.tail
        while True:
            record = row.get(sequence)
            if record is not None and not self._is_end(record):
                records.append(record)
                sequence += 1
            elif record is None and sequence <= self._synced:
                assert not holes or holes[-1].last < sequence, "holes do not overlap"
                holes.append(self._hole(row, records, sequence))
                sequence = holes[-1].last + 1
            else:
                return records, holes, sequence - 1

    def _is_end(self, record: GoodRecord) -> bool:
        """Whether a record ends the row although its entries are whole, for it lacks a body."""
        return self._ends_at_torn_body and self._lacks_body(record)

    def _lacks_body(self, record: GoodRecord) -> bool:
        return record.head.sequence > self._synced and any(
            entry.has_body and not at for entry, _, at in record.entries
        )

    def _has_view_behind_torn_body(self, records: list[GoodRecord]) -> bool:
        """Whether a cut at the first torn body would forget a view.

        Views are kept if in doubt (MD-26): a sync may have returned, and what follows be rot.
        """
        is_behind = False
        for record in records:
            is_behind = is_behind or self._lacks_body(record)
            if is_behind and any(entry.kind == Kind.VIEW_STATE for entry, _, _ in record.entries):
                return True
        return False

    def _hole(self, row: dict[int, GoodRecord], records: list[GoodRecord], first: int) -> Hole:
        last = first
        while last + 1 not in row and last < self._synced:
            last += 1
        assert first <= last <= self._synced, "what was never synced is no hole"
        ordinal, position = self._end(records, first - 1)
        file_next = ""
        if position == self._file_bytes:
            ordinal, position = ordinal + 1, 0
        elif self._may_begin_next(row, first, ordinal, position):
            file_next = journal_name((ordinal + 1) % self._files_count)
        return Hole(first, last, journal_name(ordinal % self._files_count), position, file_next)

    def _may_begin_next(
        self, row: dict[int, GoodRecord], first: int, ordinal: int, position: int
    ) -> bool:
        """Whether a missing record may have begun the next file, for nothing lies in its place."""
        data = self._data(ordinal)
        is_end = data[position : position + len(TERMINATOR)] == TERMINATOR
        return is_end and not any(
            record.ordinal == ordinal
            or (record.ordinal == ordinal + 1 and not record.head.position)
            for sequence, record in row.items()
            if sequence > first
        )

    def _end(self, records: list[GoodRecord], last: int) -> tuple[int, int]:
        """Return file and position behind the record `last`; the end of the file if it is lost."""
        if not records:
            is_fresh = last == self._superblock.tail - 1
            return self._superblock.tail_ordinal, 0 if is_fresh else self._file_bytes
        end = records[-1]
        assert end.head.sequence <= last, "the row ends with its last record, or a hole"
        if end.head.sequence == last:
            return end.ordinal, end.head.position + end.head.length
        return end.ordinal, self._file_bytes

    def _good_end(self, records: list[GoodRecord], ordinal: int) -> int:
        if not records or records[-1].ordinal != ordinal:
            return 0
        return records[-1].head.position + records[-1].head.length

    def _used_files(self, records: list[GoodRecord], ordinal: int, last: int) -> list[UsedFile]:
        """Return the files from the tail to the head, with the sequences each holds."""
        firsts: dict[int, int] = {}
        for record in records:
            firsts.setdefault(record.ordinal, record.head.sequence)
        used: list[UsedFile] = []
        following = last + 1
        for one in range(ordinal, self._superblock.tail_ordinal - 1, -1):
            first = firsts.get(one, following)
            used.append(UsedFile(one, first, following - 1))
            following = first
        used.reverse()
        assert used[0].ordinal == self._superblock.tail_ordinal, "the tail is in use"
        assert used[-1].last == last, "the head ends the row"
        assert used[-1].ordinal - used[0].ordinal + 1 == len(used), "files are a run of ordinals"
        used[0].first = self._superblock.tail
        return used

    def _is_torn(
        self,
        heads: list[Head],
        row: dict[int, GoodRecord],
        last: int,
        ordinal: int,
        position: int,
    ) -> bool:
        """Whether something was written behind the end, or what ends the journal is damaged."""
        if self._superblock.is_clean and last == self._superblock.synced:
            return False
        if any(sequence > last for sequence in row):
            return True
        data = self._data(ordinal)
        is_within = position < self._file_bytes and bool(data)
        if is_within and data[position : position + len(TERMINATOR)] != TERMINATOR:
            return True
        if ordinal + 1 - self._superblock.tail_ordinal >= self._files_count:
            return False
        following = self._data(ordinal + 1)
        file = (ordinal + 1) % self._files_count
        is_old = any(head.file == file and head.position == 0 for head in heads)
        return not is_old and following[: len(TERMINATOR)].strip(b"\0") != b""

    def _cuts(
        self,
        heads: list[Head],
        row: dict[int, GoodRecord],
        last: int,
        ordinal: int,
        position: int,
    ) -> list[Cut]:
        """Return the bytes behind the end that are not of an old lap."""
        file = ordinal % self._files_count
        old = [
            head.position
            for head in heads
            if head.file == file
            and head.position >= position
            and head.sequence < self._superblock.tail
        ]
        data = self._data(ordinal)[position : min(old, default=self._file_bytes)].rstrip(b"\0")
        cuts = [Cut(journal_name(file), position, data)]
        for sequence in sorted(row):
            record = row[sequence]
            if sequence > last and record.ordinal != ordinal:
                start = record.head.position
                stray = self._data(record.ordinal)[start : start + record.head.length]
                cuts.append(Cut(journal_name(record.head.file), start, stray))
        if len(cuts) == 1:  # A record that began the next file may be torn too.
            cuts += self._evidence(heads, ordinal + 1)
        return [cut for cut in cuts if cut.data]

    def _evidence(self, heads: list[Head], ordinal: int) -> list[Cut]:
        """Return the bytes of a file that will be overwritten and are not of an old lap."""
        if ordinal - self._superblock.tail_ordinal >= self._files_count:
            return []
        file = ordinal % self._files_count
        if any(head.file == file and head.position == 0 for head in heads):
            return []
        data = self._data(ordinal).rstrip(b"\0")
        return [Cut(journal_name(file), 0, data)] if data else []


def _is_linked(row: dict[int, GoodRecord], sequence: int) -> bool:
    """Whether the record that follows, if there is one, names this one as its predecessor."""
    following = row.get(sequence + 1)
    return following is None or following.head.previous in (0, row[sequence].head.checksum)
