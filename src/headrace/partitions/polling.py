"""Polls: from memory at once, from segment files step by step.

```
start > segment > index in memory? -- no --> ReadIndex > proven? -- no --> none of its marks count
                       | yes                               | yes               |
                       +<----------------------------------+<------------------+
                       v
         marks known? -- no --> walk the piece, 1 MiB at a time > proven by its chain > marks
              | yes                                                                       |
              +<--------------------------------------------------------------------------+
              v
         read a stretch, 1 MiB at most > proven by its chain? > enough? next one? memory?
```

Whether an offset is read from memory or from a file is decided anew at every step by one number,
the first offset of the tail. What comes from a file is served only when its chain has proven that
it is what the log has there (P6, DK15). Where it is not, a survey finds out which batches are; an
answer ends before what cannot be read, and a poll that begins there is refused with the range.

Flow:       reply.
Invariants: offsets of one answer have no gap; nothing at or beyond the end of the log is given out;
            nothing in an index file is believed that the log does not vouch for (FM-9).
"""

from bisect import bisect_left

from headrace.base.ids import unpack_namespace
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.partitions.gather import (
    NOTHING_POLLED,
    First,
    FromOffset,
    FromTimestamp,
    Gathering,
    Last,
    NextAfter,
    Polled,
    PollStart,
)
from headrace.partitions.index import SegmentIndex, decode_index
from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.options import PartitionOptions
from headrace.partitions.pieces import Stretch
from headrace.partitions.proof import FilePart, Found, Walker, prove_stretch, survey
from headrace.partitions.reply_room import READ_BYTES_MAX
from headrace.partitions.shared import PartitionsShared
from headrace.partitions.tail import MemoryTail
from headrace.partitions.writer import SegmentWriter
from headrace.ports.probes import Probes
from headrace.ports.segments import IndexRead, ReadIndex, ReadSegment, SegmentRead
from headrace.wire.batches import decode_batch_header
from headrace.wire.errors import Code, CorruptError, RefusedError

_RESTARTS_MAX = 4


class UnreadableError(Exception):
    """Offsets, from the first to the last, that the files do not have as the log has them."""

    def __init__(self, first: int, last: int, what: str) -> None:
        super().__init__(what)
        assert first <= last, "a range that cannot be read has an offset"
        self.first = first
        self.last = last


class _Poll:
    """One poll that is being answered."""

    __slots__ = (
        "at",
        "bytes_max",
        "count",
        "epoch",
        "gathering",
        "is_careful",
        "is_unread",
        "log",
        "read_length",
        "restarts",
        "segment",
        "start",
        "stretch",
        "ticket",
        "timestamp",
        "unreadable",
        "walker",
    )

    def __init__(self, ticket: int, start: PollStart, *, count: int, bytes_max: int) -> None:
        self.ticket = ticket
        self.start = start
        self.count = count
        self.bytes_max = bytes_max
        self.restarts = 0
        self.read_length = 0

    def begin(self, log: PartitionLog) -> None:
        """Begin, or begin again when what was planned is gone."""
        self.log = log
        self.epoch = log.history_epoch
        self.gathering = Gathering(0, count=self.count, bytes_max=self.bytes_max)
        self.timestamp: int | None = None  # until the first batch of that time is found
        self.at = 0  # the next offset to look at
        self.unreadable: Found | None = None  # passed in the search for a time
        self.segment: Segment | None = None
        self.stretch: Stretch | None = None
        self.walker: Walker | None = None
        self.is_careful = False  # whether stretches are read one step at a time
        self.is_unread = False  # whether the disk gave an error instead of bytes

    def is_overtaken(self, log: PartitionLog) -> bool:
        """Return whether a purge, retention or a new state has taken what was planned."""
        is_dropped = self.segment is not None and self.segment.is_dropped
        assert self.log is not log or self.epoch <= log.history_epoch, "histories count up"
        return is_dropped or self.log is not log or self.epoch != log.history_epoch

    def check(self, log: PartitionLog) -> None:
        """Assert what holds while it waits for the disk."""
        self.gathering.check(self.count, self.bytes_max)
        assert not self.gathering.is_full, "a full answer waits for nothing"
        assert self.restarts <= _RESTARTS_MAX, "a poll is planned anew some times only"
        if self.walker is not None:
            assert self.walker.stretch is self.stretch, "a walk goes through what is read"
            self.walker.check()
        if self.segment is None or self.is_overtaken(log):
            return
        assert log.find_offset(self.segment.base_offset) is self.segment, "it reads the log"
        assert self.segment.base_offset <= self.at <= self.segment.end_offset, "it reads there"
        assert self.gathering.wanted <= self.at, "it reads for what it wants, or searches before"
        assert self.gathering.wanted <= log.next_offset, "nothing beyond the log is wanted"
        assert self.timestamp is None or not self.gathering.messages_count, (
            "nothing is taken before the time is found"
        )


