"""Polls: from memory at once, from segment files step by step.

```
start > segment > index in memory? -- no --> ReadIndex > good? -- no --> walk the file's batches
                       | yes                               | yes               |
                       +<----------------------------------+<------------------+
                       v
                 ReadSegment, 1 MiB at most > check each batch > enough? next file? memory?
```

Whether an offset is read from memory or from a file is decided anew at every step by one number,
the first offset of the tail. Every batch from a file is verified before it is believed (P6); damage
behind a good beginning ends the answer there, damage at the beginning is an error.

Flow:       reply.
Invariants: offsets of one answer have no gap; nothing at or beyond the end of the log is given out;
            an index that disagrees with the log is replaced, never followed (DK9).
"""

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import MIB, SEGMENT_HEADER_BYTES
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
from headrace.partitions.index import Place, SegmentIndex, decode_index
from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.shared import PartitionsShared
from headrace.partitions.tail import MemoryTail
from headrace.partitions.walk import DamageError, check_batch, check_header, walk_batches
from headrace.partitions.writer import SegmentWriter
from headrace.ports.probes import Probes
from headrace.ports.segments import IndexRead, ReadIndex, ReadSegment, SegmentRead
from headrace.wire.batches import BatchHeader, decode_batch_header
from headrace.wire.errors import Code, CorruptError, RefusedError

READ_BYTES_MAX = MIB
_RESTARTS_MAX = 4


class _Poll:
    """One poll on its way."""

    __slots__ = (
        "bytes_max",
        "count",
        "damage_end",
        "doubted",
        "epoch",
        "gathering",
        "is_doubting",
        "is_from_index",
        "log",
        "place",
        "read_from",
        "read_length",
        "restarts",
        "segment",
        "start",
        "ticket",
        "timestamp",
        "walking",
    )

    def __init__(self, ticket: int, start: PollStart, *, count: int, bytes_max: int) -> None:
        self.ticket = ticket
        self.start = start
        self.count = count
        self.bytes_max = bytes_max
        self.restarts = 0
        self.read_from = self.read_length = 0

    def begin(self, log: PartitionLog) -> None:
        """Begin, or begin again when what was planned is gone."""
        self.log = log
        self.epoch = log.history_epoch
        self.gathering = Gathering(0, count=self.count, bytes_max=self.bytes_max)
        self.timestamp: int | None = None  # until the first batch of that time is found
        self.segment: Segment | None = None
        self.place: Place | None = None  # the next batch to look at
        self.damage_end: Place | None = None  # where the batch behind a damaged one is
        self.is_from_index = False  # whether nothing but the index says that it is there
        self.walking: SegmentIndex | None = None
        self.is_doubting = False  # whether the walk is to show if the index is wrong
        self.doubted: tuple[int, int] | None = None  # what cannot be read if the index is right

    def is_overtaken(self, log: PartitionLog) -> bool:
        """Whether a purge, retention or a new state has taken what was planned."""
        is_dropped = self.segment is not None and self.segment.is_dropped
        return is_dropped or self.log is not log or self.epoch != log.history_epoch

    def find_in(self, index: SegmentIndex) -> Place | None:
        """Look up what is wanted."""
        if self.timestamp is not None:
            return index.find_timestamp(self.timestamp)
        return index.find_offset(self.gathering.wanted)


