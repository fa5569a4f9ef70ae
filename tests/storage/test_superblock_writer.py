"""Changes of the superblock that follow each other, with a crash at every step (PR4)."""

import msgspec
import pytest

from headrace.ports.disk import WriteBlock
from headrace.storage.config import identity_of
from headrace.storage.copies import BLOCK_BYTES, COPIES, COPIES_QUORUM
from headrace.storage.outbox import Outbox
from headrace.storage.superblock import (
    Superblock,
    choose_superblock,
    decode_superblock,
    encode_superblock_file,
)
from headrace.storage.superblock_writer import SuperblockWriter
from tests.storage.samples import INCARNATION, config

SUPERBLOCK = Superblock(identity=identity_of(config(), INCARNATION), synced=100)


RECORD_AT, SYNCED_AT = 32, 64  # in a block, and in the record


class Disk:
    """The file, and what a crash leaves of it while a copy is written."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.file = bytearray(encode_superblock_file(SUPERBLOCK, sequence=1))
        self.writer = SuperblockWriter(
            SUPERBLOCK, sequence=1, order=tuple(range(COPIES)), outbox=self.outbox
        )
        self.done: list[int] = []
        self.writing: list[WriteBlock] = []

    def change(self, synced: int) -> None:
        def raised(old: Superblock) -> Superblock:
            return msgspec.structs.replace(old, synced=synced)

        self.writer.write(raised, lambda: self.done.append(synced))
        self.take()

    def take(self) -> None:
        for effect in self.outbox.take_effects():
            assert isinstance(effect, WriteBlock)
            self.writing.append(effect)
        assert len(self.writing) <= 1, "one copy at a time"

    def torn(self) -> bytes:
        """Give what lies there if the copy that is written now is torn."""
        torn = bytearray(self.file)
        for block in self.writing:
            torn[block.position : block.position + BLOCK_BYTES // 2] = bytes(BLOCK_BYTES // 2)
        return bytes(torn)

    def finish(self) -> None:
        block = self.writing.pop()
        self.file[block.position : block.position + len(block.data)] = block.data
        assert self.writer.on_written(block.token)
        self.take()


def recovered(file: bytes) -> int:
    choice = choose_superblock(file)
    assert choice.payload, "no two copies agree"
    return decode_superblock(choice.payload).synced


def held(disk: Disk) -> list[int]:
    """Give what each copy says."""
    copies = [disk.file[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES] for at in range(COPIES)]
    at = RECORD_AT + SYNCED_AT
    return [int.from_bytes(copy[at : at + 8], "little") for copy in copies]


@pytest.mark.parametrize("late_at", range(COPIES + 1))
def test_a_change_that_waits_begins_when_two_copies_agree(late_at: int) -> None:
    """However late the second change comes, no crash loses an agreed one."""
    disk = Disk()
    disk.change(101)
    for written in range(3 * COPIES):
        if written == late_at:
            disk.change(102)
            disk.change(103)
        agreed = disk.writer.current.synced
        assert recovered(disk.torn()) == agreed
        if not disk.writing:
            break
        disk.finish()
        assert recovered(bytes(disk.file)) >= agreed
        assert held(disk).count(disk.writer.current.synced) >= COPIES_QUORUM
        assert all(each <= min(held(disk)) for each in disk.done)
    assert disk.done == [101, 102, 103]
    assert held(disk) == [103] * COPIES


def test_two_changes_that_wait_take_two_copies_each_but_the_last() -> None:
    disk = Disk()
    for synced in (101, 102, 103):
        disk.change(synced)
    count = 0
    while disk.writing:
        disk.finish()
        count += 1
    assert count == 2 * COPIES_QUORUM + COPIES
    assert disk.done == [101, 102, 103]
