"""One partition: the state machine of its log, and the face of its segments to the shard.

```
primary   prepare: check, stamp ----> log ----> apply, on every replica: append, offsets, purge
                                                  |
shard     store, flush, checkpoint <-- segments <-+-> memory tail --> poll
```

The shard carries out `take_effects`, passes completions to `PartitionsShared.step`, and calls
`open` once, after the checkpoint is installed and the ops of the journal are applied again.

Flow:       apply, store, reply.
Invariants: only `apply` and `install` change what replicas must agree on; a segment's bytes follow
            from the applied ops alone; polls see applied batches only.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import lt

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.ids import unpack_namespace
from headrace.kernel.layout import MESSAGE_COUNT_AT
from headrace.partitions.admission import BODIES, does_not_follow, is_op
from headrace.partitions.confirm import confirmations
from headrace.partitions.gather import Polled, PollStart
from headrace.partitions.install import check_pieces, state_artifact
from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.offsets import ConsumerOffsets, StoredMark
from headrace.partitions.options import PartitionOptions
from headrace.partitions.plans import make_plan
from headrace.partitions.polling import Reads
from headrace.partitions.prepared import Prepared
from headrace.partitions.retention import droppable_count, surplus
from headrace.partitions.shared import PartitionsShared
from headrace.partitions.snapshot import (
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    is_encoded_right,
)
from headrace.partitions.tail import COPIED_BYTES_MAX, MemoryTail, TailBatch
from headrace.partitions.writer import SegmentWriter
from headrace.ports.machine import Artifact, Piece, StoredPiece
from headrace.ports.network import Buffer
from headrace.ports.probes import Probes
from headrace.ports.segments import (
    IndexRead,
    LogEnd,
    SegmentEffect,
    SegmentEvent,
    SegmentExtent,
    SegmentFailed,
    SegmentRead,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
)
from headrace.wire.batches import BATCH_HEADER, BatchHeader, admit_batch, decode_batch_header
from headrace.wire.codec import decode_exactly, encode
from headrace.wire.commands.internal import (
    FORGET_GROUP_OFFSETS,
    LOST_RANGE,
    OFFSET_KEY,
    OFFSET_MARK,
    PURGE_PARTITION,
    RETAIN,
    TRIM_UP_TO,
    OffsetMark,
    Retain,
)
from headrace.wire.commands.segments import SegmentPlan
from headrace.wire.errors import Code, CorruptError, RefusedError
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replica.artifacts import ArtifactKind
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_rejection
from headrace.wire.requests import RequestHeader

_SEND = int(Operation.SEND_MESSAGES)
_STORES = (Operation.STORE_CONSUMER_OFFSET, Operation.AUTO_COMMIT_OFFSET)
_COUNT = slice(MESSAGE_COUNT_AT, MESSAGE_COUNT_AT + 4)  # of messages, in the header of a batch
_LINK = struct.Struct("<QQQQQ")  # hash so far, of the op, and what came of it


class PartitionMachine:
    """The state machine of one partition; the shard drives it as the module describes."""

    def __init__(self, options: PartitionOptions, shared: PartitionsShared, probes: Probes) -> None:
        self.options = options
        self._namespace = unpack_namespace(options.namespace)
        self._confirm = confirmations(self._namespace)
        self._shared = shared
        self._probes = probes
        self._log = PartitionLog(options)
        self._tail = MemoryTail(shared.tails)
        self._offsets = ConsumerOffsets(options.offsets_max)
        self._generation = 0  # of the purge that was applied last
        self._hash = 0
        self._prepared = Prepared()
        self._artifact: Artifact | None = None  # of the current state, once it was asked for
        self.writer = SegmentWriter(options, shared, self, probes)  # what waits for its file
        self._reads = Reads(options, self._log, self._tail, self.writer, shared, probes)
        self._vouched: tuple[SegmentExtent, ...] = ()  # by the checkpoint that was installed
        self._is_opening = False
        # Consumers whose stored offsets do not hold back retention; set by the shard of a primary.
        self.waived: dict[tuple[ConsumerKind, int], None] = {}
        self.is_ignoring_consumers = False
        self._preparations: dict[int, Callable[[Buffer], None]] = {
            Operation.STORE_CONSUMER_OFFSET: self._prepare_store,
            Operation.DELETE_CONSUMER_OFFSET: self._prepare_delete,
            Operation.AUTO_COMMIT_OFFSET: self._prepare_store,
            Operation.PURGE_PARTITION: self._prepare_purge,
            Operation.LOST_RANGE: self._prepare_lost_range,
        }
        self._appliers: dict[int, Callable[[PrepareHeader, Buffer], bytes]] = {
            Operation.SEND_MESSAGES: self._append,
            Operation.STORE_CONSUMER_OFFSET: self._store_offset,
            Operation.DELETE_CONSUMER_OFFSET: self._delete_offset,
            Operation.AUTO_COMMIT_OFFSET: self._auto_commit,
            Operation.DELETE_SEGMENTS: self._trim,
            Operation.PURGE_PARTITION: self._purge,
            Operation.RETAIN: self._retain,
            Operation.LOST_RANGE: self._lose_range,
            Operation.FORGET_GROUP_OFFSETS: self._forget_groups,
        }
        assert sorted(self._appliers) == sorted([*BODIES, Operation.SEND_MESSAGES])
        self._answers: dict[type, Callable[..., None]] = {
            SegmentWritten: self.writer.on_written,
            SegmentsSynced: self.writer.on_synced,
            SegmentFailed: self.writer.on_failed,
            SegmentsOpened: self.writer.on_opened,
            SegmentRead: self._reads.on_read,
            IndexRead: self._reads.on_index,
        }

    # What it holds.

    @property
    def next_offset(self) -> int:
        """The offset that the next applied message gets."""
        return self._log.next_offset

    @property
    def prepared_offset(self) -> int:
        """The offset that the next prepared message gets."""
        return self._prepared.next_offset if self._prepared.ops_count else self._log.next_offset

    @property
    def current_offset(self) -> int:
        """The offset of the last committed message; 0 when there was none yet."""
        return max(self._log.next_offset - 1, 0)

    @property
    def first_offset(self) -> int:
        """The offset of the oldest message; the next one to come when there is none."""
        return self._log.first_offset

    @property
    def messages_count(self) -> int:
        """How many messages there are."""
        return self._log.messages_count

    @property
    def size_bytes(self) -> int:
        """How many bytes their batches take."""
        return self._log.size_bytes

    @property
    def segments_count(self) -> int:
        """How many segments there are; the active one has no file before its first batch."""
        return len(self._log.segments) + (self._log.active is None)

    @property
    def oldest_sealed_stamp(self) -> int | None:
        """The newest stamp of the oldest sealed segment: the next that can expire."""
        return next((segment.newest_stamp for segment in self._log.sealed()), None)

    @property
    def history_epoch(self) -> int:
        """Which history this is; every purge begins one."""
        return self._log.history_epoch

    @property
    def purge_generation(self) -> int:
        """The generation of the last purge that was applied."""
        return self._generation

    @property
    def lost_ranges(self) -> tuple[tuple[int, int], ...]:
        """The offsets that were lost: from the first up to, not including, the second."""
        return tuple(self._log.gaps)

    @property
    def tail_bytes(self) -> int:
        """How much memory its newest batches take."""
        return self._tail.bytes_held

    @property
    def is_stored(self) -> bool:
        """Whether every batch that was applied is in its file."""
        return self.writer.is_idle

    @property
    def fence(self) -> str | None:
        """Why nothing may be sent to it or read from it any more, if so."""
        return self.writer.fence

    @property
    def is_lacking(self) -> bool:
        """Whether its files never got all that was applied, and never will until a restart."""
        return self.writer.is_lacking

    @property
    def is_open(self) -> bool:
        """Whether its files have been taken up."""
        return self.writer.is_open

    def stored_offset(self, kind: ConsumerKind, consumer_id: int) -> int | None:
        """Return the offset that a consumer or group has stored.

        Raises:
            RefusedError: Recovery found it ahead of the data, and it was not stored anew (PT-20).
        """
        return self._offsets.find(kind, consumer_id)

    def peek_offset(self, kind: ConsumerKind, consumer_id: int) -> int | None:
        """Return the offset that is stored, whether it lies ahead of the data or not."""
        return self._offsets.peek(kind, consumer_id)

    def stored_group_ids(self) -> list[int]:
        """Return the consumer groups that have stored an offset."""
        return [mark.id for mark in self._offsets.marks() if mark.kind == ConsumerKind.GROUP]

    def stored_marks(self) -> list[StoredMark]:
        """Return all stored offsets, in a fixed order."""
        return list(self._offsets.marks())

    def needed_from(self) -> int | None:
        """Return the lowest offset that a consumer has still to read, if retention waits for one.

        Not for those that are waived.
        """
        if self.is_ignoring_consumers:
            return None
        lowest = self._offsets.lowest(but=self.waived)
        assert lowest is None or lowest >= 0, "offsets count from 0"
        return None if lowest is None else lowest + 1

    def surplus(self, limits: Retain) -> list[Segment]:
        """Return the sealed segments that are beyond the limits, also if a consumer needs them."""
        return surplus(self._log.sealed(), limits)

    def sealed_end(self, count: int) -> int | None:
        """Return the last offset of the count-th oldest sealed segment, or of the last there is."""
        sealed = list(self._log.sealed())[: max(count, 0)]
        assert not sealed or sealed[-1].end_offset <= self._log.next_offset, "the log has them"
        return sealed[-1].end_offset - 1 if sealed else None

    def plan_segments(self, from_offset: int, folder: str) -> SegmentPlan:
        """Return what a reader finds, and which files below the folder hold the sealed part."""
        unwritten = self.writer.unwritten()
        return make_plan(self._log, self.options, unwritten, from_offset=from_offset, folder=folder)

    # The contract with consensus.

    def prepare(self, header: RequestHeader, body: Buffer, timestamp: int) -> Buffer:
        """Stamp a batch in place, or check an op against what is applied.

        The op must then be ordered: its offsets are assigned.

        Raises:
            RefusedError: The request cannot be granted; nothing has changed.
        """
        prepared = self._prepared
        log = self._log
        if prepared.ops_count == 0 and (
            prepared.next_offset != log.next_offset
            or prepared.newest_stamp != log.newest_stamp
            or prepared.generation != self._generation
            or prepared.stored_min is not None
        ):
            prepared.begin(log, self._generation)
        if header.operation == _SEND:
            body = self._stamp(body, timestamp)
        elif header.operation == Operation.RETAIN:
            body = self._bound(body)
        else:
            assert header.operation in self._appliers
            check = self._preparations.get(header.operation)
            if check is not None:
                check(body)
        prepared.ops_count += 1
        assert prepared.generation >= self._generation, "a purge that is applied was prepared"
        assert prepared.newest_stamp >= self._log.newest_stamp, "stamps never fall"
        return body

    def _stamp(self, body: Buffer, timestamp: int) -> Buffer:
        if (fence := self.writer.fence) is not None:
            raise RefusedError(Code.CANNOT_APPEND_MESSAGE, what=fence)
        if type(body) is not bytearray and (type(body) is not memoryview or body.readonly):
            body = bytearray(body)
        prepared = self._prepared
        is_new_history, end_offset = prepared.generation > self._generation, self._log.next_offset
        assert is_new_history or prepared.next_offset >= end_offset, "offsets are given in order"
        messages_count = int.from_bytes(body[_COUNT], "little")  # The kernel refuses a cut header.
        if timestamp < prepared.newest_stamp:  # noqa: PLR1730 - a call less for every send
            timestamp = prepared.newest_stamp
        admit_batch(
            body,
            messages_count,
            partition_id=self._namespace.partition,
            base_offset=prepared.next_offset,
            base_timestamp=timestamp,
        )
        assert messages_count > 0, "the kernel refuses an empty batch"
        prepared.next_offset += messages_count
        prepared.newest_stamp = timestamp
        return body

    def _bound(self, body: Buffer) -> bytes:
        """Write into a retain op what consumers need, those included whose store is under way."""
        limits = decode_exactly(RETAIN, body)
        stored = self._prepared.stored_min
        needed = self.needed_from()
        if stored is not None and not self.is_ignoring_consumers:
            needed = stored + 1 if needed is None else min(needed, stored + 1)
        assert needed is None or needed > 0, "a consumer needs what is behind a stored offset"
        return encode(RETAIN, msgspec.structs.replace(limits, keep_from=needed))

    def _prepare_store(self, body: Buffer) -> None:
        """Note an offset. `apply` decides whether it is stored: a deposed primary cannot know."""
        self._refuse_during_purge()
        mark = decode_exactly(OFFSET_MARK, body)
        self._prepared.store(mark.offset)
        self.waived.pop((mark.kind, mark.id), None)

    def _prepare_delete(self, body: Buffer) -> None:
        """Check the body. `apply` decides whether there is such an offset."""
        self._refuse_during_purge()
        decode_exactly(OFFSET_KEY, body)

    def _refuse_during_purge(self) -> None:
        """Refuse offsets of the old history: the new one would take them for its own."""
        if self._prepared.generation != self._generation:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, what="a purge is under way")

    def _prepare_purge(self, body: Buffer) -> None:
        self._prepared.purge(decode_exactly(PURGE_PARTITION, body).generation)

    def _prepare_lost_range(self, body: Buffer) -> None:
        self._prepared.lose(decode_exactly(LOST_RANGE, body).end)

    def foresee(self, ops: Iterable[tuple[PrepareHeader, Buffer]]) -> None:
        """Forget what was prepared; these ops, in order, are prepared and not applied yet."""
        prepared = self._prepared
        prepared.begin(self._log, self._generation)
        for header, body in ops:
            prepared.ops_count += 1
            if header.operation == Operation.PURGE_PARTITION:
                self._prepare_purge(body)
            elif header.operation == Operation.LOST_RANGE:
                self._prepare_lost_range(body)
            elif header.operation in _STORES:
                prepared.store(decode_exactly(OFFSET_MARK, body).offset)
            elif header.operation == Operation.SEND_MESSAGES and body:
                batch = decode_batch_header(body)
                end_offset = batch.base_offset + batch.messages_count
                # One that does not follow comes from a peer, and `apply` will refuse it.
                if end_offset > prepared.next_offset:
                    prepared.append(end_offset, max(batch.base_timestamp, prepared.newest_stamp))
        assert prepared.generation >= self._generation, "generations count up"
        assert prepared.newest_stamp >= self._log.newest_stamp, "stamps never fall"

    def admits(self, header: PrepareHeader, body: Buffer) -> bool:
        """Return whether an op is one of a partition's, with a body of its operation."""
        return is_op(self._namespace.partition, header, body)

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Apply one committed op; return the body of its reply.

        Raises:
            CorruptError: A batch does not follow what is here; nothing has changed.
        """
        if self._prepared.ops_count:
            self._prepared.ops_count -= 1
            assert self._prepared.ops_count >= 0, "an op is applied once"
        self._artifact = None
        return self._appliers[header.operation](header, body)

    def state_hash(self) -> int:
        """Return a hash of the applied ops and of the states that they led to."""
        return self._hash

    def checkpoint(self) -> tuple[Artifact, ...]:
        """Return all state but the batches, which are durable in their files once `flush` is.

        The last one taken before `on_checkpointed` is the one that became durable.
        """
        self.writer.capture()
        return (self._state(),)

    def export(self) -> tuple[Piece, ...]:
        """Return the pieces of all segments, which now are in their files, and the rest."""
        self.store()
        pieces = [
            StoredPiece(
                ArtifactKind.SEGMENT_LOG,
                piece.first_offset,
                piece.length,
                piece.chain,
                segment.file,
                piece.position,
            )
            for segment in self._log.segments
            for piece in segment.pieces
        ]
        assert sum(each.length for each in pieces) == self._log.size_bytes, "all batches go along"
        return (*pieces, self._state())

    def install(self, artifacts: Sequence[Piece]) -> None:
        """Take over a checkpoint of our own, before `open`, or a state that was exported.

        Raises:
            CorruptError: The state is damaged, or older than ours; nothing has changed.
        """
        state = state_artifact(artifacts)
        snapshot = decode_snapshot(state.data, self.options)
        if len(artifacts) == 1 and not self._is_opening:
            self._adopt(snapshot)
            self._vouched = tuple(
                SegmentExtent(segment.file, segment.length) for segment in self._log.segments
            )
            return
        before = self._log
        self._refuse_rewind(snapshot)
        fetched = check_pieces(artifacts, snapshot.log, held=before)
        files = dict.fromkeys(segment.file for segment in snapshot.log.segments)
        gone = [segment for segment in before.segments if segment.file not in files]
        for segment in gone:
            segment.is_dropped = True
        self._adopt(snapshot)
        assert self._log.history_epoch >= before.history_epoch, "a history never comes back"
        is_anew = self._log.history_epoch > before.history_epoch
        assert is_anew or self._log.next_offset >= before.next_offset, "no offset is assigned twice"
        self.writer.drop(gone)
        for each in fetched:
            piece, data = each.piece, each.data
            self.writer.put(each.segment, piece.position, data, len(data), None, piece.first_offset)
        self._probes.hit("partition.state_installed")

    def _refuse_rewind(self, snapshot: Snapshot) -> None:
        """Refuse a state that would assign offsets a second time (PT-25)."""
        ours = (self._log.history_epoch, self._log.next_offset)
        offered = (snapshot.log.history_epoch, snapshot.log.next_offset)
        if offered < ours or snapshot.purge_generation < self._generation:
            raise CorruptError(f"a state of epoch and offset {offered}, ours are {ours}")

    def _adopt(self, snapshot: Snapshot) -> None:
        for segment in self._log.segments:
            self._shared.indexes.forget(segment)
        self._log = self._reads.log = snapshot.log
        self._generation = snapshot.purge_generation
        self._hash = snapshot.state_hash
        self._prepared.begin(self._log, self._generation)
        self._begin_tail()
        self.writer.on_memory_gone()
        ahead = self._offsets.restore(
            snapshot.marks, next_offset=self._log.next_offset, policy=self.options.offsets_ahead
        )
        assert ahead <= len(snapshot.marks), "only an offset that came is ahead"
        for _ in range(ahead):
            self._probes.hit("partition.offset_ahead")
        if self.stored_group_ids():
            self._shared.marked[self] = None
        if self.oldest_sealed_stamp is not None:
            self._shared.sealed[self] = None
        self._artifact = None

    def _begin_tail(self) -> None:
        self._tail.close()
        self._tail = self._reads.tail = MemoryTail(self._shared.tails)

    def _state(self) -> Artifact:
        if self._artifact is None:
            data = encode_snapshot(
                self.options,
                self._log,
                self._offsets,
                purge_generation=self._generation,
                state_hash=self._hash,
            )
            self._artifact = Artifact(ArtifactKind.CONSUMER_OFFSETS, self._log.next_offset, data)
        assert self._artifact.frontier == self._log.next_offset, "what is kept is of this state"
        return self._artifact

    # Ops.

    def _mix(self, operation: int, op_hash: int) -> None:
        """Note an op and the state that it led to in the hash."""
        log = self._log
        outcome = len(log.segments) << 32 ^ log.size_bytes ^ len(self._offsets.by_consumer) << 48
        self._hash = xxh3_64(
            _LINK.pack(self._hash, operation, op_hash, log.next_offset, outcome & (1 << 64) - 1)
        )

    def _append(self, header: PrepareHeader, body: Buffer) -> bytes:
        batch = BatchHeader(*BATCH_HEADER.unpack_from(body))  # It was verified when it came.
        assert batch.length == len(body), "the frame was verified when it came"
        assert batch.partition_id == self._namespace.partition, "it was admitted by `admits`"
        log, tails = self._log, self._shared.tails
        if batch.base_offset != log.next_offset or batch.base_timestamp < log.newest_stamp:
            raise does_not_follow(log, batch)
        segment, position = log.append(batch)
        assert segment.length == position + batch.length, "the batch is the last of its segment"
        assert segment.end_offset == log.next_offset, "the segment is the last of the log"
        if self.writer.fence is None:
            data = bytes(body) if batch.length < COPIED_BYTES_MAX else body
            end_offset, size = log.next_offset, batch.length
            tailed = TailBatch(batch.base_offset, end_offset, batch.base_timestamp, data)
            self._tail.append(tailed, size)
            self.writer.put(segment, position, data, size, self._tail, end_offset)
            assert self.writer.waiting_bytes >= batch.length, "the batch waits for its file"
            assert self._tail.bytes_held <= tails.bytes_held, "the budget counts every tail"
            if tails.bytes_held > tails.bytes_max:
                tails.shrink()
        else:
            self.writer.is_lacking = True
        if segment.is_sealed:
            self._seal(segment)
        self._mix(header.operation, batch.checksum)
        return self._confirm(batch.base_offset)

    def _seal(self, segment: Segment) -> None:
        assert segment.end_offset <= self._log.next_offset, "a sealed segment ends in the log"
        self.writer.seal(segment)
        self._shared.indexes.touch(segment)
        self._shared.sealed[self] = None

    def _refusal_to_store(self, kind: ConsumerKind, consumer_id: int, offset: int) -> Code | None:
        if offset >= self._log.next_offset:
            return Code.INVALID_OFFSET
        return self._offsets.refusal_to_store(kind, consumer_id)

    def _store_offset(self, header: PrepareHeader, body: Buffer) -> bytes:
        mark = decode_exactly(OFFSET_MARK, body)
        code = self._refusal_to_store(mark.kind, mark.id, mark.offset)
        if code is None:
            self._store_mark(mark)
        self._mix(header.operation, xxh3_64(body))
        return RESULT_OK if code is None else encode_rejection(code)

    def _delete_offset(self, header: PrepareHeader, body: Buffer) -> bytes:
        key = decode_exactly(OFFSET_KEY, body)
        is_deleted = self._offsets.delete(key.kind, key.id)
        self._mix(header.operation, xxh3_64(body))
        return RESULT_OK if is_deleted else encode_rejection(Code.CONSUMER_OFFSET_NOT_FOUND)

    def _auto_commit(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Store what a poll has served, if that is further than what is stored (O3.6)."""
        mark = decode_exactly(OFFSET_MARK, body)
        stored = self._offsets.peek(mark.kind, mark.id)
        if (stored is None or mark.offset > stored) and self._refusal_to_store(
            mark.kind, mark.id, mark.offset
        ) is None:
            self._store_mark(mark)
        self._mix(header.operation, xxh3_64(body))
        return b""

    def _store_mark(self, mark: OffsetMark) -> None:
        """Store an offset; the first one of a consumer group is noted, for it may be gone."""
        assert mark.offset < self._log.next_offset, "the op was refused otherwise"
        is_first = self._offsets.peek(mark.kind, mark.id) is None
        if is_first and mark.kind == ConsumerKind.GROUP:
            self._shared.marked[self] = None
        self._offsets.store(mark.kind, mark.id, mark.offset)

    def _forget_groups(self, header: PrepareHeader, body: Buffer) -> bytes:
        for group_id in decode_exactly(FORGET_GROUP_OFFSETS, body).group_ids:
            self._offsets.delete(ConsumerKind.GROUP, group_id)
        self._mix(header.operation, xxh3_64(body))
        return b""

    def _trim(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Drop sealed segments up to an offset, but nothing that a consumer has still to read."""
        last = decode_exactly(TRIM_UP_TO, body).up_to_offset
        smallest = self._offsets.smallest()
        if smallest is not None:
            last = min(last, smallest)
        ends = [segment.end_offset - 1 for segment in self._log.sealed()]
        assert all(map(lt, ends, ends[1:])), "the oldest segments end first"
        assert not ends or ends[-1] < self._log.next_offset, "a sealed segment ends in the log"
        self._drop(sum(end <= last for end in ends))
        self._mix(header.operation, xxh3_64(body))
        return b""

    def _retain(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Drop sealed segments that are too old or too many, and needed by no consumer (O3.4)."""
        limits = decode_exactly(RETAIN, body)
        self._drop(droppable_count(surplus(self._log.sealed(), limits), limits))
        self._mix(header.operation, xxh3_64(body))
        return b""

    def _drop(self, count: int) -> None:
        if count:
            first_offset = self._log.first_offset
            assert count <= sum(1 for _ in self._log.sealed()), "the active segment stays"
            self.writer.drop(self._log.drop(count))
            assert first_offset < self._log.first_offset, "a dropped segment had messages"
            self._tail.drop_below(self._log.first_offset)

    def _purge(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Begin a new history, once for each generation; request numbers stay known."""
        generation = decode_exactly(PURGE_PARTITION, body).generation
        if generation > self._generation:
            self._generation = generation
            self.writer.drop(self._log.begin_history())
            self._offsets.clear()
            self._begin_tail()
            assert self._log.next_offset == self._log.messages_count == 0, "a history begins empty"
            assert self._log.history_epoch <= generation, "a purge begins one history"
            assert self._tail.bytes_held == 0, "memory has nothing of the new history yet"
        self._mix(header.operation, generation)
        return b""

    def _lose_range(self, header: PrepareHeader, body: Buffer) -> bytes:
        """Skip offsets that may have been assigned before a power failure (O3.5)."""
        active = self._log.active
        if self._log.lose(decode_exactly(LOST_RANGE, body).end):
            self._probes.hit("partition.range_lost")
            assert active is None or active.end_offset < self._log.next_offset, (
                "a loss lies behind it"
            )
            if active is not None:
                self._seal(active)
        self._mix(header.operation, xxh3_64(body))
        return b""

    # What holds between two steps.

    def check(self) -> None:
        """Assert the relations between its parts; too expensive for every step of a server."""
        log, tail, writer = self._log, self._tail, self.writer
        log.check()
        files = {segment.file: None for segment in log.segments}
        if writer.fence is None:
            tail.check(log.skip_gap, first_offset=log.first_offset, end_offset=log.next_offset)
            writer.check_against(files, tail)
        writer.check()
        self._reads.check()
        self._offsets.check(log.next_offset)
        self._check_copies()
        self._check_opening()
        self._check_sums()
        for segment in log.segments:
            if segment.is_sealed and segment.index is not None:
                assert self._shared.indexes.holds(segment), "an index in memory is counted"

    def _check_copies(self) -> None:
        """Assert that what is kept beside the state agrees with it."""
        assert self._reads.log is self._log, "polls read the current history"
        assert self._reads.tail is self._tail, "polls read the current memory"
        if self._artifact is not None:
            kept, self._artifact = self._artifact, None
            assert self._state() == kept, "the artifact that is kept is that of the state"
        for segment in self._log.segments:
            assert is_encoded_right(segment), "a sealed segment is kept as it was encoded"

    def _check_opening(self) -> None:
        assert self._is_opening or not self.is_open, "files are open once they were taken up"
        assert not self._is_opening or not self._vouched, "the checkpoint vouches for files once"
        if self.fence is None:
            is_asked = self._is_opening and not self.is_open
            awaited = self.writer.awaited_count() + self._reads.awaited_count() + is_asked
            assert len(self._shared.awaited(self)) == awaited, "every answer has who waits for it"

    def _check_sums(self) -> None:
        """Assert that what others are told of it agrees with its parts."""
        log, writer = self._log, self.writer
        assert log.history_epoch <= self._generation, (
            "every history but the first began with a purge"
        )
        has_results = bool(writer.effects or self._reads.polled)
        assert writer.is_busy == has_results, "who has something to take is looked at"
        sealed = list(log.sealed())
        assert self.segments_count == len(sealed) + 1, "one segment grows, or is to come"
        oldest = self.oldest_sealed_stamp
        assert oldest is None or oldest <= log.newest_stamp, "no segment is newer than the log"

    # Segments.

    def open(self, *, is_whole: bool = False, lost_until: int = 0) -> None:
        """Take up the files, once; before that is answered nothing is written or read.

        `is_whole`: everything that the log ever had is applied, so what its files hold beyond that
        is not its own. `lost_until`: a power failure may have lost messages below it.
        """
        assert not self._is_opening, "files are taken up once"
        self._is_opening = True
        vouched, self._vouched = self._vouched, ()
        if is_whole:
            # The log has dropped these since: on a full disk their files may be gone already.
            dropped = dict.fromkeys(self.writer.dropped)
            vouched = tuple([extent for extent in vouched if extent.file not in dropped])
        self.writer.open(vouched, self._end(lost_until) if is_whole else None)

    def _end(self, lost_until: int) -> LogEnd:
        log = self._log
        assert log.first_offset <= log.next_offset, "a log ends behind its beginning"
        named = dict.fromkeys(each.file for each in log.segments)
        assert not any(file in named for file in self.writer.dropped), "no file is kept and dropped"
        return LogEnd(
            history_epoch=log.history_epoch,
            first_offset=log.first_offset,
            next_offset=log.next_offset,
            lost_until=lost_until,
            segments=tuple([SegmentExtent(each.file, each.length) for each in log.segments]),
            dropped=self.writer.dropped,
        )

    def store(self) -> None:
        """Hand over the committed batches that wait for their segment, in rounds of 8 MiB."""
        self.writer.store()

    def flush(self) -> int | None:
        """Store all that is applied and make it durable; return the token for `is_flushed`.

        Return None when it is durable already. A fenced partition never becomes durable: a caller
        that waits must check `fence` too.
        """
        return self.writer.flush()

    def is_flushed(self, token: int) -> bool:
        """Return whether what `flush` stood for is durable."""
        return self.writer.is_flushed(token)

    def on_checkpointed(self) -> None:
        """Remove files that the checkpoint, durable now, no longer names."""
        self.writer.on_checkpointed()

    def remove_dropped(self) -> None:
        """Remove files of dropped segments now, where that is safe: for a full disk."""
        self.writer.remove_dropped()

    def tick(self, now: int) -> None:
        """Let time pass; `PartitionsShared.tick` does it for all that wait for space."""
        self._shared.tick(now)

    def retry(self) -> None:
        """Try again what found no space."""
        self.writer.retry()

    def step(self, event: SegmentEvent) -> None:
        """Take the answer to an effect."""
        self._answers[type(event)](event)

    def take_effects(self) -> list[SegmentEffect]:
        """Return the new effects, in order; each is returned once."""
        effects = self.writer.effects
        self.writer.effects = []
        if not self._reads.polled:
            self._shared.busy.pop(self, None)
        return effects

    def close(self) -> None:
        """Release what the partition holds of the shard's shared memory; it is removed."""
        self._tail.close()
        assert self._tail.bytes_held == 0, "the budget has its memory back"
        for segment in self._log.segments:
            self._shared.indexes.forget(segment)
        self._shared.forget(self)

    # Polls.

    def poll(self, ticket: int, start: PollStart, *, count: int, bytes_max: int) -> Polled | None:
        """Return the answer to a poll, or None: `take_polled` returns it later.

        Raises:
            RefusedError: The first wanted message cannot be read, or not yet.
        """
        if self.fence is not None:
            raise RefusedError(Code.CANNOT_READ_MESSAGE, what=self.fence)
        return self._reads.poll(ticket, start, count=count, bytes_max=bytes_max)

    def take_polled(self) -> list[tuple[int, Polled | RefusedError]]:
        """Return the polls answered since the last call."""
        polled = self._reads.polled
        self._reads.polled = []
        if not self.writer.effects:
            self._shared.busy.pop(self, None)
        return polled
