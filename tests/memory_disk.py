"""A disk in memory that honours its port and answers at once: the tests of whole parts run on it.

It keeps two images, what the page cache holds and what survives a power cut. Faults are what a test
sets; `headrace.sim.disk` draws them instead, in virtual time.
"""

from headrace.ports.disk import (
    AllocateJournal,
    BlockWritten,
    DiskEffect,
    DiskEvent,
    FileReplaced,
    JournalAllocated,
    JournalRead,
    ReadJournal,
    RemoveFile,
    ReplaceFile,
    Synced,
    WriteBlock,
    WriteJournal,
    Written,
)
from headrace.sim.medium import put
from headrace.storage.config import journal_name


class MemoryDisk:
    """The files of one store; syncs come when they are asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.cached = {name: bytearray(data) for name, data in files.items()}
        self.durable = {name: bytearray(data) for name, data in files.items()}
        self.unsynced: list[tuple[str, int, bytes]] = []
        self.last = ("", 0, b"")  # where the last record was written, and what lay there before
        self.written = self.synced = 0
        self.is_syncing = True  # whether syncs come back
        self.is_full = False  # whether no file can be made or grow
        self.reads_fail = False

    def carry_out(self, effect: DiskEffect) -> DiskEvent | None:
        """Carry out one effect; return its answer, if it has one."""
        match effect:
            case WriteJournal():
                self._write(journal_name(effect.file), effect.position, effect.data)
                self.written = effect.sequence
                return Written(effect.sequence) if effect.is_awaited else None
            case AllocateJournal():
                self._allocate(journal_name(effect.file), effect.size)
                return JournalAllocated(effect.file, not self.is_full)
            case ReadJournal():
                held = self.cached.get(journal_name(effect.file), bytearray())
                part = bytes(held[effect.position : effect.position + effect.length])
                return JournalRead(effect.token, None if self.reads_fail else part)
            case ReplaceFile():
                if not self.is_full:
                    for image in (self.durable, self.cached):
                        image[effect.name] = bytearray(effect.data)
                return FileReplaced(effect.token, not self.is_full)
            case WriteBlock():
                for image in (self.durable, self.cached):
                    put(image.setdefault(effect.name, bytearray()), effect.position, effect.data)
                return BlockWritten(effect.token)
            case RemoveFile():
                self.durable.pop(effect.name, None)
                self.cached.pop(effect.name, None)
        return None

    def _allocate(self, name: str, size: int) -> None:
        for image in (self.durable, self.cached) if not self.is_full else ():
            held = image.setdefault(name, bytearray())
            held.extend(bytes(max(0, size - len(held))))

    def _write(self, name: str, position: int, data: bytes) -> None:
        held = self.cached[name]
        assert position + len(data) <= len(held), "a write past the allocated space"
        self.last = (name, position, bytes(held[position : position + len(data)]))
        held[position : position + len(data)] = data
        self.unsynced.append((name, position, data))

    def sync(self) -> Synced | None:
        """Sync what was written; return the answer, if there was anything and syncs come back."""
        if self.synced == self.written or not self.is_syncing:
            return None
        for name, position, data in self.unsynced:
            if name in self.durable:
                put(self.durable[name], position, data)
        self.unsynced.clear()
        self.synced = self.written
        return Synced(self.synced)

    def image(self) -> dict[str, bytes]:
        """Return what a killed process leaves."""
        return {name: bytes(data) for name, data in self.cached.items()}

    def cut(self, kept_of_last: int = 0) -> dict[str, bytes]:
        """Return what a power cut leaves: of the last write its first bytes, of others nothing."""
        left = {name: bytearray(data) for name, data in self.durable.items()}
        for name, position, data in self.unsynced[-1:]:
            put(left[name], position, data[:kept_of_last])
        return {name: bytes(data) for name, data in left.items()}

    def damage(self, name: str, position: int, data: bytes) -> None:
        """Put other bytes where some were: a node that starts finds them."""
        for image in (self.durable, self.cached):
            put(image[name], position, data)
