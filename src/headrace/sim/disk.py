"""The disk of one simulated node: what the page cache holds, and what a power cut leaves.

Journal writes queue up: one batch is written at a time, and one sync runs at a time and covers what
was written when it began (D5). A killed process loses what it had not handed over; a power cut also
loses, tears or keeps each write that no sync covered (DK6, DK7, DK9). Opening the disk again syncs
what the last process left in the page cache.

Damage (rot, zeroed sectors, lost and misdirected writes) happens only when asked for, and spares
what the newest sync covered: nothing later on the disk could prove that it had been there.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

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
from headrace.sim.agenda import MILLISECOND, Agenda, exponential
from headrace.sim.chance import strikes
from headrace.sim.medium import SECTOR_BYTES, File, put, tear

BLOCK_BYTES = 4096
SYNC_LATER = 50 * MILLISECOND  # for writes that ask for no sync (O1.2)
TEMPORARY = ".tmp"


class DiskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a disk behaves; delays in microseconds, rates in parts of 16,384."""

    write_mean: int = 30
    sync_mean: int = 1_000
    read_mean: int = 100
    slow: int = 0  # rate of syncs that take `slow_mean`
    slow_mean: int = 300_000
    lost: int = 0  # rate of synced journal writes that are not there
    misdirected: int = 0  # rate of those that are elsewhere
    read_error: int = 0
    write_error: int = 0  # a journal write or sync fails: the node ends (O2.4)
    tells_all: bool = True  # that a record is written is told even if nobody waits for it


_Extent = tuple[str, int, bytes]  # file, position, data


