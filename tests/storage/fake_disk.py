"""A disk for a store alone: it chooses the order where the port allows it, and tears writes.

It carries out the effects of a store one at a time, and can crash between any two.
"""

from collections import deque
from itertools import pairwise

from headrace.base.prng import Prng
from headrace.ports.disk import DiskEffect, ReplaceFile, WriteBlock, WriteJournal
from headrace.sim.medium import SECTOR_BYTES, tear
from headrace.storage.config import journal_name
from headrace.storage.store import Store
from tests.memory_disk import MemoryDisk


class FakeDisk(MemoryDisk):
    """Honours the port: writes are volatile until a sync, blocks and replaced files are not."""

    def __init__(self, files: dict[str, bytes], prng: Prng | None = None) -> None:
        super().__init__(files)
        self._prng = prng or Prng(0)
        self._waiting: deque[DiskEffect] = deque()
        self._is_sync_wanted = False

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
        is_sync_due = self._is_sync_wanted and may_sync
        if self._waiting and not (is_sync_due and self._prng.chance(1, 4)):
            effect = self._waiting.popleft()
            self._is_sync_wanted |= isinstance(effect, WriteJournal) and effect.sync
            event = self.carry_out(effect)
        elif is_sync_due:
            self._is_sync_wanted = False
            event = self.sync()
        else:
            return False
        if event is not None:
            store.step(event)
            store.check()
        return True

    # Ending.

    def files(self) -> dict[str, bytes]:
        """Return what a new process reads."""
        return self.image()

    def crash(self) -> dict[str, bytes]:
        """Cut the power: each write since the last sync survives whole, in part, or not at all."""
        image = {name: bytearray(data) for name, data in self.durable.items()}
        for name, position, data in self.unsynced:
            self._tear(image, name, position, data)
        if self._waiting:
            self._break_off(image, self._waiting[0])
        return {name: bytes(data) for name, data in image.items()}

    def _tear(self, image: dict[str, bytearray], name: str, position: int, data: bytes) -> None:
        tear(image.setdefault(name, bytearray()), position, data, self._prng)

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
    """Return where each sector of a write begins and ends."""
    cuts = [position]
    while cuts[-1] < position + length:
        cuts.append(min(position + length, (cuts[-1] // SECTOR_BYTES + 1) * SECTOR_BYTES))
    return list(pairwise(cuts))
