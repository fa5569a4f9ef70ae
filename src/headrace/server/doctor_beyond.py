"""Judges what segment files hold behind their checkpoint: whether the journal accounts for it.

A start knows the log to the byte (`partitions.beyond`). Here the journal's ops are followed by
their offsets alone, which says the same of every message.
"""

import os
from functools import partial
from pathlib import Path

import msgspec

from headrace.partitions.beyond import Read, find_batch
from headrace.partitions.log import PartitionLog
from headrace.partitions.pieces import Place
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import SegmentFile
from headrace.runtime.whole import read_all
from headrace.server.doctor_report import Verdict
from headrace.wire.batches import decode_batch_header
from headrace.wire.codec import decode_exactly
from headrace.wire.commands.internal import LOST_RANGE
from headrace.wire.numbers import Operation

_AGAIN = "written since the checkpoint: the next start writes it again from the journal"
_DROPPED = "dropped by the log: the next start removes it"
_SPARE = "bytes behind the end of the log, and no message: the next start keeps them in quarantine"
_TOLD = "; the next start keeps them in quarantine if the power took them from a topic of class"
_FENCED = "; nothing of the partition is served until the folder is restored from one copy"


class JournalEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log of one partition ends with all that the journal has of it."""

    history_epoch: int = 0
    first_offset: int = 0
    next_offset: int = 0
    is_tail_lost: bool = False  # a power cut may have taken what came behind


def find_end(group: RecoveredGroup, log: PartitionLog | None) -> JournalEnd:
    """Follow the ops of one partition from its checkpoint to the end of the journal."""
    epoch = log.history_epoch if log else 0
    first = log.first_offset if log else 0
    following = log.next_offset if log else 0
    for entry in group.entries:
        if entry.body is None:
            continue
        match entry.header.operation:
            case Operation.SEND_MESSAGES:
                batch = decode_batch_header(memoryview(entry.body))
                following = batch.base_offset + batch.messages_count
            case Operation.LOST_RANGE:
                following = max(following, decode_exactly(LOST_RANGE, entry.body).end)
            case Operation.PURGE_PARTITION:
                epoch, first, following = epoch + 1, 0, 0
            case _:
                pass
    return JournalEnd(
        history_epoch=epoch,
        first_offset=first,
        next_offset=following,
        is_tail_lost=group.state.is_tail_lost,
    )


def judge_beyond(
    path: Path, file: SegmentFile, place: Place, end: JournalEnd
) -> tuple[Verdict, str]:
    """Judge the bytes of a segment from a place on, which no checkpoint vouches for."""
    if (file.history_epoch, file.base_offset) < (end.history_epoch, end.first_offset):
        return Verdict.REPAIRED, _DROPPED
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _judge(file, partial(_read, fd), place, end)
    finally:
        os.close(fd)


def _judge(file: SegmentFile, read: Read, place: Place, end: JournalEnd) -> tuple[Verdict, str]:
    is_later = file.history_epoch > end.history_epoch
    offset, position = place.offset, place.position
    while (batch := find_batch(file, read, position)) is not None:
        if is_later or batch.base_offset >= end.next_offset:
            return _foreign(batch.base_offset, end)
        offset = batch.base_offset + batch.messages_count
        position += batch.length
    is_alone = place.offset == file.base_offset  # no checkpoint has anything of this file
    is_spare = offset >= end.next_offset and (is_alone or bool(read(position, 1)))
    return (Verdict.NOTICE, _SPARE) if is_spare else (Verdict.REPAIRED, _AGAIN)


def _foreign(offset: int, end: JournalEnd) -> tuple[Verdict, str]:
    text = (
        f"messages from offset {offset} on, and checkpoint and journal end at"
        f" {end.next_offset} of history {end.history_epoch}"
    )
    if end.is_tail_lost:
        return Verdict.NOTICE, f"{text}{_TOLD} replicated{_FENCED} otherwise"
    return Verdict.DAMAGED, f"{text}{_FENCED}"


def _read(fd: int, position: int, length: int) -> bytes:
    return read_all(fd, length, position)