class Disk:
    """Carries out disk effects in virtual time, and answers with their events."""

    def __init__(
        self,
        options: DiskOptions,
        prng: Prng,
        agenda: Agenda,
        answer: Callable[[DiskEvent], None],
        fail: Callable[[], None],
    ) -> None:
        self.options = options
        self.events: Counter[str] = Counter()
        self.is_full = False  # nothing can be allocated or replaced (ENOSPC)
        self.journal_name: Callable[[int], str] = "journal-{}".format
        self._prng = prng
        self._agenda = agenda
        self._answer = answer
        self._fail = fail
        self._files: dict[str, File] = {}
        self._life = 0  # completions of an earlier life of the node are void
        self._reset()
        self._fresh: list[_Extent] = []  # what the newest sync covered
        # Writes that will turn out lost or misdirected once a later sync proves them.
        self._doubtful: list[
            tuple[int, _Extent, bool]
        ] = []  # its place in the sync, what was there
        # Rot stays in one block of a file in place, so that three of four copies stay good.
        self._rotten: dict[str, int] = {}
        self._is_damaged = False

    def _reset(self) -> None:
        self._queued: list[WriteJournal] = []
        self._writing: list[WriteJournal] = []
        self._unsynced: list[_Extent] = []
        self._syncing: list[_Extent] | None = None
        self._sync_wanted = False
        self._sync_later = False
        self._written = 0
        self._doing: dict[int, DiskEffect] = {}
        self._doing_next = 0
        self._unlinked: dict[str, File] = {}

    # What a node sees

    def format(self, files: dict[str, bytes]) -> None:
        """Replace everything by these files, durable."""
        self._life += 1
        self._reset()
        self._fresh, self._doubtful, self._rotten = [], [], {}
        self._is_damaged = False
        self._files = {name: File(data) for name, data in sorted(files.items())}

    def open(self) -> dict[str, bytes]:
        """Return what a starting node finds; it is durable from here on."""
        for file in self._files.values():
            file.make_durable()
        self._reset()
        return {name: bytes(file.cached) for name, file in self._files.items()}

    def submit(self, effect: DiskEffect) -> None:
        """Begin to carry out one effect."""
        if type(effect) is WriteJournal:
            self._queued.append(effect)
            if not self._writing:
                self._start_writing()
            return
        if type(effect) is RemoveFile:
            removed = self._files.pop(effect.name, None)
            if removed is not None:
                self._unlinked[effect.name] = removed
            return
        self._doing_next += 1
        self._doing[self._doing_next] = effect
        self._after(self._duration(effect), self._finish, self._doing_next)

    def _duration(self, effect: DiskEffect) -> int:
        options = self.options
        draw = self._prng.u64()
        if type(effect) is ReadJournal:
            return 1 + exponential(draw, options.read_mean)
        return (
            1 + exponential(draw, options.write_mean) + exponential(draw >> 10, self._sync_mean())
        )

    def _sync_mean(self) -> int:
        options = self.options
        if strikes(self._prng, options.slow):
            self.events["disk.slow_sync"] += 1
            return options.slow_mean
        return options.sync_mean

    def _after(self, delay: int, call: Callable[[tuple[int, int]], None], number: int = 0) -> None:
        self._agenda.after(delay, call, (self._life, number))

    # Journal writes and syncs

    def _start_writing(self) -> None:
        self._writing, self._queued = self._queued, []
        self._after(1 + exponential(self._prng.u64(), self.options.write_mean), self._end_writing)

    def _end_writing(self, argument: tuple[int, int]) -> None:
        if argument[0] != self._life:
            return
        if strikes(self._prng, self.options.write_error):
            self.events["disk.write_error"] += 1
            self._fail()
            return
        is_wanted, told = False, 0
        for effect in self._writing:
            extent = (self.journal_name(effect.file), effect.position, effect.data)
            put(self._files[extent[0]].cached, *extent[1:])
            self._unsynced.append(extent)
            is_wanted = is_wanted or effect.sync
            if effect.is_awaited or self.options.tells_all:
                told = effect.sequence
        self._written = self._writing[-1].sequence
        self._writing = []
        if self._queued:
            self._start_writing()
        if is_wanted:
            self._want_sync()
        elif not self._sync_later:
            self._sync_later = True
            self._after(SYNC_LATER, self._sync_now)
        if told:
            self._answer(Written(told))

    def _sync_now(self, argument: tuple[int, int]) -> None:
        if argument[0] == self._life:
            self._sync_later = False
            self._want_sync()

    def _want_sync(self) -> None:
        if self._syncing is not None:
            self._sync_wanted = True
        elif self._unsynced:
            self._syncing, self._unsynced = self._unsynced, []
            duration = 1 + exponential(self._prng.u64(), self._sync_mean())
            self._after(duration, self._end_sync, self._written)

    def _end_sync(self, argument: tuple[int, int]) -> None:
        life, sequence = argument
        if life != self._life:
            return
        if strikes(self._prng, self.options.write_error):
            self.events["disk.sync_error"] += 1
            self._fail()
            return
        assert self._syncing is not None
        self._settle(self._syncing)
        self._syncing = None
        if self._sync_wanted:
            self._sync_wanted = False
            self._want_sync()
        self._answer(Synced(sequence))

    def _settle(self, extents: list[_Extent]) -> None:
        """Make writes durable; a sync that proves the last one makes that one's damage real."""
        for index, before, is_misdirected in self._doubtful:
            self.events["disk.misdirected" if is_misdirected else "disk.lost"] += 1
            self._lose(index, before, extents, is_misdirected=is_misdirected)
        self._doubtful = []
        for index, extent in enumerate(extents):
            file = self._files.get(extent[0])
            if file is None:
                continue
            name, position, data = extent
            before = (name, position, bytes(file.durable[position : position + len(data)]))
            if strikes(self._prng, self.options.lost):
                self._doubtful.append((index, before, False))
            elif strikes(self._prng, self.options.misdirected):
                self._doubtful.append((index, before, True))
            put(file.durable, *extent[1:])
        self._fresh = extents

    def _lose(
        self, index: int, before: _Extent, newer: list[_Extent], *, is_misdirected: bool
    ) -> None:
        """Take a write back from the medium, as if it had never reached it, or reached another.

        The page cache forgets it too: a node that reads its disk sees what the medium holds. Later
        writes that overlap it stay whole.
        """
        self._is_damaged = True
        name, position, data = before
        if name not in self._files:
            return
        file = self._files[name]
        written = bytes(file.durable[position : position + len(data)])
        put(file.durable, position, data)
        put(file.cached, position, data)
        for later in self._fresh[index + 1 :]:
            self._put_if_there(later, is_durable=True)
        for later in (*newer, *self._unsynced):
            self._put_if_there(later, is_durable=False)
        place = self._draw_place(journal_only=True) if is_misdirected else None
        if place is not None:
            wrong = self._files[place[0]]
            room = len(wrong.durable) - place[1]
            wrong.spoil(place[1], written[:room])

    # Everything else

    def _finish(self, argument: tuple[int, int]) -> None:
        life, number = argument
        if life != self._life:
            return
        effect = self._doing.pop(number)
        if type(effect) is ReadJournal:
            self._answer(JournalRead(effect.token, self._read(effect)))
        elif type(effect) is AllocateJournal:
            if not self.is_full:
                self._allocate(effect, effect.size)
            self._answer(JournalAllocated(effect.file, not self.is_full))
        elif type(effect) is ReplaceFile:
            if not self.is_full:
                self._files[effect.name] = File(effect.data)
                self._rotten.pop(effect.name, None)
                self._unlinked.clear()  # the folder was synced
            self._answer(FileReplaced(effect.token, not self.is_full))
        elif type(effect) is WriteBlock:
            self._write_block(effect)
            self._answer(BlockWritten(effect.token))
        if self.is_full:
            self.events["disk.full"] += 1

    def _read(self, effect: ReadJournal) -> bytes | None:
        if strikes(self._prng, self.options.read_error):
            self.events["disk.read_error"] += 1
            return None
        file = self._files.get(self.journal_name(effect.file))
        if file is None:
            return None
        return bytes(file.cached[effect.position : effect.position + effect.length])

    def _allocate(self, effect: AllocateJournal, size: int) -> None:
        """Make the file that long; what it held, it holds."""
        file = self._files.setdefault(self.journal_name(effect.file), File())
        for image in (file.cached, file.durable):
            image.extend(bytes(max(0, size - len(image))))
        self._unlinked.clear()

    def _write_block(self, effect: WriteBlock) -> None:
        file = self._files.setdefault(effect.name, File())
        for image in (file.cached, file.durable):
            put(image, effect.position, effect.data)
        if self._rotten.get(effect.name) == effect.position // BLOCK_BYTES:
            del self._rotten[effect.name]

    # The end of a node's life

    def crash(self, *, is_power: bool) -> None:
        """End the node's life; what it finds at its next one is decided here."""
        self._life += 1
        for effect in self._doing.values():
            self._break_off(effect)
        for written in self._writing:
            extent = (self.journal_name(written.file), written.position, written.data)
            put(self._files[extent[0]].cached, *self._cut(extent)[1:])
            self._unsynced.append(extent)
        if is_power:
            self._lose_power()
        self._reset()

    def wipe(self) -> None:
        """Empty the disk."""
        self._life += 1
        self._reset()
        self._files, self._fresh, self._doubtful, self._rotten = {}, [], [], {}

    def _lose_power(self) -> None:
        for extent in (self._syncing or []) + self._unsynced:
            file = self._files.get(extent[0])
            if file is not None:
                self._tear(file.durable, extent)
        for name, removed in self._unlinked.items():
            if self._prng.chance(1, 2):
                self._files.setdefault(name, removed)
        for file in self._files.values():
            file.lose_cache()

    def _tear(self, image: bytearray, extent: _Extent) -> None:
        became = tear(image, extent[1], extent[2], self._prng)
        if became:
            self.events[f"disk.{became}"] += 1

    def _cut(self, extent: _Extent) -> _Extent:
        name, position, data = extent
        return name, position, data[: self._prng.below(len(data) + 1)]

    def _break_off(self, effect: DiskEffect) -> None:
        """Leave what an effect that had not ended may leave."""
        stage = self._prng.below(4)
        if type(effect) is ReplaceFile:
            if stage == 1:
                part = effect.data[: self._prng.below(len(effect.data) + 1)]
                self._files[effect.name + TEMPORARY] = File(part)
            elif stage == 2:
                self._files[effect.name + TEMPORARY] = File(effect.data)
            elif stage == 3:
                self._files[effect.name] = File(effect.data)
            self.events[f"disk.replace_broken_{stage}"] += 1
        elif type(effect) is AllocateJournal:
            if stage:
                self._allocate(effect, effect.size if stage == 3 else 0)
        elif type(effect) is WriteBlock:
            file = self._files.setdefault(effect.name, File())
            self._tear(file.durable, (effect.name, effect.position, effect.data))
            file.lose_cache()

    # Damage

    def rot(self) -> bool:
        """Flip a bit, or zero a sector, of something that had long been durable."""
        place = self._draw_place(journal_only=False)
        if place is None:
            return False
        self._is_damaged = True
        name, position = place
        file = self._files[name]
        if self._prng.chance(1, 4):
            file.spoil(position, bytes(min(SECTOR_BYTES, len(file.durable) - position)))
            self.events["disk.sector_zeroed"] += 1
        else:
            position = min(len(file.durable) - 1, position + self._prng.below(SECTOR_BYTES))
            bit = 1 << self._prng.below(8)
            file.spoil(position, bytes((file.durable[position] ^ bit,)))
            self.events["disk.rotten"] += 1
        return True

    def _draw_place(self, *, journal_only: bool) -> tuple[str, int] | None:
        """Draw a sector that the newest writes do not touch."""
        journals = {self.journal_name(number): None for number in range(64)}
        names = [
            name
            for name, file in self._files.items()
            if file.durable and (name in journals or not journal_only)
        ]
        if not names:
            return None
        for _ in range(8):
            name = self._prng.choice(names)
            sectors = (len(self._files[name].durable) + SECTOR_BYTES - 1) // SECTOR_BYTES
            position = self._prng.below(sectors) * SECTOR_BYTES
            block = position // BLOCK_BYTES
            if not self._is_fresh(name, position) and (
                name in journals or self._rotten.setdefault(name, block) == block
            ):
                return name, position
        return None

    def _is_fresh(self, name: str, position: int) -> bool:
        newest = [*self._fresh, *self._unsynced, *(self._syncing or [])]
        return any(
            file == name and start < position + SECTOR_BYTES and position < start + len(data)
            for file, start, data in newest
        )

    @property
    def is_damaged(self) -> bool:
        """Whether anything that was durable has been damaged since the disk was formatted."""
        return self._is_damaged

    def _put_if_there(self, extent: _Extent, *, is_durable: bool) -> None:
        file = self._files.get(extent[0])
        if file is not None:
            put(file.cached, *extent[1:])
            if is_durable:
                put(file.durable, *extent[1:])
