"""One partition with its files, driven as a shard drives it: a journal of ops, checkpoints,
crashes and restarts.
"""

from typing import TYPE_CHECKING, TypeAlias

from headrace.base.ids import (
    GroupId,
    Namespace,
    PartitionId,
    StreamId,
    TopicId,
    pack_namespace,
)
from headrace.partitions.dedup import DedupTable
from headrace.partitions.gather import Polled, PollStart
from headrace.partitions.index import INDEX_STEP_BYTES
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.options import AheadPolicy, PartitionOptions
from headrace.partitions.shared import PartitionsShared
from headrace.ports.network import Buffer
from headrace.ports.probes import Probes
from headrace.ports.segments import OpenSegments, SegmentFile
from headrace.wire.codec import encode
from headrace.wire.commands.internal import (
    FORGET_GROUP_OFFSETS,
    LOST_RANGE,
    OFFSET_KEY,
    OFFSET_MARK,
    PURGE_PARTITION,
    RETAIN,
    TRIM_UP_TO,
    ForgetGroupOffsets,
    LostRange,
    OffsetKey,
    OffsetMark,
    PurgePartition,
    Retain,
    TrimUpTo,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import REPLY, ReplyHeader
from headrace.wire.requests import RequestHeader
from tests.kernel.samples import Row, batch_of, rows_of, simple_messages
from tests.partitions.fake_files import FakeFiles

if TYPE_CHECKING:
    from headrace.ports.machine import Artifact

NAMESPACE = pack_namespace(Namespace(StreamId(3), TopicId(2), PartitionId(5)))
REVISION = 77
CLUSTER = 0xC1
START = 1_900_000_000_000_000
PLENTY = 1 << 30
CONSUMER, GROUP = ConsumerKind.CONSUMER, ConsumerKind.GROUP
Checkpoint: TypeAlias = "tuple[int, tuple[Artifact, ...], bytes]"  # op, state, request table


def make_options(
    *,
    segment_bytes: int = 4096,
    piece_bytes: int = 1500,
    index_step_bytes: int = INDEX_STEP_BYTES,
    offsets_max: int = 8,
    offsets_ahead: AheadPolicy = AheadPolicy.FAIL,
    namespace: GroupId = NAMESPACE,
) -> PartitionOptions:
    return PartitionOptions(
        namespace=namespace,
        created_revision=REVISION,
        segment_bytes=segment_bytes,
        piece_bytes=piece_bytes,
        index_step_bytes=index_step_bytes,
        offsets_max=offsets_max,
        offsets_ahead=offsets_ahead,
    )


def producer_batch(count: int = 3, payload_bytes: int = 100) -> bytes:
    return batch_of(simple_messages(count, payload_bytes))


def rows(polled: Polled) -> list[Row]:
    """What a consumer sees of a poll; the batches are checked on the way."""
    data = b"".join(polled.parts)
    found: list[Row] = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 32 : at + 40], "little")
        found += rows_of(data[at : at + length])
        at += length
    assert len(found) == polled.messages_count
    if found:
        assert (found[0].offset, found[-1].offset) == (polled.first_offset, polled.last_offset)
    return found


def offsets(polled: Polled) -> list[int]:
    return [row.offset for row in rows(polled)]


