"""Writes committed batches to their segment files, and makes them durable.

```
put > waiting -- store --> handed over -- SegmentWritten --> written -- SegmentsSynced --> durable
        ^                     |                                |
        +---- no space -------+                                +-- it may leave memory
```

One round of writes is pending at a time. If one of its writes finds no space, the whole round is
repeated later: the same bytes at the same places.

Flow:       store, checkpoint.
Invariants: nothing is written before the files are taken up, with all that the checkpoint vouches
            for; a sync is asked for only when everything that it stands for is written; after a
            failure nothing more happens to the files (O2.4, P7).
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise

import msgspec

from headrace.base.limits import MIB, SEGMENT_HEADER_BYTES
from headrace.partitions.beyond import header_of
from headrace.partitions.log import Segment
from headrace.partitions.options import PartitionOptions
from headrace.partitions.shared import Owner, PartitionsShared
from headrace.partitions.tail import MemoryTail
from headrace.ports.network import Buffer
from headrace.ports.probes import Probes
from headrace.ports.segments import (
    LogEnd,
    OpenSegments,
    RemoveSegments,
    SegmentEffect,
    SegmentExtent,
    SegmentFailed,
    SegmentFile,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.wire.segment import encode_segment_header

ROUND_BYTES_MAX = 8 * MIB


class _Write(msgspec.Struct, frozen=True, gc=False):
    """Bytes that wait for their place in a file."""

    segment: Segment
    position: int
    data: Buffer
    tail: MemoryTail | None  # the tail that may drop them once they are written
    end_offset: int
    sequence: int


class SegmentWriter:
    """The files of one partition, as far as writing goes."""

    def __init__(
        self, options: PartitionOptions, shared: PartitionsShared, owner: Owner, probes: Probes
    ) -> None:
        self._options = options
        self._shared = shared
        self._owner = owner
        self._probes = probes
        self.effects: list[SegmentEffect] = []
        self.fence: str | None = None
        self.is_lacking = False  # fenced, and something is in the journal alone
        self.is_open = False
        self.waiting_bytes = 0
        self._waiting: deque[_Write] = deque()
        self._round: list[_Write] = []
        self._round_tokens: dict[int, None] = {}  # those not answered yet
        self._is_round_short = False
        self._sequence = 0  # of the last write that was put
        self._fetched = 0  # of the last one that no memory holds: it, or a later one, was installed
        self._written = 0  # everything up to this sequence is in its file
        self._wanted = 0  # `store` was asked to write everything up to this sequence
        self._dirty: dict[SegmentFile, None] = {}  # written since a sync was asked for
        self._flushes: dict[int, int] = {}  # token -> sequence that must be written first
        self._syncing: dict[int, None] = {}  # those of them whose sync is pending
        self._unindexed: deque[tuple[int, Segment]] = deque()
        self._dropped: dict[SegmentFile, None] = {}  # until their files may go
        self._dropped_captured: tuple[SegmentFile, ...] = ()  # not named by the next checkpoint
        self._is_replayed = False  # whether every start applies all drops before it opens files
        self._captured_last = 0  # the last write that the checkpoint taken last depends on,
        self._captured_in = -1  # and how many were durable then

    def emit(self, effect: SegmentEffect) -> None:
        """Have an effect carried out after those before it."""
        self.effects.append(effect)
        self.mark_busy()

    def mark_busy(self) -> None:
        """Have the owner of the shard look at this partition."""
        self._shared.busy[self._owner] = None

    @property
    def is_busy(self) -> bool:
        """Whether the owner of the shard will look at this partition."""
        return self._owner in self._shared.busy

    def new_token(self) -> int:
        """Return a token whose answer comes back to this partition."""
        return self._shared.new_token(self._owner)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written or is being written."""
        return not self._waiting and not self._round

    # Opening.

    @property
    def dropped(self) -> tuple[SegmentFile, ...]:
        """The files that the log has no more, and a checkpoint may still name."""
        return tuple(self._dropped)

    def open(self, extents: tuple[SegmentExtent, ...], end: LogEnd | None) -> None:
        """Take up the files that the checkpoint vouches for; no other if the log's end is known."""
        assert not self.is_open, "files are taken up once"
        assert not self._round, "nothing is written before the files are taken up"
        assert not self._syncing, "nothing is synced before the files are taken up"
        self._is_replayed = end is not None
        options = self._options
        self.emit(
            OpenSegments(
                self.new_token(), options.namespace, options.created_revision, extents, end
            )
        )

    def on_opened(self, event: SegmentsOpened) -> None:
        """Begin to write, or never."""
        assert not self.is_open, "files are taken up once"
        assert not self._written, "nothing is written before the files are taken up"
        if event.faults:
            self._probes.hit("partition.open_failed")
            self._fail("; ".join(fault.sentence for fault in event.faults))
            return
        self.is_open = True
        self._advance()

    @property
    def is_readable(self) -> bool:
        """Whether a read that follows now finds in the files all that memory does not hold."""
        is_handed_over = not self._waiting or self._waiting[0].sequence > self._fetched
        return self.is_open and is_handed_over

    # Writing.

    def unwritten(self) -> dict[SegmentFile, None]:
        """Return the files that lack some of their bytes."""
        return dict.fromkeys(write.segment.file for write in self._pending())

    def put(
        self,
        segment: Segment,
        position: int,
        data: Buffer,
        size: int,
        tail: MemoryTail | None,
        end_offset: int,
    ) -> None:
        """Take so many bytes for a place in a file, whose header comes with its first batch."""
        assert position < segment.length, "the log has a place for the bytes"
        if self.fence is not None:
            self.is_lacking = True
            return  # They stay in the journal; here they would only fill the memory.
        if position == SEGMENT_HEADER_BYTES:
            self._put_header(segment)
        self._sequence = sequence = self._sequence + 1
        self._waiting.append(_Write(segment, position, data, tail, end_offset, sequence))
        self.waiting_bytes += size
        if tail is None:
            self._fetched = sequence

    def _put_header(self, segment: Segment) -> None:
        self._sequence += 1
        data = header_block(segment.file)
        self._waiting.append(_Write(segment, 0, data, None, segment.base_offset, self._sequence))
        self.waiting_bytes += len(data)

    def on_memory_gone(self) -> None:
        """Note that no memory holds any more what was put so far."""
        self._fetched = self._sequence

    def seal(self, segment: Segment) -> None:
        """Have the index of a sealed segment written once its batches are."""
        assert segment.is_sealed, "what still grows has no index file"
        assert segment.file not in self._dropped, "a segment is sealed before it is dropped"
        if self.fence is None:
            self._unindexed.append((self._sequence, segment))

    def write_index(self, segment: Segment) -> None:
        """Write the index of a segment, if it is known whole."""
        index = segment.index
        if (
            index is not None
            and segment.is_sealed
            and not segment.is_dropped
            and index.is_complete
            and self.fence is None
        ):
            assert segment.pieces[-1].end_position == segment.length, "an index is of all pieces"
            assert segment.file not in self._dropped, "a file that goes needs no index"
            self.emit(WriteIndex(segment.file, index.encode(segment.file, segment.length)))

    def store(self) -> None:
        """Hand over what waits, in rounds: the next one when this one has returned."""
        assert self._written <= self._sequence, "only what was put is written"
        self._wanted = self._sequence
        self._begin_round()

    def _begin_round(self) -> None:
        is_held = self._round_tokens or self._owner in self._shared.without_space
        if not self._waiting or not self.is_open or self.fence is not None or is_held:
            return
        assert not self._round, "one round is pending at a time"
        self._round = self._take_round()
        assert self._written < self._round[0].sequence, "what is written is not written again"
        self._is_round_short = False
        for run in _runs(self._round):
            first = run[0]
            token = self.new_token()
            self._round_tokens[token] = None
            self._dirty[first.segment.file] = None
            parts = tuple([write.data for write in run])
            self.emit(WriteSegment(token, first.segment.file, first.position, parts))

    def _take_round(self) -> list[_Write]:
        """Take writes off the queue, those of one file in one run.

        With two runs, a lack of space in the first could leave the second without its file.
        """
        taken: list[_Write] = []
        files: dict[SegmentFile, int] = {}  # where the run of each ends
        size = 0
        while self._waiting and size < ROUND_BYTES_MAX:
            write = self._waiting[0]
            if files.get(write.segment.file, write.position) != write.position:
                break
            self._waiting.popleft()
            taken.append(write)
            size += len(write.data)
            files[write.segment.file] = write.position + len(write.data)
        self.waiting_bytes -= size
        assert self.waiting_bytes >= 0, "what is handed over has waited"
        return taken

    def on_written(self, event: SegmentWritten) -> None:
        """Count one write of the round; when it is over, go on or try all of it again."""
        del self._round_tokens[event.token]
        self._is_round_short |= not event.is_done
        if self._round_tokens or self.fence is not None:
            return
        written, self._round = self._round, []
        if self._is_round_short:
            self._probes.hit("partition.no_space")
            kept = [write for write in written if self._is_wanted(write)]
            self._waiting.extendleft(reversed(kept))
            self.waiting_bytes += sum(len(write.data) for write in kept)
            self._shared.without_space[self._owner] = None
            return
        assert self._written < written[-1].sequence <= self._sequence, "writes are done in order"
        self._written = written[-1].sequence
        self._release(written)
        while self._unindexed and self._unindexed[0][0] <= self._written:
            self.write_index(self._unindexed.popleft()[1])
        self._advance()

    def _release(self, written: Iterable[_Write]) -> None:
        """Note which batches may leave memory; the last one of a tail stands for all before it."""
        ends: dict[MemoryTail, int] = {}
        for write in written:
            if write.tail is not None:
                ends[write.tail] = write.end_offset
        for tail, end_offset in ends.items():
            self._shared.tails.stored(tail, end_offset)

    def retry(self) -> None:
        """Try again what found no space."""
        assert self._owner not in self._shared.without_space, "a retry ends the wait"
        self._begin_round()
        self._advance()

    # Syncing.

    def flush(self) -> int | None:
        """Make durable all that was put so far; return the token to ask `is_flushed` with.

        Return None when everything is durable already; files that are damaged after that do not
        hold up others.
        """
        if self.fence is not None and not self.is_lacking:
            return None
        if self._flushes:
            token, target = next(reversed(self._flushes.items()))
            assert target <= self._sequence, "a flush stands for what was put before it"
            if target == self._sequence:
                return token
        elif not self._waiting and not self._round and not self._dirty and self.fence is None:
            return None
        token = self.new_token()
        assert token not in self._flushes, "a token is given out once"
        self._flushes[token] = self._sequence
        self._advance()
        return token

    def is_flushed(self, token: int) -> bool:
        """Return whether a flush is durable; one that met a failure never is."""
        return token not in self._flushes

    def _advance(self) -> None:
        """Ask for the syncs that nothing stands in the way of; write for the others."""
        for token, target in self._flushes.items():
            if token in self._syncing:
                continue
            is_written = self._written >= target or not (self._waiting or self._round)
            if not is_written or not self.is_open or self.fence is not None:
                break
            assert target <= self._sequence, "a flush stands for what was put before it"
            self._syncing[token] = None
            self.emit(SyncSegments(token, tuple(self._dirty)))
            self._dirty.clear()
        if len(self._syncing) < len(self._flushes) or self._written < self._wanted:
            self._begin_round()

    def on_synced(self, event: SegmentsSynced) -> None:
        """Count a flush as done."""
        if self.fence is None:
            assert event.token in self._syncing, "a sync is answered once"
            del self._syncing[event.token]
            del self._flushes[event.token]

    def on_failed(self, event: SegmentFailed) -> None:
        """Stop until a restart: the content of the files is unknown now."""
        self._probes.hit("partition.fenced")
        self._fail(event.sentence)

    def _fail(self, sentence: str) -> None:
        if self.fence is None:
            self.fence = sentence
            self._shared.fenced[self._owner] = None
        self.is_lacking |= bool(self._round or self._waiting or self._dirty or self._flushes)
        self._release(self._pending())
        self._waiting.clear()
        self._round = []
        self._unindexed.clear()
        self.waiting_bytes = 0

    # Removing.

    def drop(self, segments: Iterable[Segment]) -> None:
        """Forget segments; their files go when a checkpoint no longer names them."""
        for segment in segments:
            assert segment.is_dropped, "the log forgets a segment first"
            assert segment.file not in self._dropped, "a segment is dropped once"
            self._dropped[segment.file] = None
            self._shared.dropping[self._owner] = None
            if not self._captured:
                self._dirty.pop(segment.file, None)
            self._shared.indexes.forget(segment)
        kept = [write for write in self._waiting if self._is_wanted(write)]
        self._waiting = deque(kept)
        self.waiting_bytes = sum(len(write.data) for write in kept)

    def _is_wanted(self, write: _Write) -> bool:
        """Return whether a write must still happen: a checkpoint may yet name a dropped file."""
        if write.sequence <= self._captured:
            return True
        return not write.segment.is_dropped and write.segment.file not in self._dropped

    def capture(self) -> None:
        """Note that a checkpoint is taken now: it does not name what was dropped before.

        What it names must be written and synced, even if it is dropped before that is done.
        """
        assert self._captured_last <= self._sequence, "a later checkpoint depends on more"
        assert self._captured_in <= self._shared.checkpoints_done, "durable checkpoints are counted"
        self._dropped_captured = tuple(self._dropped)
        self._captured_last = self._sequence
        self._captured_in = self._shared.checkpoints_done

    @property
    def _captured(self) -> int:
        """The last write that a pending checkpoint depends on; 0 if there is none."""
        is_running = self._captured_in == self._shared.checkpoints_done
        return self._captured_last if is_running else 0

    def on_checkpointed(self) -> None:
        """Remove the files that the checkpoint taken last, now durable, does not name.

        Before the files are taken up it is too early, and the next checkpoint is soon enough.
        """
        self._captured_last = 0
        if self.is_open:
            self._remove([file for file in self._dropped_captured if file in self._dropped])
            self._dropped_captured = ()
        if self.fence is not None:
            self._shared.dropping.pop(self._owner, None)  # They stay until a restart.

    def check(self) -> None:
        """Assert that queues, sums and flushes agree."""
        pending = list(self._pending())
        assert self.waiting_bytes == sum(len(write.data) for write in self._waiting), (
            "the sum is that of what waits"
        )
        for left, right in pairwise(pending):
            assert left.sequence < right.sequence, "writes keep their order"
        if pending:
            assert self._written < pending[0].sequence, "what is written waits no more"
            assert pending[-1].sequence <= self._sequence, "every write was put"
        assert self._written <= self._sequence, "only what was put is written"
        assert self._wanted <= self._sequence, "only what was put is wanted"
        assert self._fetched <= self._sequence, "only what was put was fetched"
        assert self._captured_last <= self._sequence, "a checkpoint depends on what was put"
        assert self._captured_in <= self._shared.checkpoints_done, "one checkpoint at a time"
        assert not self.effects or self.is_busy, "effects are taken"
        self._check_phase()
        self._check_flushes(pending)
        self._check_places(pending)
        self._check_dropped()

    def _pending(self) -> Iterator[_Write]:
        """Return what is not in its file yet, in order."""
        yield from self._round
        yield from self._waiting

    def _check_phase(self) -> None:
        if self.fence is not None:
            assert self.is_idle, "after a failure nothing more is written"
            assert not self._unindexed, "after a failure nothing more is written"
            return
        assert not self.is_lacking, "files lack something after a failure only"
        assert bool(self._round) == bool(self._round_tokens), "a round ends with its last answer"
        assert len(self._round_tokens) <= len(self._round), "a run of writes has one answer"
        assert self.is_open or not self._round, "nothing is written before the files are open"
        assert self.is_open or not self._syncing, "nothing is synced before the files are open"
        assert not self._round or self._owner not in self._shared.without_space, (
            "who lacks space waits for its retry"
        )
        for (low, _), (high, _) in pairwise(self._unindexed):
            assert low <= high, "indexes are written in the order of their segments"

    def _check_flushes(self, pending: list[_Write]) -> None:
        for low, high in pairwise(self._flushes.values()):
            assert low <= high <= self._sequence, "a later flush stands for as much"
        syncing = list(self._syncing)
        assert list(self._flushes)[: len(syncing)] == syncing, "syncs are asked for in order"
        if syncing and pending and self.fence is None:
            assert self._flushes[syncing[-1]] < pending[0].sequence, (
                "a sync is asked for only when all that it stands for is written"
            )

    def _check_places(self, pending: list[_Write]) -> None:
        """Assert that what waits for a file lies in it, in order, and reaches its end."""
        last: dict[Segment, _Write] = {}
        for write in pending:
            end = write.position + len(write.data)
            assert end <= write.segment.length, "the log has a place for the bytes"
            assert write.end_offset <= write.segment.end_offset, "the log has the messages"
            before = last.get(write.segment)
            assert before is None or before.position + len(before.data) <= write.position, (
                "bytes of a file are written in order"
            )
            last[write.segment] = write
        for write in last.values():
            if write.tail is not None and not write.segment.is_dropped:
                end = write.position + len(write.data)
                assert end == write.segment.length, "what waits reaches the end of its segment"
                assert write.end_offset == write.segment.end_offset, "up to its last message"

    def _check_dropped(self) -> None:
        if self._dropped and self.fence is None:
            assert self._owner in self._shared.dropping, "a checkpoint removes dropped files"
        for write in self._waiting:
            if write.sequence > self._captured:
                assert write.segment.file not in self._dropped, "no checkpoint needs the bytes"

    def check_against(self, files: Container[SegmentFile], tail: MemoryTail) -> None:
        """Assert that files of the log are not to be removed, and memory holds what waits."""
        for file in self._dropped:
            assert file not in files, "a file of the log is not dropped"
        first = tail.first_offset
        for write in self._pending():
            if write.tail is tail and not write.segment.is_dropped:
                assert write.segment.file in files, "bytes wait for a file of the log"
                assert first is not None, "a batch leaves memory only when it is written"
                assert first < write.end_offset, "a batch leaves memory only when it is written"

    def awaited_count(self) -> int:
        """Return how many answers it waits for, unless files are being opened."""
        return len(self._round_tokens) + len(self._flushes)

    def remove_dropped(self) -> None:
        """Remove the files of dropped segments before a checkpoint is durable, if that is safe.

        For a full disk: the checkpoint itself may wait for their space. A single replica applies
        the durable op that dropped them again before it opens its files (decision 0020).
        """
        if self._is_replayed:
            unwritten = self.unwritten()
            files = [file for file in self._dropped if file not in unwritten]
            self._remove(files)
            if files:
                self._probes.hit("partition.removed_on_full_disk")

    def _remove(self, files: list[SegmentFile]) -> None:
        if not self.is_open or self.fence is not None:
            return
        for file in files:
            assert file in self._dropped, "only a dropped file is removed"
            del self._dropped[file]
            self._dirty.pop(file, None)
        if files:
            self.emit(RemoveSegments(tuple(files)))
        if not self._dropped:
            self._shared.dropping.pop(self._owner, None)
        assert not self._dropped or self._owner in self._shared.dropping, "the rest goes later"


def header_block(file: SegmentFile) -> bytes:
    """Return the block that a segment file begins with."""
    return encode_segment_header(header_of(file))


def _runs(writes: list[_Write]) -> list[list[_Write]]:
    """Put writes that follow each other in one file together."""
    runs: dict[SegmentFile, list[_Write]] = {}
    for write in writes:
        runs.setdefault(write.segment.file, []).append(write)
    return list(runs.values())
