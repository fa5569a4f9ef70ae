"""The commands of scenarios of one partition, its files, and replicas of it."""

from headrace.base.checksum import xxh3_64
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.ports.machine import Verdict
from headrace.ports.network import Buffer
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import split_batches
from headrace.wire.codec import encode
from headrace.wire.commands.internal import (
    OFFSET_KEY,
    OFFSET_MARK,
    TRIM_UP_TO,
    OffsetKey,
    OffsetMark,
    TrimUpTo,
)
from headrace.wire.errors import CorruptError, RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import read_answer
from headrace.wire.requests import RequestHeader
from tests.partitions.stage import PLENTY, START, Stage, make_options, reply_frame
from tests.partitions.transfers import offered
from tests.partitions.words import (
    batch_of_words,
    consumer_of,
    describe_answer,
    describe_effect,
    describe_error,
    describe_files,
    describe_partition,
    start_of,
)

Ordered = tuple[PrepareHeader, Buffer]


class Commands:
    """Understands the commands of a scenario file.

    A message is a word, padded: a batch takes 256 bytes, and 64 for each message. Time counts from
    the start in microseconds; every op takes 1000. Consumers are c1, c2, …, groups g1, g2, ….

    partition [NAME=BYTES]…        begin: the sizes of segment, piece and step (of the index)
    on REPLICA                     go to a replica, made like the first one, a, if it is new
    send WORD… [as CLIENT NUMBER]  send a batch, maybe as a request of a client with its number
    order WORD…                    order a batch that is not committed yet
    commit                         commit what is ordered
    store CONSUMER OFFSET, delete CONSUMER, auto-commit CONSUMER OFFSET, offset CONSUMER
    delete-segments COUNT [as CLIENT NUMBER]
    retain age TIME                drop segments that are stamped up to a time
    retain size BYTES              drop segments until the sealed ones are small enough
    purge, lose END                begin a new history; lose the offsets up to an end
    clock TIME                     set the time of the next op
    poll START [COUNT]             START: first, last, next CONSUMER, offset OFFSET or time TIME
    write, forget                  write what is committed; let it leave memory, too
    full, space                    the disk has no space; it has again
    hold, answer COUNT, release    the disk waits; carries out some effects; goes on by itself
    pending                        show what the disk is asked for
    checkpoint                     take one
    capture, finish                begin one; have it become durable
    restart                        begin again from the last checkpoint and the journal behind it
    flip SEGMENT BYTE              damage a byte of a segment; its batches begin with byte 0
    copy REPLICA SEGMENT [BATCH]   put what another replica has there: its batches, or one
    copy-index REPLICA SEGMENT TO  replace the index of a segment by one of another replica
    drop-index SEGMENT             remove the index of a segment
    transfer REPLICA               take over the state of another replica
    files, show                    show the files; show what the partition says of itself
    reached MARK                   show how often its code passed a mark since the last start
    """

    def __init__(self) -> None:
        self.do_partition()

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        try:
            printed: list[str] = getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        except (RefusedError, CorruptError) as error:
            printed = [f"refused, {describe_error(error)}"]
        polled = [describe_answer(result) for _, result in self.stage.machine.take_polled()]
        return printed + polled

    def do_partition(self, *sizes: str) -> None:
        self.sizes = {name: int(size) for name, _, size in (each.partition("=") for each in sizes)}
        self.replicas: dict[str, Stage] = {}
        self.ordered: list[Ordered] = []
        self.generation = 0
        self.do_on("a")

    def do_on(self, replica: str) -> None:
        if replica not in self.replicas:
            options = make_options(
                segment_bytes=self.sizes.get("segment", PLENTY),
                piece_bytes=self.sizes.get("piece", PLENTY),
                index_step_bytes=self.sizes.get("step", PLENTY),
            )
            self.replicas[replica] = Stage(options)
        self.stage = self.replicas[replica]

    # Ops.

    def do_send(self, *words: str) -> list[str]:
        words, who = split_who(words)
        body = batch_of_words(words)
        return self.request(Operation.SEND_MESSAGES, body, xxh3_64(body), **who)

    def do_delete_segments(self, count: str, *words: str) -> list[str]:
        """As a shard does: the request counts segments, the op names an offset."""
        last = self.stage.machine.sealed_end(int(count))
        body = encode(TRIM_UP_TO, TrimUpTo(last or 0))
        _, who = split_who(words)
        return self.request(Operation.DELETE_SEGMENTS, body, xxh3_64(count.encode()), **who)

    def request(self, operation: Operation, body: Buffer, checksum: int, **who: int) -> list[str]:
        """Have a request judged and, if it is new, applied, as consensus does."""
        header = RequestHeader(operation=operation, request_checksum=checksum, **who)
        verdict, reply = self.stage.table.judge(header, body)
        if verdict == Verdict.REPLAY:
            return [f"answered again: {describe_reply(operation, reply)}"]
        if verdict == Verdict.ALREADY_APPLIED:
            return ["applied before"]
        who |= {"is_anew": int(self.stage.table.is_applied(header)), "request_checksum": checksum}
        return self.commit(self.stage.order(operation, body, **who))

    def commit(self, ordered: Ordered) -> list[str]:
        header, body = ordered
        reply = reply_frame(header, self.stage.apply(header, body))
        self.stage.settle()
        return [describe_reply(Operation(header.operation), reply)]

    def do_order(self, *words: str) -> None:
        self.ordered.append(self.stage.order(Operation.SEND_MESSAGES, batch_of_words(words)))

    def do_commit(self) -> list[str]:
        ordered, self.ordered = self.ordered, []
        return [line for each in ordered for line in self.commit(each)]

    def do_store(self, consumer: str, offset: str) -> list[str]:
        body = encode(OFFSET_MARK, OffsetMark(*consumer_of(consumer), int(offset)))
        return self.commit(self.stage.order(Operation.STORE_CONSUMER_OFFSET, body))

    def do_delete(self, consumer: str) -> list[str]:
        body = encode(OFFSET_KEY, OffsetKey(*consumer_of(consumer)))
        return self.commit(self.stage.order(Operation.DELETE_CONSUMER_OFFSET, body))

    def do_auto_commit(self, consumer: str, offset: str) -> list[str]:
        kind, consumer_id = consumer_of(consumer)
        self.stage.auto_commit(consumer_id, int(offset), kind)
        return self.do_offset(consumer)

    def do_offset(self, consumer: str) -> list[str]:
        stored = self.stage.machine.stored_offset(*consumer_of(consumer))
        return [f"{consumer} has stored {'nothing' if stored is None else stored}"]

    def do_retain(self, limit: str, value: str) -> list[str]:
        if limit == "age":
            self.stage.retain(stamp_max=START + int(value))
        else:
            self.stage.retain(bytes_max=int(value))
        return self.do_show()

    def do_purge(self) -> None:
        self.generation += 1
        self.stage.purge(self.generation)

    def do_lose(self, end: str) -> None:
        self.stage.lose(self.stage.machine.next_offset, int(end))

    def do_clock(self, time: str) -> None:
        self.stage.now = START + int(time) - 1000

    # Polls.

    def do_poll(self, *words: str) -> list[str]:
        start, rest = start_of(words, self.stage.machine)
        count = int(rest[0]) if rest else 100
        self.stage.ticket += 1
        polled = self.stage.machine.poll(self.stage.ticket, start, count=count, bytes_max=PLENTY)
        self.stage.settle()
        if polled is not None:
            return [describe_answer(polled)]
        return ["waits for the disk"] if self.stage.is_holding else []

    # Files.

    def do_write(self) -> None:
        self.stage.machine.store()
        self.stage.settle()

    def do_forget(self) -> None:
        self.stage.forget_memory()

    def do_full(self) -> None:
        self.stage.files.is_full = True

    def do_space(self) -> None:
        self.stage.files.is_full = False
        self.stage.shared.tick(1 << 20)
        self.stage.settle()

    def do_hold(self) -> None:
        self.stage.is_holding = True

    def do_answer(self, count: str) -> None:
        for _ in range(int(count)):
            assert self.stage.step_files()

    def do_release(self) -> None:
        self.stage.is_holding = False
        self.stage.settle()

    def do_pending(self) -> list[str]:
        self.stage.files.waiting.extend(self.stage.machine.take_effects())
        return [describe_effect(effect) for effect in self.stage.files.waiting] or ["nothing"]

    def do_checkpoint(self) -> None:
        self.stage.checkpoint()

    def do_capture(self) -> None:
        self.stage.begin_checkpoint()

    def do_finish(self) -> None:
        self.stage.end_checkpoint()
        self.stage.settle()

    def do_restart(self) -> None:
        self.ordered.clear()
        self.stage.restart()

    def do_files(self) -> list[str]:
        return describe_files(self.stage.files)

    def do_show(self) -> list[str]:
        return describe_partition(self.stage.machine)

    def do_reached(self, mark: str) -> list[str]:
        return [f"{mark}: {self.stage.probes.counts.get(mark, 0)}"]

    # Damage, and other replicas.

    def file(self, segment: str) -> SegmentFile:
        """Return the file of a segment of the current history, named by its first offset."""
        options = self.stage.options
        epoch = self.stage.machine.history_epoch
        return SegmentFile(options.namespace, options.created_revision, epoch, int(segment))

    def do_flip(self, segment: str, byte: str) -> None:
        self.stage.files.logs[self.file(segment)][SEGMENT_HEADER_BYTES + int(byte)] ^= 1

    def do_copy(self, replica: str, segment: str, batch: str = "") -> None:
        file = self.file(segment)
        theirs = self.replicas[replica].whole_file(file)
        held = self.stage.files.logs[file]
        assert len(held) == len(theirs)
        batches = [bytes(each) for each in split_batches(theirs[SEGMENT_HEADER_BYTES:])]
        first, end = (int(batch), int(batch) + 1) if batch else (0, len(batches))
        start = SEGMENT_HEADER_BYTES + sum(map(len, batches[:first]))
        copied = b"".join(batches[first:end])
        assert held[start : start + len(copied)] != copied
        held[start : start + len(copied)] = copied

    def do_copy_index(self, replica: str, segment: str, target: str) -> None:
        theirs = self.replicas[replica].files.indexes[self.file(segment)]
        assert self.stage.files.indexes[self.file(target)] != theirs
        self.stage.files.indexes[self.file(target)] = theirs

    def do_drop_index(self, segment: str) -> None:
        del self.stage.files.indexes[self.file(segment)]

    def do_transfer(self, replica: str) -> None:
        source = self.replicas[replica]
        self.stage.machine.install(offered(source, self.stage))
        self.stage.table.install(source.table.encode(), source.op)
        self.stage.journal, self.stage.op = list(source.journal), source.op
        self.stage.settle()


def split_who(words: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the words before `as CLIENT NUMBER`, and who that is."""
    if "as" not in words:
        return words, {}
    at = words.index("as")
    client, number = words[at + 1 :]
    return words[:at], {"client": ord(client) - ord("a") + 1, "request": int(number)}


def describe_reply(operation: Operation, reply: bytes) -> str:
    payload = bytes(read_answer(reply))
    if operation == Operation.SEND_MESSAGES:
        return f"offset {int.from_bytes(payload[16:24], 'little')}"
    return "done"