class Reads:
    """The polls of one partition; `log` and `tail` are those of the current history."""

    def __init__(
        self,
        options: PartitionOptions,
        log: PartitionLog,
        tail: MemoryTail,
        writer: SegmentWriter,
        shared: PartitionsShared,
        probes: Probes,
    ) -> None:
        self.log = log
        self.tail = tail
        self.polled: list[tuple[int, Polled | RefusedError]] = []
        self._partition_id = unpack_namespace(options.namespace).partition
        self._writer = writer
        self._shared = shared
        self._probes = probes
        self._waiting: dict[int, _Poll] = {}  # by the token of what they wait for

    def poll(self, ticket: int, start: PollStart, *, count: int, bytes_max: int) -> Polled | None:
        """Return the answer to a poll, or None: it is added to `polled` later.

        Raises:
            RefusedError: The first wanted batch cannot be read, or the files are not open yet.
        """
        poll = _Poll(ticket, start, count=count, bytes_max=bytes_max)
        if not self._plan(poll):
            return NOTHING_POLLED
        try:
            return self._advance(poll)
        except UnreadableError as error:
            raise self._refusal(error) from None

    # Where a poll begins.

    def _plan(self, poll: _Poll) -> bool:
        """Find where a poll begins; return whether there is anything for it."""
        log = self.log
        poll.begin(log)
        if poll.count <= 0 or not log.messages_count:
            return False
        if isinstance(poll.start, FromTimestamp):
            return self._plan_timestamp(poll, poll.start.timestamp)
        wanted = self._offset_of(poll.start, poll.count)
        poll.gathering.wanted = log.skip_gap(max(wanted, log.first_offset))
        assert poll.gathering.wanted >= log.first_offset, "what is gone is not wanted"
        return poll.gathering.wanted < log.next_offset

    def _offset_of(self, start: FromOffset | First | Last | NextAfter, count: int) -> int:
        match start:
            case FromOffset(offset=offset):
                return offset
            case First():
                return 0
            case Last():
                return self.log.segments[-1].end_offset - count  # A lost range may be the last.
            case NextAfter(stored_offset=stored):
                return 0 if stored is None else stored + 1

    def _plan_timestamp(self, poll: _Poll, timestamp: int) -> bool:
        segment = self.log.find_timestamp(timestamp)
        if segment is None:
            return False
        assert segment.newest_stamp >= timestamp, "the segment has a batch of that time"
        first = self.tail.first_offset
        if first is not None and (
            first <= segment.base_offset or self.tail.first_timestamp < timestamp
        ):
            batch = self.tail.find_timestamp(timestamp)
            assert batch is not None
            assert batch.timestamp >= timestamp, "the first batch of a time is not before it"
            poll.gathering.wanted = batch.base_offset
        else:
            poll.timestamp = timestamp
            poll.at = poll.gathering.wanted = segment.base_offset  # or later, but not earlier
        return True

    # From step to step.

    def _advance(self, poll: _Poll) -> Polled | None:
        """Go on as far as possible; return the answer, or nothing if the disk was asked."""
        while not self._is_enough(poll) and self._has_more(poll):
            if poll.timestamp is None:
                if self._take_tail(poll.gathering):
                    break
                poll.at = poll.gathering.wanted
            elif self._turn_to_tail(poll, poll.timestamp):
                continue
            poll.at = self.log.skip_gap(poll.at)
            assert poll.at < self.log.next_offset, "there is more to find"
            segment = poll.segment = self.log.find_offset(poll.at)
            if segment.index is None:
                self._writer.emit(ReadIndex(self._token(poll), segment.file))
            else:
                self._read_on(poll, segment, segment.index)
            return None
        if poll.timestamp is not None:
            self._refuse_passed(poll)
        return poll.gathering.result()

    def _is_enough(self, poll: _Poll) -> bool:
        """Return whether an answer ends here: it is full, or others need the memory for more."""
        gathering = poll.gathering
        return gathering.is_full or (
            gathering.messages_count > 0 and self._shared.replies.is_scarce
        )

    def _has_more(self, poll: _Poll) -> bool:
        """Return whether there is more to find; a poll that was overtaken is planned anew."""
        if not poll.is_overtaken(self.log):
            at = max(poll.at, poll.gathering.wanted)
            return self.log.skip_gap(at) < self.log.next_offset  # A lost range may be the last.
        if poll.gathering.messages_count and poll.epoch == self.log.history_epoch:
            return False  # What was gathered stands; of an older history it would not (P2).
        self._probes.hit("partition.read_overtaken")
        poll.restarts += 1
        if poll.restarts > _RESTARTS_MAX:
            wanted = poll.gathering.wanted
            raise UnreadableError(wanted, wanted, "overtaken by retention again and again")
        return self._plan(poll)

    def _take_tail(self, gathering: Gathering) -> bool:
        """Take what memory holds; return whether the answer ends with it."""
        wanted = self.log.skip_gap(gathering.wanted)
        if wanted != gathering.wanted:
            if gathering.messages_count:
                return True  # No answer has a gap within.
            gathering.wanted = wanted
        first = self.tail.first_offset
        if first is None or gathering.wanted < first:
            return gathering.wanted >= self.log.next_offset
        index = self.tail.find_offset(gathering.wanted)
        while not gathering.is_full and (batch := self.tail.batch_at(index)) is not None:
            if batch.base_offset > gathering.wanted:
                break  # A lost range begins here.
            gathering.take(
                base_offset=batch.base_offset, end_offset=batch.end_offset, data=batch.data
            )
            index = gathering.take_tail(self.tail.batches, index + 1)
            assert gathering.wanted <= self.log.next_offset, "memory holds nothing beyond the log"
        return True

    def _turn_to_tail(self, poll: _Poll, timestamp: int) -> bool:
        """Look a time up in memory, once the search has come to where that begins."""
        first = self.tail.first_offset
        if first is None or poll.at < first:
            return False
        if self.tail.first_timestamp < timestamp:
            poll.unreadable = None
        self._refuse_passed(poll)
        batch = self.tail.find_timestamp(timestamp)
        assert batch is not None, "the log has a batch of that time, and no file has it"
        assert batch.base_offset >= first, "memory begins there"
        poll.timestamp = None
        poll.gathering.wanted = batch.base_offset
        return True

    def _refuse_passed(self, poll: _Poll) -> None:
        """Refuse a time that may be that of a batch which cannot be read."""
        if poll.unreadable is not None:
            raise _unreadable(poll.unreadable, is_unread=poll.is_unread)

    # The index.

    def on_index(self, event: IndexRead) -> None:
        """Take the index of a sealed segment; one that is not proven is as good as none."""
        poll = self._waiting.pop(event.token)
        segment = poll.segment
        assert segment is not None
        if segment.index is None and not poll.is_overtaken(self.log):
            segment.index = self._decode_index(event, segment)
            self._shared.indexes.touch(segment)  # The poll may end before it reads there.
        self._go_on(poll)

    def _decode_index(self, event: IndexRead, segment: Segment) -> SegmentIndex:
        assert segment.is_sealed, "the index of the active segment is in memory"
        if event.data is None:
            self._probes.hit("partition.index_missing")
            return SegmentIndex(segment.pieces)
        try:
            return decode_index(
                event.data,
                segment.file,
                segment.pieces,
                length=segment.length,
                digest=segment.digest,
            )
        except CorruptError:
            self._probes.hit("partition.index_damaged")
            return SegmentIndex(segment.pieces)

    # Reading.

    def _read_on(self, poll: _Poll, segment: Segment, index: SegmentIndex) -> None:
        """Ask for the next stretch, or for the next part of a walk through one without marks."""
        assert segment.base_offset <= poll.at < segment.end_offset, "the segment holds it"
        if segment.is_sealed:
            self._shared.indexes.touch(segment)
        if poll.timestamp is not None:
            poll.at = max(poll.at, index.find_time(poll.timestamp))
        stretch = index.stretch(
            poll.at,
            poll.at + (1 if poll.is_careful else max(poll.gathering.messages_left, 1)),
            end_offset=segment.end_offset,
            bytes_max=READ_BYTES_MAX,
        )
        poll.stretch = stretch
        if stretch.is_coarse:
            poll.walker = Walker(stretch, self._partition_id, segment.index_step_bytes)
            length = min(READ_BYTES_MAX, self._file_part(stretch).length)
        else:
            length = self._file_part(stretch).length
        self._ask(poll, segment, stretch.start.position, length)

    def _file_part(self, stretch: Stretch) -> FilePart:
        """Return how much of a stretch memory does not hold, and what it holds of it."""
        end = stretch.end.offset
        first = self.tail.first_offset
        if first is None or first >= end:
            return FilePart(end, stretch.length, ())
        held = []
        index = self.tail.find_offset(first)
        while (batch := self.tail.batch_at(index)) is not None and batch.base_offset < end:
            held.append(batch.data)
            index += 1
        held_bytes = sum(map(len, held))
        assert stretch.start.offset <= first, "the start of a stretch is in its file"
        assert held_bytes < stretch.length, "memory holds the end of a stretch at most"
        return FilePart(first, stretch.length - held_bytes, tuple(held))

    def _ask(self, poll: _Poll, segment: Segment, position: int, length: int) -> None:
        assert length > 0, "a read wants bytes"
        assert position + length <= segment.length, "a read ends with its segment"
        poll.read_length = length
        self._writer.emit(ReadSegment(self._token(poll), segment.file, position, length))

    def _token(self, poll: _Poll) -> int:
        """Have a poll wait for an answer.

        Raises:
            RefusedError: The files are not open yet, or a state that came is not in them yet.
        """
        if not self._writer.is_readable:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, what="segments are being opened")
        token = self._writer.new_token()
        assert token not in self._waiting, "a token is given out once"
        self._waiting[token] = poll
        return token

    def on_read(self, event: SegmentRead) -> None:
        """Go on with the poll that asked for these bytes."""
        poll = self._waiting.pop(event.token)
        segment, stretch = poll.segment, poll.stretch
        assert segment is not None
        assert stretch is not None
        if poll.is_overtaken(self.log):
            self._go_on(poll)
            return
        assert segment.base_offset <= stretch.start.offset, "a stretch lies in its segment"
        assert stretch.end.offset <= segment.end_offset, "a stretch lies in its segment"
        data = memoryview(event.data or b"")
        poll.is_unread = event.data is None
        try:
            if poll.walker is not None:
                self._on_walked(poll, segment, poll.walker, data)
            else:
                self._on_stretch(poll, segment, stretch, data)
        except UnreadableError as error:
            self._end(poll, error)
        except RefusedError as refusal:
            self._finish(poll, refusal)

    def _on_stretch(
        self, poll: _Poll, segment: Segment, stretch: Stretch, data: memoryview
    ) -> None:
        """Take what is wanted of a stretch, if it is proven."""
        part = self._file_part(stretch)
        if len(data) == poll.read_length < part.length:  # Memory has dropped some meanwhile.
            self._ask(poll, segment, stretch.start.position, part.length)
            return
        run = prove_stretch(stretch, part, data, self._partition_id)
        if run is not None:
            found = [Found(stretch.start.offset, part.end_offset, run)]
        elif stretch.steps_count > 1:
            poll.is_careful = True  # Which step is it?
            self._go_on(poll)
            return
        else:
            self._probes.hit("partition.stretch_damaged")
            found = survey(stretch, part, data, self._partition_id)
        self._take_found(poll, found)
        self._go_on(poll)

    def _take_found(self, poll: _Poll, found: list[Found]) -> None:
        """Take the wanted batches up to the first that cannot be read.

        Raises:
            UnreadableError: Such a batch is next.
        """
        for each in found:
            if poll.timestamp is not None and not self._find_time(poll, poll.timestamp, each):
                continue
            if each.end <= poll.gathering.wanted:
                continue
            if each.run is None:
                raise _unreadable(each, is_unread=poll.is_unread)
            assert each.first <= poll.gathering.wanted, "offsets of an answer have no gap"
            poll.gathering.take_run(each.run)
            if poll.gathering.is_full:
                break
        assert poll.at < found[-1].end, "a poll goes forward"
        poll.at = found[-1].end
        self._shared.replies.grow(poll.ticket, poll.bytes_max - poll.gathering.bytes_left)

    def _find_time(self, poll: _Poll, timestamp: int, found: Found) -> bool:
        """Look for the first batch of a time; return whether it is among these."""
        if found.run is None:
            first = found.first if poll.unreadable is None else poll.unreadable.first
            poll.unreadable = Found(first, found.end, None)
            return False
        index = bisect_left(found.run.timestamps, timestamp)
        if index:
            poll.unreadable = None  # What could not be read is older than the time.
        if index == found.run.count:
            return False
        self._refuse_passed(poll)
        poll.timestamp = None
        assert found.run.offsets[index] >= poll.gathering.wanted, "a search goes forward"
        poll.gathering.wanted = found.run.offsets[index]
        return True

    def _on_walked(self, poll: _Poll, segment: Segment, walker: Walker, data: memoryview) -> None:
        """Prove a coarse stretch as far as it was read; at its end its marks are known."""
        stretch = walker.stretch
        part = self._file_part(stretch)
        end = stretch.start.position + part.length
        used = walker.feed(data[: end - walker.position])
        assert used <= len(data), "only what was read is proven"
        left = end - walker.position
        assert left >= 0, "a walk ends where memory begins"
        needed = min(READ_BYTES_MAX, left)
        if left and not used and len(data) >= BATCH_HEADER_BYTES:
            needed = decode_batch_header(data).length  # It may be longer than what was read.
        if left and (used or poll.read_length < needed <= left):
            self._ask(poll, segment, walker.position, needed)
            return
        poll.walker = None
        for batch in part.tail:
            walker.feed(batch)
        if walker.is_proven():
            self._adopt(segment, walker)
            self._go_on(poll)
        else:
            self._ask(poll, segment, stretch.start.position, part.length)

    def _adopt(self, segment: Segment, walker: Walker) -> None:
        assert walker.position <= segment.length, "a walk ends with its segment"
        assert not segment.is_dropped, "a poll that was overtaken is planned anew"
        if segment.index is None:
            segment.index = SegmentIndex(segment.pieces)
        segment.index.adopt(walker.stretch.number, walker.marks)
        if segment.is_sealed:
            self._shared.indexes.touch(segment)
            if segment.index.is_complete:
                self._probes.hit("partition.index_rebuilt")
                self._writer.write_index(segment)

    # Answers.

    def _go_on(self, poll: _Poll) -> None:
        try:
            result = self._advance(poll)
        except UnreadableError as error:
            self._end(poll, error)
        except RefusedError as refusal:
            self._finish(poll, refusal)
        else:
            if result is not None:
                self._finish(poll, result)

    def _end(self, poll: _Poll, error: UnreadableError) -> None:
        if poll.gathering.messages_count:
            self._probes.hit("partition.read_cut_short")
            self._finish(poll, poll.gathering.result())
        else:
            self._finish(poll, self._refusal(error))

    def _refusal(self, error: UnreadableError) -> RefusedError:
        self._probes.hit("partition.read_damaged")
        return RefusedError(
            Code.CANNOT_READ_MESSAGE,
            first_offset=error.first,
            last_offset=error.last,
            what=str(error),
        )

    def check(self) -> None:
        """Assert that polls wait for what the log has, and that their sums agree."""
        tickets = [poll.ticket for poll in self._waiting.values()]
        tickets += [ticket for ticket, _ in self.polled]
        assert len(dict.fromkeys(tickets)) == len(tickets), "a poll has one answer"
        assert not self.polled or self._writer.is_busy, "answers are taken"
        for poll in self._waiting.values():
            poll.check(self.log)

    def awaited_count(self) -> int:
        """Return how many answers of the disk it waits for."""
        return len(self._waiting)

    def _finish(self, poll: _Poll, result: Polled | RefusedError) -> None:
        self.polled.append((poll.ticket, result))
        self._writer.mark_busy()


def _unreadable(found: Found, *, is_unread: bool) -> UnreadableError:
    what = "the segment does not hold the batches that were committed"
    if is_unread:
        what = "the disk gave an error"
    return UnreadableError(found.first, found.end - 1, what)
