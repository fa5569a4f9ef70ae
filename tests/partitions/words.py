"""What scenarios of a partition read and print: messages, consumers, polls, files."""

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.gather import (
    First,
    FromOffset,
    FromTimestamp,
    Last,
    NextAfter,
    Polled,
    PollStart,
)
from headrace.partitions.machine import PartitionMachine
from headrace.ports.segments import SegmentEffect, SegmentFile
from headrace.wire.errors import CorruptError, RefusedError
from headrace.wire.numbers import ConsumerKind
from tests.kernel.samples import ORIGIN, Message, batch_of
from tests.partitions.fake_files import FakeFiles
from tests.partitions.stage import START, rows

_PAYLOAD_BYTES = 16
_KINDS = {"c": ConsumerKind.CONSUMER, "g": ConsumerKind.GROUP}
_STARTS: dict[str, PollStart] = {"first": First(), "last": Last()}


def batch_of_words(words: tuple[str, ...]) -> bytearray:
    """Return a batch with a message for each word, all of them of one size."""
    assert all(len(word) <= _PAYLOAD_BYTES for word in words)
    return bytearray(
        batch_of(
            [Message(bytes(16), ORIGIN, word.ljust(_PAYLOAD_BYTES).encode()) for word in words]
        )
    )


def consumer_of(name: str) -> tuple[ConsumerKind, int]:
    """Return kind and id of a consumer or group."""
    return _KINDS[name[0]], int(name[1:])


def start_of(
    words: tuple[str, ...], machine: PartitionMachine
) -> tuple[PollStart, tuple[str, ...]]:
    """Return where a poll begins, and the words behind that."""
    kind, *rest = words
    match kind:
        case "offset":
            return FromOffset(int(rest[0])), tuple(rest[1:])
        case "time":
            return FromTimestamp(START + int(rest[0])), tuple(rest[1:])
        case "next":
            return NextAfter(machine.stored_offset(*consumer_of(rest[0]))), tuple(rest[1:])
        case _:
            return _STARTS[kind], tuple(rest)


def describe_answer(answer: Polled | RefusedError) -> str:
    """Describe what a poll was answered with."""
    if isinstance(answer, RefusedError):
        return f"refused, {describe_error(answer)}"
    found = [f"{row.offset} {row.message.payload.decode().strip()}" for row in rows(answer)]
    return ", ".join(found) or "no messages"


def describe_error(error: RefusedError | CorruptError) -> str:
    """Describe a refusal, with the range that it names."""
    if isinstance(error, CorruptError):
        return str(error)
    if "first_offset" in error.facts:
        first, last = error.facts["first_offset"], error.facts["last_offset"]
        return f"{error.code.name}, offsets {first} to {last}"
    return error.code.name


def describe_files(files: FakeFiles) -> list[str]:
    """Describe what is on the disk."""
    found = sorted(files.logs, key=lambda file: (file.history_epoch, file.base_offset))
    return [
        f"{_name(file)}: {len(files.logs[file]) - SEGMENT_HEADER_BYTES} bytes"
        + (", index" if file in files.indexes else "")
        for file in found
    ] or ["no files"]


def describe_effect(effect: SegmentEffect) -> str:
    """Describe what the disk is asked for."""
    file = getattr(effect, "file", None)
    return type(effect).__name__ + (f" of {_name(file)}" if file else "")


def _name(file: SegmentFile) -> str:
    return f"history {file.history_epoch}, segment {file.base_offset}"


def describe_partition(machine: PartitionMachine) -> list[str]:
    """Describe what a partition says of itself."""
    offsets = "no messages"
    if machine.messages_count:
        offsets = f"offsets {machine.first_offset} to {machine.current_offset}"
    lines = [f"{offsets}, segments: {machine.segments_count}, next offset: {machine.next_offset}"]
    lines += [f"lost: {first} to {end - 1}" for first, end in machine.lost_ranges]
    return lines + (["fenced"] if machine.fence is not None else [])
