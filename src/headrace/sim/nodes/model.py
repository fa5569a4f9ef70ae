"""What one partition must be after its committed ops: written anew, simply, from the rules alone.

The model keeps every batch in memory and cuts segments by the one rule that decides where a file
ends, so that it can say which offsets exist, which are lost, and what each file holds.

Invariants: offsets of one history rise by one from 0, except over lost ranges (P2); a stored offset
            moves backwards only by a request, and never lies past the end (P5); retention drops
            nothing that a stored offset still needs, where consumers are waited for (O3.4).
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.base.ids import GroupId, unpack_namespace
from headrace.kernel import BATCH_HEADER_BYTES, slice_batch
from headrace.kernel.layout import OFFSET_DELTA_AT
from headrace.metadata.target import PartitionTarget
from headrace.ports.segments import SegmentFile
from headrace.sim.violation import SimViolationError
from headrace.wire.batches import decode_batch_header
from headrace.wire.codec import decode_exactly
from headrace.wire.commands.internal import (
    FORGET_GROUP_OFFSETS,
    LOST_RANGE,
    OFFSET_KEY,
    OFFSET_MARK,
    PURGE_PARTITION,
    RETAIN,
    TRIM_UP_TO,
    Retain,
)
from headrace.wire.commands.messages import SEND_MESSAGES
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK
from headrace.wire.topic_options import IGNORE_CONSUMERS


class Batch(NamedTuple):
    """One committed batch."""

    epoch: int
    base_offset: int
    end_offset: int
    stamp: int
    data: bytes
    client: int
    request: int


class _Segment:
    """The batches of one file."""

    __slots__ = ("batches", "is_sealed", "size")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.size = 0
        self.is_sealed = False

    @property
    def base_offset(self) -> int:
        return self.batches[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset


Key = tuple[ConsumerKind, int]


class PartitionModel:
    """One incarnation of one partition."""

    def __init__(self, target: PartitionTarget, *, is_waiting: bool = True) -> None:
        """Begin empty; `is_waiting`: no consumer can be idle for so long that it does not count."""
        self.target = target
        self._is_waiting = is_waiting and target.retention_consumers != IGNORE_CONSUMERS
        self.generation = 0
        self.epoch = 0
        self.marks: dict[Key, int] = {}
        self._begin()

    def _begin(self) -> None:
        self.next_offset = 0
        self.first_offset = 0
        self.segments: list[_Segment] = []
        self.gaps: list[tuple[int, int]] = []
        self.newest_stamp = 0

    @property
    def messages_count(self) -> int:
        """How many messages there are."""
        return sum(each.end_offset - each.base_offset for each in self.segments)

    def batches(self) -> list[Batch]:
        """Return all batches that are there, in order."""
        return [batch for segment in self.segments for batch in segment.batches]

    def files(self) -> dict[SegmentFile, bytes]:
        """Return what each file holds after its header block."""
        return {
            SegmentFile(
                self.target.group, self.target.created_revision, self.epoch, segment.base_offset
            ): b"".join(batch.data for batch in segment.batches)
            for segment in self.segments
        }

    # Ops.

    def apply(self, header: PrepareHeader, body: bytes, reply: bytes) -> Batch | None:
        """Change by one op; return the batch that it brought.

        Raises:
            SimViolationError: The op, or its answer, is against a promise.
        """
        match header.operation:
            case Operation.SEND_MESSAGES:
                return self._append(header, body, reply)
            case Operation.STORE_CONSUMER_OFFSET | Operation.AUTO_COMMIT_OFFSET:
                self._store(header, body, reply)
            case Operation.DELETE_CONSUMER_OFFSET:
                key = decode_exactly(OFFSET_KEY, body)
                is_there = self.marks.pop((key.kind, key.id), None) is not None
                self._check_reply(header, reply, is_ok=is_there)
            case Operation.FORGET_GROUP_OFFSETS:
                for group_id in decode_exactly(FORGET_GROUP_OFFSETS, body).group_ids:
                    self.marks.pop((ConsumerKind.GROUP, group_id), None)
            case Operation.DELETE_SEGMENTS:
                self._trim(decode_exactly(TRIM_UP_TO, body).up_to_offset)
            case Operation.RETAIN:
                self._retain(decode_exactly(RETAIN, body))
            case Operation.PURGE_PARTITION:
                self._purge(decode_exactly(PURGE_PARTITION, body).generation)
            case Operation.LOST_RANGE:
                self._lose(decode_exactly(LOST_RANGE, body).end)
            case _:
                raise SimViolationError("H2", why="an op of no partition", header=header)
        return None

    def _append(self, header: PrepareHeader, body: bytes, reply: bytes) -> Batch:
        found = decode_batch_header(body)
        facts = {"group": header.group, "op": header.op, "offset": found.base_offset}
        if found.base_offset != self.next_offset:
            raise SimViolationError("P2", why="offset", expected=self.next_offset, **facts)
        if found.base_timestamp < self.newest_stamp:
            raise SimViolationError("P2", why="stamp", newest=self.newest_stamp, **facts)
        namespace = unpack_namespace(GroupId(header.group))
        (told,) = SEND_MESSAGES.decode_reply(reply)
        if (*namespace, found.base_offset) != (
            told.stream_id,
            told.topic_id,
            told.partition_id,
            told.base_offset,
        ):
            raise SimViolationError("R6", told=told, **facts)
        batch = Batch(
            self.epoch,
            found.base_offset,
            found.base_offset + found.messages_count,
            found.base_timestamp,
            body,
            header.client,
            header.request,
        )
        if not self.segments or self.segments[-1].is_sealed:
            self.segments.append(_Segment())
        segment = self.segments[-1]
        segment.batches.append(batch)
        segment.size += len(body)
        segment.is_sealed = segment.size >= self.target.segment_bytes
        self.next_offset = batch.end_offset
        self.newest_stamp = batch.stamp
        return batch

    def _store(self, header: PrepareHeader, body: bytes, reply: bytes) -> None:
        mark = decode_exactly(OFFSET_MARK, body)
        key = (mark.kind, mark.id)
        is_within = mark.offset < self.next_offset
        if header.operation == Operation.STORE_CONSUMER_OFFSET:
            self._check_reply(header, reply, is_ok=is_within)
            if is_within:
                self.marks[key] = mark.offset
        elif is_within:
            self.marks[key] = max(mark.offset, self.marks.get(key, 0))

    @staticmethod
    def _check_reply(header: PrepareHeader, reply: bytes, *, is_ok: bool) -> None:
        if (reply == RESULT_OK) != is_ok:
            raise SimViolationError(
                "P5", group=header.group, op=header.op, reply=reply, expected_ok=is_ok
            )

    def _trim(self, last: int) -> None:
        last = min([last, *self.marks.values()])
        sealed = [segment for segment in self.segments if segment.is_sealed]
        self._drop(sum(segment.end_offset - 1 <= last for segment in sealed))

    def older_than(self, stamp_max: int) -> Iterator[Batch]:
        """Return the newest batch of each sealed segment that is of a time, or older."""
        for segment in self.segments:
            if segment.is_sealed and segment.batches[-1].stamp <= stamp_max:
                yield segment.batches[-1]

    def _retain(self, limits: Retain) -> None:
        sealed = [segment for segment in self.segments if segment.is_sealed]
        size = sum(segment.size for segment in sealed)
        count = 0
        for segment in sealed:
            is_old = segment.batches[-1].stamp <= limits.stamp_max
            if not is_old and not (limits.bytes_max and size > limits.bytes_max):
                break
            if limits.keep_from is not None and segment.end_offset > limits.keep_from:
                break
            size -= segment.size
            count += 1
        self._check_unneeded(count)
        self._drop(count)

    def _check_unneeded(self, count: int) -> None:
        """Check that all consumers have read what retention drops, if it waits for them (O3.4)."""
        if not count or not self._is_waiting or not self.marks:
            return
        key, stored = min(self.marks.items(), key=lambda mark: mark[1])
        end = self.segments[count - 1].end_offset
        if end > stored + 1:
            raise SimViolationError(
                "O3.4", why="dropped before it was read", group=self.target.group, key=key,
                stored=stored, end=end,
            )  # fmt: skip

    def _drop(self, count: int) -> None:
        if count:
            self.first_offset = self.segments[count - 1].end_offset
            del self.segments[:count]
            self._settle()

    def _purge(self, generation: int) -> None:
        if generation > self.generation:
            self.generation = generation
            self.epoch += 1
            self.marks.clear()
            stamp = self.newest_stamp
            self._begin()
            self.newest_stamp = stamp

    def _lose(self, end: int) -> None:
        if end <= self.next_offset:
            return
        if self.segments:
            self.segments[-1].is_sealed = True
        if self.gaps and self.gaps[-1][1] == self.next_offset:
            self.gaps[-1] = (self.gaps[-1][0], end)
        else:
            self.gaps.append((self.next_offset, end))
        self.next_offset = end
        self._settle()

    def _settle(self) -> None:
        while self.gaps and self.gaps[0][0] <= self.first_offset:
            self.first_offset = max(self.first_offset, self.gaps.pop(0)[1])


def span_of(served: bytes | memoryview) -> tuple[int, int]:
    """Return the first offset of a verified batch, maybe a cut one, and the next after its last."""
    header = decode_batch_header(served)
    at = BATCH_HEADER_BYTES + OFFSET_DELTA_AT
    first = header.base_offset + int.from_bytes(served[at : at + 4], "little")
    return first, first + header.messages_count


def is_part_of(served: bytes, batch: Batch) -> bool:
    """Whether bytes that were served are a batch, or a lawful cut of it."""
    if served == batch.data:
        return True
    first, end = span_of(served)
    if not batch.base_offset <= first < end <= batch.end_offset:
        return False
    head, start, stop = slice_batch(batch.data, first, end - first)
    return served == head + batch.data[start:stop]
