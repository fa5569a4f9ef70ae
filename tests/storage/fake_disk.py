"""A disk that keeps two images, what the page cache holds and what survives a power cut.

It carries out the effects of a store one at a time, in an order of its own where the port allows
it, and can crash between any two.
"""

from collections import deque
from itertools import pairwise

from headrace.base.prng import Prng
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
from headrace.storage.config import journal_name
from headrace.storage.store import Store

SECTOR_BYTES = 512


class FakeDisk:
    """Honours the port: writes are volatile until a sync, blocks and replaced files are not."""

    def __init__(self, files: dict[str, bytes], prng: Prng | None = None) -> None:
        self.durable = {name: bytearray(data) for name, data in files.items()}
        self.cached = {name: bytearray(data) for name, data in files.items()}
        self.is_full = False
        self.reads_fail = False
        self._prng = prng or Prng(0)
        self._unsynced: list[tuple[str, int, bytes]] = []
        self._waiting: deque[DiskEffect] = deque()
        self._sync_wanted = False
        self._written = 0
        self._reported = 0

    # Working.

    def take(self, store: Store) -> None:
        store.check()
        self._waiting.extend(store.take_effects())

    def settle(self, store: Store) -> None:
        """Carry out everything, syncs included, until the store wants nothing more."""
        while self.step(store):
            pass

    def step(self, store: Store, *, may_sync: bool = True) -> bool:
        """Carry out one effect, or a sync that is wanted; return whether there was any."""
        self.take(store)
        if self._waiting and not (self._sync_wanted and may_sync and self._prng.chance(1, 4)):
            event = self._do(self._waiting.popleft())
            if event is not None:
                store.step(event)
                store.check()
            return True
        if self._sync_wanted and may_sync:
            self._sync_wanted = False
            self.sync()
            store.step(Synced(self._written))
            store.check()
            return True
        return False

    def sync(self) -> None:
        for name, position, data in self._unsynced:
            _put(self.durable, name, position, data)
        self._unsynced.clear()

    def _do(self, effect: DiskEffect) -> DiskEvent | None:
        match effect:
            case WriteJournal():
                assert effect.sequence == self._written + 1 or self._written == 0
                self._write(journal_name(effect.file), effect.position, effect.data)
                self._written = effect.sequence
                self._sync_wanted |= effect.sync
                return Written(effect.sequence) if effect.is_awaited else None
            case AllocateJournal():
                self._allocate(journal_name(effect.file), effect.size)
                return JournalAllocated(effect.file, not self.is_full)
            case ReadJournal():
                data = self.cached.get(journal_name(effect.file), bytearray())
                part = bytes(data[effect.position : effect.position + effect.length])
                return JournalRead(effect.token, None if self.reads_fail else part)
            case ReplaceFile():
                if not self.is_full:
                    self.durable[effect.name] = bytearray(effect.data)
                    self.cached[effect.name] = bytearray(effect.data)
                return FileReplaced(effect.token, not self.is_full)
            case WriteBlock():
                for image in (self.durable, self.cached):
                    _put(image, effect.name, effect.position, effect.data)
                return BlockWritten(effect.token)
            case RemoveFile():
                self.durable.pop(effect.name, None)
                self.cached.pop(effect.name, None)
                return None

    def _allocate(self, name: str, size: int) -> None:
        if not self.is_full:
            for image in (self.durable, self.cached):
                held = image.setdefault(name, bytearray())
                held.extend(bytes(max(0, size - len(held))))

    def _write(self, name: str, position: int, data: bytes) -> None:
        held = self.cached[name]
        assert position + len(data) <= len(held), "a write past the allocated space"
        held[position : position + len(data)] = data
        self._unsynced.append((name, position, data))

    # Ending.

    def files(self) -> dict[str, bytes]:
        """Give what a new process reads."""
        return {name: bytes(data) for name, data in self.cached.items()}

    def crash(self) -> dict[str, bytes]:
        """Cut the power: each write since the last sync survives whole, in part, or not at all."""
        image = {name: bytearray(data) for name, data in self.durable.items()}
        for name, position, data in self._unsynced:
            self._tear(image, name, position, data)
        if self._waiting:
            self._break_off(image, self._waiting[0])
        return {name: bytes(data) for name, data in image.items()}

    def _tear(self, image: dict[str, bytearray], name: str, position: int, data: bytes) -> None:
        kind = self._prng.below(4)
        if kind == 1:
            _put(image, name, position, data)
        elif kind == 2:
            _put(image, name, position, data[: self._prng.below(len(data) + 1)])
        elif kind == 3:
            for start, end in sectors(position, len(data)):
                if self._prng.chance(1, 2):
                    _put(image, name, start, data[start - position : end - position])

    def _break_off(self, image: dict[str, bytearray], effect: DiskEffect) -> None:
        match effect:
            case WriteBlock():
                self._tear(image, effect.name, effect.position, effect.data)
            case WriteJournal():
                self._tear(image, journal_name(effect.file), effect.position, effect.data)
            case ReplaceFile():
                cut = effect.data[: self._prng.below(len(effect.data) + 1)]
                image[effect.name + ".tmp"] = bytearray(cut)
                if self._prng.chance(1, 3):
                    image[effect.name] = bytearray(effect.data)
            case _:
                pass


def sectors(position: int, length: int) -> list[tuple[int, int]]:
    """Give where each sector of a write begins and ends."""
    cuts = [position]
    while cuts[-1] < position + length:
        cuts.append(min(position + length, (cuts[-1] // SECTOR_BYTES + 1) * SECTOR_BYTES))
    return list(pairwise(cuts))


def _put(image: dict[str, bytearray], name: str, position: int, data: bytes) -> None:
    held = image.setdefault(name, bytearray())
    held.extend(bytes(max(0, position + len(data) - len(held))))
    held[position : position + len(data)] = data