class Stage:
    """What a shard does for one partition."""

    def __init__(
        self,
        options: PartitionOptions | None = None,
        files: FakeFiles | None = None,
        *,
        tail_bytes_max: int = PLENTY,
        is_open: bool = True,
        is_alone: bool = False,
    ) -> None:
        self.options = options or make_options()
        self.files = files or FakeFiles()
        self.tail_bytes_max = tail_bytes_max
        self.is_alone = is_alone  # nobody else has what the journal lacks
        self.journal: list[tuple[PrepareHeader, bytes]] = []
        self.captured: Checkpoint = (0, (), b"")
        self.saved: Checkpoint = (0, (), b"")
        self.flushing: int | None = None
        self.is_holding = False  # whether the disk does nothing by itself
        self.op = 0
        self.now = START
        self.ticket = 0
        self._begin()
        if is_open:
            self.machine.open()
            self.settle()

    def _begin(self) -> None:
        self.probes = Probes()
        self.shared = PartitionsShared(self.tail_bytes_max)
        self.machine = PartitionMachine(self.options, self.shared, self.probes)
        self.table = DedupTable(self.options.namespace, self.probes)

    # Ops.

    def propose(self, operation: Operation, body: Buffer, **who: int) -> bytes:
        """Order and apply one op; give the body of its reply."""
        return self.apply(*self.order(operation, body, **who))

    def order(
        self,
        operation: Operation,
        body: Buffer,
        *,
        client: int = 0,
        request: int = 0,
        request_checksum: int = 0,
        is_anew: int = 0,
    ) -> tuple[PrepareHeader, Buffer]:
        """Order one op, as a primary does; return it as it stands in the journal."""
        self.now += 1000
        header = RequestHeader(client=client, request=request, operation=operation)
        body = self.machine.prepare(header, body, self.now)
        self.check()
        self.op += 1
        prepare = PrepareHeader(
            cluster=CLUSTER,
            request_checksum=request_checksum,
            client=client,
            request=request,
            op=self.op,
            timestamp=self.now,
            operation=operation,
            group=self.options.namespace,
            is_anew=is_anew,
        )
        self.journal.append((prepare, bytes(body)))
        return prepare, body

    def apply(self, header: PrepareHeader, body: Buffer) -> bytes:
        payload = self.machine.apply(header, body)
        self.op = max(self.op, header.op)
        self.table.record(header, body, reply_frame(header, payload))
        self.check()
        return payload

    def check(self) -> None:
        """Have all parts check themselves, as they do in the simulator."""
        self.machine.check()
        self.table.check(self.op)
        self.shared.check()

    def send(self, count: int = 3, payload_bytes: int = 100, **who: int) -> int:
        """Send a batch; give its base offset."""
        return self.propose_batch(bytearray(producer_batch(count, payload_bytes)), **who)

    def propose_batch(self, batch: bytearray, **who: int) -> int:
        """Send a batch as it is; give its base offset."""
        reply = self.propose(Operation.SEND_MESSAGES, batch, **who)
        assert reply[:4] == b"\1\0\0\0"
        return int.from_bytes(reply[16:24], "little")

    def store_offset(self, consumer: int, offset: int, kind: ConsumerKind = CONSUMER) -> bytes:
        body = encode(OFFSET_MARK, OffsetMark(kind, consumer, offset))
        return self.propose(Operation.STORE_CONSUMER_OFFSET, body)

    def delete_offset(self, consumer: int, kind: ConsumerKind = CONSUMER) -> bytes:
        body = encode(OFFSET_KEY, OffsetKey(kind, consumer))
        return self.propose(Operation.DELETE_CONSUMER_OFFSET, body)

    def auto_commit(self, consumer: int, offset: int, kind: ConsumerKind = CONSUMER) -> bytes:
        body = encode(OFFSET_MARK, OffsetMark(kind, consumer, offset))
        return self.propose(Operation.AUTO_COMMIT_OFFSET, body)

    def trim(self, up_to: int) -> bytes:
        return self.propose(Operation.DELETE_SEGMENTS, encode(TRIM_UP_TO, TrimUpTo(up_to)))

    def purge(self, generation: int) -> bytes:
        body = encode(PURGE_PARTITION, PurgePartition(generation))
        return self.propose(Operation.PURGE_PARTITION, body)

    def retain(self, *, stamp_max: int = 0, bytes_max: int = 0) -> bytes:
        return self.propose(Operation.RETAIN, encode(RETAIN, Retain(stamp_max, bytes_max)))

    def lose(self, first: int, end: int) -> bytes:
        return self.propose(Operation.LOST_RANGE, encode(LOST_RANGE, LostRange(first, end)))

    def forget_groups(self, *groups: int) -> bytes:
        body = encode(FORGET_GROUP_OFFSETS, ForgetGroupOffsets(groups))
        return self.propose(Operation.FORGET_GROUP_OFFSETS, body)

    # Files.

    def settle(self) -> None:
        """Carry out everything that the machine wants, unless the disk is held."""
        while not self.is_holding and self.step_files():
            pass

    def step_files(self) -> bool:
        """Carry out one effect; return whether there was one."""
        self.files.waiting.extend(self.machine.take_effects())
        if not self.files.waiting:
            return False
        for event in self.files.step():
            self.shared.step(event)
            self.check()
        return True

    def store(self) -> None:
        """Have everything written."""
        self.settle()
        while self.machine.writer.waiting_bytes:
            before = self.machine.writer.waiting_bytes
            self.machine.store()
            self.settle()
            assert self.machine.writer.waiting_bytes < before
        self.settle()

    def saved_files(self) -> list[tuple[SegmentFile, int]]:
        """Give the files that the saved checkpoint names, and their lengths."""
        fresh = PartitionMachine(self.options, PartitionsShared(), Probes())
        fresh.install(self.saved[1])
        fresh.open()
        [effect] = fresh.take_effects()
        assert isinstance(effect, OpenSegments)
        return [(extent.file, extent.length) for extent in effect.extents]

    def whole_file(self, file: SegmentFile) -> bytes:
        """Give what a file holds once everything is stored."""
        self.store()
        return bytes(self.files.logs[file])

    def forget_memory(self) -> None:
        """Have everything written, and nothing left in memory."""
        self.store()
        kept = self.shared.tails.bytes_max
        self.shared.tails.bytes_max = 0
        self.shared.tails.shrink()
        self.shared.tails.bytes_max = kept
        assert self.machine.tail_bytes == 0

    def checkpoint(self) -> None:
        """Take a checkpoint the way a shard does."""
        self.begin_checkpoint()
        self.settle()
        self.end_checkpoint()
        self.settle()

    def begin_checkpoint(self) -> None:
        """Capture the state, and have the files made durable that it names."""
        self.captured = (self.op, self.machine.checkpoint(), self.table.encode())
        self.flushing = self.machine.flush()

    def end_checkpoint(self) -> None:
        """Make durable what was captured; the files are."""
        assert self.flushing is None or self.machine.is_flushed(self.flushing)
        self.saved = self.captured
        self.shared.end_checkpoint()
        self.machine.on_checkpointed()
        self.check()

    def checkpoint_unopened(self) -> None:
        """Begin again from a checkpoint of what is applied, without taking up the files."""
        captured = self.machine.checkpoint()
        self._begin()
        self.machine.install(captured)

    def restart(self) -> None:
        """Begin again from the last checkpoint and the journal behind it."""
        self.files.kill()
        op, artifacts, table = self.saved
        self._begin()
        if artifacts:
            self.machine.install(artifacts)
        self.table.install(table, op)
        self.check()
        for header, body in self.journal:
            if header.op > op:
                self.apply(header, body)
        self.machine.open(is_whole=self.is_alone)
        self.settle()

    # Polls.

    def poll(self, start: PollStart, count: int = 1000, bytes_max: int = PLENTY) -> Polled:
        """Poll; a refusal is raised."""
        self.ticket += 1
        polled = self.machine.poll(self.ticket, start, count=count, bytes_max=bytes_max)
        self.check()
        if polled is not None:
            return polled
        self.settle()
        [(ticket, result)] = self.machine.take_polled()
        assert ticket == self.ticket
        if isinstance(result, RefusedError):
            raise result
        return result


def poll_or_range(stage: Stage, start: PollStart, count: int) -> list[Row] | tuple[int, int]:
    """Poll; return what a consumer sees, or the range that cannot be read."""
    try:
        return rows(stage.poll(start, count))
    except RefusedError as error:
        if error.code != Code.CANNOT_READ_MESSAGE:
            raise
        first, last = error.facts["first_offset"], error.facts["last_offset"]
        assert isinstance(first, int)
        assert isinstance(last, int)
        return first, last


def reply_frame(header: PrepareHeader, payload: bytes) -> bytes:
    """The reply as consensus makes it."""
    return (
        REPLY.encode(
            ReplyHeader(
                cluster=header.cluster,
                size=256 + len(payload),
                request_checksum=header.request_checksum,
                client=header.client,
                op=header.op,
                commit=header.op,
                timestamp=header.timestamp,
                request=header.request,
                operation=header.operation,
            )
        )
        + payload
    )
