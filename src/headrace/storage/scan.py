"""Finds the records in the bytes of the journal files; checks only their store."""

from collections.abc import Mapping

import msgspec

from headrace.storage.config import JournalKey, journal_name
from headrace.storage.records import (
    RECORD_ALIGNMENT,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RECORD_VERSION,
    Head,
    read_head,
)


class Scan(msgspec.Struct):
    """All records whose header and entries are as they were written, in no order.

    `refusal` is the reason why none of them may be used: another store, or another version.
    """

    heads: list[Head]
    refusal: str = ""
    refusal_file: str = ""
    refusal_position: int = 0

    def refuse(self, sentence: str, *, file: str, position: int) -> None:
        """Keep the first reason."""
        if not self.refusal:
            self.refusal, self.refusal_file, self.refusal_position = sentence, file, position


def scan_journal(files: Mapping[str, bytes], *, files_count: int, key: JournalKey) -> Scan:
    """Find the records of all files."""
    scan = Scan([])
    for file in range(files_count):
        _scan_file(scan, files.get(journal_name(file), b""), file, key)
    return scan


def _scan_file(scan: Scan, data: bytes, file: int, key: JournalKey) -> None:
    """Walk one file; where there is no record, continue at the next possible position."""
    position = 0
    while position < len(data):
        head = read_head(data, position)
        if head is not None and _is_ours(scan, head, file, position, key):
            scan.heads.append(head)
            assert head.length > RECORD_HEADER_BYTES, "the walk goes on behind the record"
            position += head.length
        else:
            position = _next_magic(data, position + RECORD_ALIGNMENT)


def _is_ours(scan: Scan, head: Head, file: int, position: int, key: JournalKey) -> bool:
    name = journal_name(file)
    if head.place != key.place:
        if position == 0:  # Deeper in, it may be the body of a damaged record.
            scan.refuse(
                f"{name} holds the journal of another store (DK17)", file=name, position=position
            )
        return False
    if head.life != key.life or head.file != file or head.position != position:
        return False
    if head.version != RECORD_VERSION:
        scan.refuse(
            f"{name} at byte {position}: record of version {head.version}, "
            f"this program reads {RECORD_VERSION}",
            file=name,
            position=position,
        )
        return False
    return True


def _next_magic(data: bytes, position: int) -> int:
    while (position := data.find(RECORD_MAGIC, position)) >= 0:
        if position % RECORD_ALIGNMENT == 0:
            return position
        position += 1
    return len(data)