class Reads:
    """The polls of one partition; `log` and `tail` are those of the current history."""

    def __init__(
        self,
        log: PartitionLog,
        tail: MemoryTail,
        writer: SegmentWriter,
        shared: PartitionsShared,
        probes: Probes,
    ) -> None:
        self.log = log
        self.tail = tail
        self.polled: list[tuple[int, Polled | RefusedError]] = []
        self._writer = writer
        self._shared = shared
        self._probes = probes
        self._waiting: dict[int, _Poll] = {}  # by the token of what they wait for

    def poll(self, ticket: int, start: PollStart, *, count: int, bytes_max: int) -> Polled | None:
        """Answer a poll at once, or give nothing and the answer later in `polled`.

        Raises:
            RefusedError: The first wanted batch cannot be read, or the files are not open yet.
        """
        poll = _Poll(ticket, start, count=count, bytes_max=bytes_max)
        if not self._plan(poll):
            return NOTHING_POLLED
        try:
            return self._advance(poll)
        except DamageError as damage:
            raise self._refusal(poll, damage) from None

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
        return poll.gathering.wanted < log.next_offset

    def _offset_of(self, start: FromOffset | First | Last | NextAfter, count: int) -> int:
        match start:
            case FromOffset(offset=offset):
                return offset
            case First():
                return 0
            case Last():
                return self.log.next_offset - count
            case NextAfter(stored_offset=stored):
                return 0 if stored is None else stored + 1

    def _plan_timestamp(self, poll: _Poll, timestamp: int) -> bool:
        segment = self.log.find_timestamp(timestamp)
        if segment is None:
            return False
        first = self.tail.first_offset
        if first is not None and (
            first <= segment.base_offset or self.tail.first_timestamp < timestamp
        ):
            batch = self.tail.find_timestamp(timestamp)
            assert batch is not None
            poll.gathering.wanted = batch.base_offset
        else:
            poll.timestamp = timestamp
            poll.segment = segment
            poll.gathering.wanted = segment.base_offset  # or later, but not earlier
        return True

    # From step to step.

    def _advance(self, poll: _Poll) -> Polled | None:
        """Go on as far as possible; return the answer, or nothing if the disk was asked."""
        while not poll.gathering.is_full and self._has_more(poll):
            gathering = poll.gathering
            if poll.timestamp is None and self._take_tail(gathering):
                break
            segment = poll.segment
            if segment is None:
                segment = poll.segment = self.log.find_offset(gathering.wanted)
            if poll.place is None:
                if self._find_place(poll, segment):
                    continue
                return None
            if poll.place.position < segment.length:
                length = self._read_length(gathering, segment)
                self._ask(poll, segment, poll.place.position, length)
                return None
            self._enter_next(poll, segment)
        return poll.gathering.result()

    def _has_more(self, poll: _Poll) -> bool:
        """Whether there is more to find; a poll that was overtaken is planned anew."""
        if not poll.is_overtaken(self.log):
            return poll.gathering.wanted < self.log.next_offset
        if poll.gathering.messages_count and poll.epoch == self.log.history_epoch:
            return False  # What was gathered stands; of an older history it would not (P2).
        self._probes.hit("partition.read_overtaken")
        poll.restarts += 1
        if poll.restarts > _RESTARTS_MAX:
            raise DamageError("overtaken by retention again and again")
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
            index = gathering.take_run(self.tail.batches, index + 1)
        return True

    def _enter_next(self, poll: _Poll, segment: Segment) -> None:
        """Go on with the file after one that was read to its end."""
        following = self.log.following(segment)
        # An answer ends before a lost range; only the search for a time goes past one.
        is_next = following is not None and following.base_offset == poll.gathering.wanted
        if following is None or not (is_next or poll.timestamp is not None):
            raise DamageError(f"{segment.file} ends before offset {poll.gathering.wanted}")
        poll.segment = following
        poll.place = Place(following.base_offset, SEGMENT_HEADER_BYTES)
        poll.is_from_index = False

    # The index.

    def _find_place(self, poll: _Poll, segment: Segment) -> bool:
        """Find where to begin; return whether that is known now, or the disk was asked."""
        index = segment.index
        if index is None:
            self._writer.emit(ReadIndex(self._token(poll), segment.file))
            return False
        if segment.is_sealed:
            self._shared.indexes.touch(segment)
        poll.place = poll.find_in(index)
        if poll.place is None:
            return self._walk(poll, segment, index)
        poll.is_from_index = True
        return True

    def on_index(self, event: IndexRead) -> None:
        """Take the index of a sealed segment, or begin to walk if it is of no use."""
        poll = self._waiting.pop(event.token)
        segment = poll.segment
        assert segment is not None
        if segment.index is None and not segment.is_dropped:
            segment.index = self._decode_index(event, segment)
        self._go_on(poll)

    def _decode_index(self, event: IndexRead, segment: Segment) -> SegmentIndex:
        assert segment.is_sealed, "the index of the active segment is in memory"
        if event.data is None:
            self._probes.hit("partition.index_missing")
            return segment.begin_index(late_from=segment.length)
        try:
            return decode_index(
                event.data,
                segment.file,
                length=segment.length,
                end_offset=segment.end_offset,
                newest_stamp=segment.newest_stamp,
            )
        except CorruptError:
            self._probes.hit("partition.index_damaged")
            return segment.begin_index(late_from=segment.length)

    def _walk(self, poll: _Poll, segment: Segment, index: SegmentIndex) -> bool:
        """Read on from where an index ends; return whether memory knows the rest instead."""
        if self._turn_to_tail(poll, index.covered_offset):
            poll.walking = None
            return True
        if index.covered_to >= segment.length:
            raise DamageError(f"{segment.file} holds less than the log says")
        poll.walking = index
        self._ask(poll, segment, index.covered_to, READ_BYTES_MAX)
        return False

    def _on_walked(self, poll: _Poll, segment: Segment, data: memoryview) -> None:
        """Note the batches of a stretch; walk on until what is wanted is among them."""
        index = poll.walking
        assert index is not None
        if poll.read_from == index.covered_to:  # Another poll may have been here meanwhile.
            try:
                needed = walk_batches(index, segment, data, self._partition_id(segment))
            except DamageError:
                if poll.find_in(index) is None:
                    raise
                needed = 0  # What is wanted lies before it.
            if needed:
                self._ask_again(poll, segment, index.covered_to, needed)
                return
            if index.is_complete(segment.length):
                self._probes.hit("partition.index_rebuilt")
        if poll.find_in(index) is None:
            if self._walk(poll, segment, index):
                self._go_on(poll)
            return
        poll.walking = None
        poll.is_doubting = False
        poll.doubted = None
        segment.index = index
        self._writer.write_index(segment)
        self._go_on(poll)

    # The batches.

    def _read_length(self, gathering: Gathering, segment: Segment) -> int:
        """Give how much to read: what the wanted messages take on average, within bounds."""
        messages = segment.end_offset - segment.base_offset
        wanted = gathering.messages_left * segment.batch_bytes // messages
        return min(segment.index_step_bytes + wanted, READ_BYTES_MAX)

    def _on_batches(self, poll: _Poll, segment: Segment, data: memoryview) -> None:
        """Take the wanted batches of a stretch; what is cut at its end is read again whole."""
        assert poll.place is not None
        while not poll.gathering.is_full and not self._is_over(poll, segment, poll.place):
            place = poll.place
            rest = data[place.position - poll.read_from :]
            try:
                needed = self._on_batch(poll, segment, place, rest)
            except DamageError:
                # It is in nobody's way who wants only what lies behind it.
                poll.damage_end = self._behind(segment, place, rest)
                behind = poll.damage_end
                is_passed = behind is not None and behind.offset <= poll.gathering.wanted
                if behind is None or not is_passed or poll.timestamp is not None:
                    raise
                poll.place = behind
                needed = 0
            if needed:
                self._ask_again(poll, segment, place.position, needed)
                return
        self._turn_to_tail(poll, poll.place.offset)
        self._go_on(poll)

    def _on_batch(self, poll: _Poll, segment: Segment, place: Place, rest: memoryview) -> int:
        """Verify the next batch and take it if it is wanted; or return how many bytes it needs.

        A batch that is only passed is verified too: its header says where the next one is.
        """
        if len(rest) < BATCH_HEADER_BYTES:
            return BATCH_HEADER_BYTES
        header = check_header(segment, place, rest, self._partition_id(segment))
        poll.is_from_index = False
        if len(rest) < header.length:
            return header.length
        check_batch(segment, place, rest[: header.length])
        end_offset = header.base_offset + header.messages_count
        if poll.timestamp is not None or end_offset > poll.gathering.wanted:
            self._take(poll, header, rest[: header.length])
        poll.place = Place(end_offset, place.position + header.length)
        return 0

    def _behind(self, segment: Segment, place: Place, rest: memoryview) -> Place | None:
        """Return the place of the batch behind a damaged one, if the damage does not hide it."""
        length = decode_batch_header(rest).length
        end = place.position + length
        if length < BATCH_HEADER_BYTES or end > segment.length:
            return None
        if end == segment.length:
            return Place(segment.end_offset, end)
        if len(rest) < length + BATCH_HEADER_BYTES:
            return None
        following = Place(decode_batch_header(rest[length:]).base_offset, end)
        if not place.offset < following.offset < segment.end_offset:
            return None
        try:
            header = check_header(segment, following, rest[length:], self._partition_id(segment))
            check_batch(segment, following, rest[length : length + header.length])
        except DamageError:
            return None
        return following

    def _is_over(self, poll: _Poll, segment: Segment, place: Place) -> bool:
        """Whether the next batch is not to be read here: the file ends, or memory begins."""
        first = self.tail.first_offset
        return place.position >= segment.length or (first is not None and place.offset >= first)

    def _ask_again(self, poll: _Poll, segment: Segment, position: int, needed: int) -> None:
        if poll.read_from == position and poll.read_length >= needed:
            raise DamageError(f"{segment.file} ends within the batch at byte {position}")
        length = max(needed, self._read_length(poll.gathering, segment))
        self._ask(poll, segment, position, length)

    def _take(self, poll: _Poll, header: BatchHeader, batch: memoryview) -> None:
        if poll.timestamp is not None:
            if header.base_timestamp < poll.timestamp:
                return
            poll.timestamp = None
            poll.gathering.wanted = header.base_offset
        poll.gathering.take(
            base_offset=header.base_offset,
            end_offset=header.base_offset + header.messages_count,
            data=batch,
        )

    def _turn_to_tail(self, poll: _Poll, offset: int) -> bool:
        """Look a time up in memory, where the files below an offset do not have it."""
        first = self.tail.first_offset
        if poll.timestamp is None or first is None or offset < first:
            return False
        batch = self.tail.find_timestamp(poll.timestamp)
        assert batch is not None, "the log has a batch of that time, and no file has it"
        poll.timestamp = None
        poll.gathering.wanted = batch.base_offset
        return True

    def _partition_id(self, segment: Segment) -> int:
        return unpack_namespace(GroupId(segment.file.namespace)).partition

    # The disk.

    def _token(self, poll: _Poll) -> int:
        """Have a poll wait for an answer.

        Raises:
            RefusedError: The files are not open yet, or a state that came is not in them yet.
        """
        if not self._writer.is_readable:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, what="segments are being opened")
        token = self._writer.new_token()
        self._waiting[token] = poll
        return token

    def _ask(self, poll: _Poll, segment: Segment, position: int, length: int) -> None:
        poll.read_from = position
        poll.read_length = min(length, segment.length - position)
        self._writer.emit(ReadSegment(self._token(poll), segment.file, position, poll.read_length))

    def on_read(self, event: SegmentRead) -> None:
        """Go on with the poll that asked for these bytes."""
        poll = self._waiting.pop(event.token)
        segment = poll.segment
        assert segment is not None
        if poll.is_overtaken(self.log):
            self._go_on(poll)
            return
        if event.data is None:
            damage = DamageError(f"{segment.file} cannot be read at byte {poll.read_from}")
            self._on_damage(poll, segment, damage)
            return
        try:
            if poll.walking is None:
                self._on_batches(poll, segment, memoryview(event.data))
            else:
                self._on_walked(poll, segment, memoryview(event.data))
        except DamageError as damage:
            self._on_damage(poll, segment, damage)

    def _on_damage(self, poll: _Poll, segment: Segment, damage: DamageError) -> None:
        """End a poll at what cannot be read; but first find out whether the index led astray."""
        if poll.is_doubting:
            segment.is_index_proven = True  # The walk met damage too: the index is not to blame.
        elif (
            poll.is_from_index
            and poll.walking is None
            and segment.is_sealed
            and not segment.is_index_proven
        ):
            self._probes.hit("partition.index_doubted")
            poll.is_doubting = True
            poll.doubted = self._unreadable(poll)
            poll.place = None
            fresh = segment.begin_index(late_from=segment.length)
            if self._walk(poll, segment, fresh):
                self._go_on(poll)
            return
        self._end(poll, damage)

    def _go_on(self, poll: _Poll) -> None:
        try:
            result = self._advance(poll)
        except DamageError as damage:
            self._end(poll, damage)
        except RefusedError as refusal:
            self._finish(poll, refusal)
        else:
            if result is not None:
                self._finish(poll, result)

    def _end(self, poll: _Poll, damage: DamageError) -> None:
        if poll.gathering.messages_count:
            self._probes.hit("partition.read_cut_short")
            self._finish(poll, poll.gathering.result())
        else:
            self._finish(poll, self._refusal(poll, damage))

    def _refusal(self, poll: _Poll, damage: DamageError) -> RefusedError:
        self._probes.hit("partition.read_damaged")
        first, last = self._unreadable(poll)
        return RefusedError(
            Code.CANNOT_READ_MESSAGE, first_offset=first, last_offset=last, what=str(damage)
        )

    def _unreadable(self, poll: _Poll) -> tuple[int, int]:
        """Give the offsets that cannot be read: from the damage to the next batch that is found."""
        if poll.doubted is not None:
            return poll.doubted
        segment, wanted = poll.segment, poll.gathering.wanted
        if segment is None or segment.is_dropped:
            return wanted, wanted
        first = poll.walking.covered_offset if poll.walking is not None else segment.base_offset
        end = segment.end_offset
        if poll.place is not None:
            first = poll.place.offset
            if poll.damage_end is not None:
                return first, poll.damage_end.offset - 1
        if segment.index is not None:
            end = min(end, segment.index.entry_after(first) or end)
        if self.tail.first_offset is not None and self.tail.first_offset > first:
            end = min(end, self.tail.first_offset)
        return first, end - 1

    def _finish(self, poll: _Poll, result: Polled | RefusedError) -> None:
        self.polled.append((poll.ticket, result))
        self._writer.mark_busy()
