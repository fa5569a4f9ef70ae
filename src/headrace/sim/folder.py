"""The folder of segments of one simulated node: what the page cache holds, what a power cut leaves.

Bytes are written when the effect is submitted, as a system call would; syncs, openings, indexes and
removals go one after another, reads beside them. A killed process may leave its last writes cut
short; a power cut also loses, tears or keeps every write that no sync covered, the names of files
that no sync covered, and the removal of names (DK6 to DK9). Damage strikes what is there (`rot`),
or lets reads and writes go astray (see `astray`).

Invariants: bytes that were written before are never overwritten with others, however a crash left
            them, and no write leaves a hole: that is the promise by which a repeated write is
            harmless.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.base.ids import GroupId
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.base.placement import owner_of
from headrace.base.prng import Prng
from headrace.partitions.beyond import Fate, is_left_of_write
from headrace.partitions.index import MARK_BYTES
from headrace.ports.segments import (
    IndexRead,
    ListPartitions,
    LogEnd,
    OpenSegments,
    PartitionRemoved,
    PartitionsListed,
    QuarantinePartition,
    ReadIndex,
    ReadSegment,
    RemovePartition,
    RemoveSegments,
    SegmentEffect,
    SegmentEvent,
    SegmentFailed,
    SegmentFault,
    SegmentFile,
    SegmentRead,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.sim.agenda import Agenda, exponential
from headrace.sim.astray import Astray
from headrace.sim.beyond import find_faults, judge_beyond
from headrace.sim.chance import strikes
from headrace.sim.medium import SECTOR_BYTES, File, put, tear
from headrace.sim.violation import SimViolationError

_MISPLACED = "misplaced"
_MANY_MARKS = 12


class FolderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a folder behaves; delays in microseconds, rates in parts of 16,384."""

    write_mean: int = 50
    sync_mean: int = 2_000
    read_mean: int = 200
    read_error: int = 0
    index_lost: int = 0  # rate of index writes that fail unnoticed
    write_error: int = 0
    sync_error: int = 0
    remove_error: int = 0  # rate of deletes of a partition that leave files behind
    remove_mean: int = 50  # how long such a delete takes
    read_astray: int = 0  # rate of reads that bring bytes of another place,
    write_astray: int = 0  # of writes that go to another file,
    index_astray: int = 0  # and of reads and writes of indexes that are another file's
    misplaced: int = 0  # percent of rot that puts bytes of another place, or swaps files


class Damage(NamedTuple):
    """From where to where a file does not hold what was written, and why."""

    start: int
    end: int
    kind: str


class _File(File):
    """One segment; its name may not be on the medium yet."""

    __slots__ = ("is_named", "unsynced")

    def __init__(self) -> None:
        super().__init__()
        self.is_named = False
        self.unsynced: list[tuple[int, bytes]] = []

    def lose_cache(self) -> None:
        """Hold what the medium holds; what was not synced is gone."""
        super().lose_cache()
        self.unsynced.clear()

    def make_durable(self) -> None:
        """Let the medium hold all, and the name."""
        super().make_durable()
        self.unsynced.clear()
        self.is_named = True


Partition = tuple[int, int]  # its namespace, and the revision that made it
Answer = Callable[[SegmentEvent], None]
_Extents = list[tuple[SegmentFile, _File, int]]  # how many writes of each a sync covers


class _Desk:
    """What one process of the node has asked of the folder, and where its answers go."""

    __slots__ = ("answer", "life", "orders", "writing")

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.life = 0
        self.end()

    def end(self) -> None:
        """Forget what was asked."""
        self.life += 1
        self.orders: deque[tuple[SegmentEffect, _Extents]] = deque()
        self.writing: dict[int, tuple[SegmentFile, int, int]] = {}


class Folder:
    """Carries out segment effects in virtual time, and answers with their events.

    All shards of a node share it, and each touches only files of partitions that it owns (RC-14).
    """

    def __init__(
        self,
        options: FolderOptions,
        prng: Prng,
        agenda: Agenda,
        answers: Sequence[Answer],
        astray: Astray,
    ) -> None:
        """Make an empty one; `answers` take the events of each shard."""
        self.options = options
        self.events: Counter[str] = Counter()
        self.is_full = False
        self.rotten: dict[SegmentFile, list[Damage]] = {}
        self.is_damaged = False  # whether anything has rotted since it was emptied
        self.harmed_at: dict[Partition, int] = {}  # when files of a partition last rotted,
        self.misread_at: dict[Partition, int] = {}  # and when a read of one last went astray
        self.has_failed = False  # whether a write or a sync has, in this life of the node
        self._prng = prng
        self._agenda = agenda
        self._desks = [_Desk(answer) for answer in answers]
        self._astray = astray
        self._files: dict[SegmentFile, _File] = {}
        self._indexes: dict[SegmentFile, bytes] = {}
        self._unlinked: dict[SegmentFile, _File] = {}  # removals that may not be durable
        self.quarantined: dict[SegmentFile, bytes] = {}
        self._orders_done: dict[type, Callable[[_Desk, Any], None]] = {
            OpenSegments: self._open,
            WriteIndex: self._write_index,
            RemoveSegments: self._remove_segments,
            RemovePartition: self._remove_partition,
            QuarantinePartition: _refuse_orphans,
            ListPartitions: self._list,
        }

    # What a node sees

    def submit(self, effect: SegmentEffect, shard: int = 0) -> None:
        """Begin to carry out one effect; bytes are in the page cache when this returns."""
        desk = self._desks[shard]
        if len(self._desks) > 1:
            check_owner(effect, shard, len(self._desks))
        if type(effect) is WriteSegment:
            self._write(desk, effect)
        elif type(effect) is ReadSegment or type(effect) is ReadIndex:
            self._after(desk, self.options.read_mean, self._end_read, effect)
        else:
            covered: _Extents = []
            if type(effect) is SyncSegments:
                found = [(name, self._files.get(name)) for name in effect.files]
                covered = [
                    (name, file, len(file.unsynced)) for name, file in found if file is not None
                ]
            desk.orders.append((effect, covered))
            if len(desk.orders) == 1:
                self._plan_order(desk)

    def _after(self, desk: _Desk, mean: int, call: Callable[[Any], None], what: object) -> None:
        delay = 1 + exponential(self._prng.u64(), mean)
        self._agenda.after(delay, call, (desk, desk.life, what))

    def _plan_order(self, desk: _Desk) -> None:
        mean = self.options.sync_mean
        kind = type(desk.orders[0][0])
        if kind in (WriteIndex, RemoveSegments):
            mean = self.options.write_mean
        elif kind is RemovePartition:
            mean = self.options.remove_mean
        self._after(desk, mean, self._end_order, None)

    def _write(self, desk: _Desk, effect: WriteSegment) -> None:
        data = b"".join(effect.parts)
        is_done = not self.is_full
        is_failed = is_done and strikes(self._prng, self.options.write_error)
        if is_failed:
            self._fail("folder.write_failed")
        elif not is_done:
            self.events["folder.full"] += 1
        if is_failed or not is_done:
            data = data[: self._prng.below(len(data))] if effect.position else b""
        file = self._files.get(effect.file)
        if file is None:
            if effect.position:
                raise SimViolationError("P7", why="a write into no file", file=effect.file)
            file = self._files[effect.file] = _File()
        end = effect.position + len(data)
        before = bytes(file.cached[effect.position : end])
        is_same = is_left_of_write(before, data) or effect.file in self.rotten
        if effect.position > len(file.cached) or not is_same:
            raise SimViolationError(
                "P2",
                why="a hole in a segment, or other bytes where some were",
                file=effect.file,
                position=effect.position,
                held=len(file.cached),
            )
        if is_done and not is_failed and self._goes_astray(self.options.write_astray):
            data = self._write_elsewhere(effect.file, file, effect.position, data)
        elif effect.file in self.rotten:
            self.rotten[effect.file] = [
                each
                for each in self.rotten[effect.file]
                if not effect.position <= each.start < each.end <= end
            ]
        file.cached[effect.position : end] = data
        file.unsynced.append((effect.position, data))
        desk.writing[effect.token] = (effect.file, effect.position, len(data))
        answer: SegmentEvent = SegmentWritten(effect.token, is_done)
        if is_failed:
            answer = SegmentFailed(effect.token, f"{effect.file} cannot be written")
        self._after(desk, self.options.write_mean, self._end_write, answer)

    def _end_write(self, argument: tuple[_Desk, int, SegmentWritten | SegmentFailed]) -> None:
        desk, life, answer = argument
        if life == desk.life:
            del desk.writing[answer.token]
            desk.answer(answer)

    def _end_read(self, argument: tuple[_Desk, int, ReadSegment | ReadIndex]) -> None:
        desk, life, effect = argument
        if life != desk.life:
            return
        if isinstance(effect, ReadIndex):
            desk.answer(IndexRead(effect.token, self._read_index(effect.file)))
            return
        file = self._files.get(effect.file)
        data = None
        if strikes(self._prng, self.options.read_error):
            self.events["folder.read_error"] += 1
        elif file is not None:
            data = bytes(file.cached[effect.position : effect.position + effect.length])
            data = self._read_elsewhere(effect.file, effect.position, data)
        desk.answer(SegmentRead(effect.token, data))

    def _end_order(self, argument: tuple[_Desk, int, None]) -> None:
        desk, life, _ = argument
        if life != desk.life:
            return
        effect, covered = desk.orders.popleft()
        if isinstance(effect, SyncSegments):
            self._sync(desk, effect, covered)
        else:
            self._orders_done[type(effect)](desk, effect)
        if desk.orders:
            self._plan_order(desk)

    def _sync(self, desk: _Desk, effect: SyncSegments, covered: _Extents) -> None:
        is_failed = bool(covered) and strikes(self._prng, self.options.sync_error)
        for name, file, count in covered:
            if self._files.get(name) is not file:
                continue  # Removed meanwhile.
            if is_failed:
                # The page cache takes them for written now: no later sync brings them (DK2).
                del file.unsynced[:count]
                continue
            for extent in file.unsynced[:count]:
                put(file.durable, *extent)
            del file.unsynced[:count]
            file.is_named = True
        if is_failed:
            self._fail("folder.sync_failed")
            desk.answer(SegmentFailed(effect.token, f"{effect.files[0]} cannot be synced"))
        else:
            desk.answer(SegmentsSynced(effect.token))

    def _fail(self, event: str) -> None:
        self.has_failed = True
        self.events[event] += 1

    def _write_index(self, desk: _Desk, effect: WriteIndex) -> None:
        if self.is_full or effect.file not in self._files:
            return
        if strikes(self._prng, self.options.index_lost):
            self.events["folder.index_lost"] += 1
            return
        if len(effect.data) > _MANY_MARKS * MARK_BYTES:
            self.events["folder.index_of_many"] += 1
        name: SegmentFile | None = effect.file
        if self._goes_astray(self.options.index_astray):
            name = self._astray.draw_victim(effect.file, self._cached(), 0)
            self.events["folder.index_write_astray"] += 1
        if name is not None:
            self._indexes[name] = effect.data

    def _files_of(self, namespace: int, created_revision: int) -> list[SegmentFile]:
        return [
            name
            for name in self._files
            if (name.namespace, name.created_revision) == (namespace, created_revision)
        ]

    def _remove_segments(self, desk: _Desk, effect: RemoveSegments) -> None:
        for name in effect.files:
            self._remove(name)

    def _remove_partition(self, desk: _Desk, effect: RemovePartition) -> None:
        names = self._files_of(effect.namespace, effect.created_revision)
        if strikes(self._prng, self.options.remove_error):
            self.events["folder.remove_failed"] += 1
            for name in names[: self._prng.below(len(names) + 1)]:
                self._remove(name)
            desk.answer(PartitionRemoved(effect.token, "a folder that cannot be emptied"))
            return
        for name in names:
            self._remove(name)
        desk.answer(PartitionRemoved(effect.token))

    def _list(self, desk: _Desk, effect: ListPartitions) -> None:
        found = dict.fromkeys((name.namespace, name.created_revision) for name in self._files)
        desk.answer(PartitionsListed(effect.token, tuple(found)))

    def _remove(self, name: SegmentFile) -> None:
        file = self._files.pop(name, None)
        index = self._indexes.pop(name, None)
        self.rotten.pop(name, None)
        if file is not None:
            self._astray.remember(name, file.cached, index)
        if file is not None and file.is_named:
            self._unlinked[name] = file

    # Opening

    def _open(self, desk: _Desk, effect: OpenSegments) -> None:
        faults = find_faults(effect.extents, self._cached())
        if not faults and effect.end is not None:
            faults = self._judge(effect, effect.end)
        if faults:
            self.events["folder.open_failed"] += 1
        elif effect.end is None:
            self._cut(effect)
        desk.answer(SegmentsOpened(effect.token, tuple(faults)))

    def _judge(self, effect: OpenSegments, end: LogEnd) -> list[SegmentFault]:
        """Judge what the log does not have; return the faults, or put all of it away."""
        names = self._files_of(effect.namespace, effect.created_revision)
        images = {name: self._files[name].cached for name in names}
        faults, fates = judge_beyond(effect, end, images)
        for name, (fate, length) in fates.items():
            self._put_away(name, fate, length)
        for extent in effect.extents if not faults else ():
            self._files[extent.file].make_durable()
        return faults

    def _put_away(self, name: SegmentFile, fate: Fate, length: int | None) -> None:
        """Remove or cut a file, and keep what may not go."""
        file = self._files[name]
        if fate == Fate.REMOVE:
            self.events["folder.dropped_removed"] += 1
            self._remove(name)
            return
        held = bytes(file.cached[length or 0 :])
        if held.strip(b"\0"):
            self.events["folder.quarantined"] += 1
            self.quarantined[name] = self.quarantined.get(name, b"") + held
        if length is None:
            self._remove(name)
        else:
            del file.cached[length:]
            file.unsynced = [
                (at, data[: max(0, length - at)]) for at, data in file.unsynced if at < length
            ]
            del file.durable[length:]

    def _cut(self, effect: OpenSegments) -> None:
        lengths = {extent.file: extent.length for extent in effect.extents}
        for name in self._files_of(effect.namespace, effect.created_revision):
            if name not in lengths:
                self.events["folder.unknown_removed"] += 1
                self._remove(name)
                continue
            file = self._files[name]
            if len(file.cached) > lengths[name]:
                self.events["folder.cut"] += 1
            del file.cached[lengths[name] :]
            file.make_durable()

    # The end of a node's life

    def crash(self, *, is_power: bool) -> None:
        """End the node's life; what it finds at its next one is decided here."""
        self.has_failed = False
        for desk in self._desks:
            self._cut_short(desk)
        if is_power:
            self._lose_power()
        for desk in self._desks:
            desk.end()

    def end_shard(self, shard: int) -> None:
        """End what one shard of the node had begun."""
        self._cut_short(self._desks[shard])
        self._desks[shard].end()

    def _cut_short(self, desk: _Desk) -> None:
        """Leave the last writes of a killed process as they may be."""
        for name, position, length in desk.writing.values():
            file = self._files.get(name)
            kept = self._prng.below(length + 1) if self._prng.chance(1, 2) else length
            if file is None or not file.unsynced or kept == length:
                continue
            at, data = file.unsynced[-1]
            if (at, len(data)) == (position, length):  # A sync may have covered it by now.
                self.events["folder.write_cut"] += 1
                del file.cached[position + kept :]
                file.unsynced[-1] = (at, data[:kept])

    def _lose_power(self) -> None:
        for name, file in list(self._files.items()):
            if not file.is_named and self._prng.chance(1, 2):
                self.events["folder.name_lost"] += 1
                del self._files[name]
                continue
            for extent in file.unsynced:
                became = tear(file.durable, *extent, self._prng)
                if became:
                    self.events[f"folder.{became}"] += 1
            file.lose_cache()
        for name, file in self._unlinked.items():
            if self._prng.chance(1, 2):
                self.events["folder.removal_lost"] += 1
                file.lose_cache()
                self._files.setdefault(name, file)
        self._unlinked.clear()
        for name, data in list(self._indexes.items()):
            kind = self._prng.below(3)
            if kind == 0:
                del self._indexes[name]
            elif kind == 1:
                self._indexes[name] = data[: self._prng.below(len(data) + 1)]

    def wipe(self) -> None:
        """Empty the folder."""
        for desk in self._desks:
            desk.end()
        self._files, self._indexes, self._unlinked, self.rotten = {}, {}, {}, {}
        self.is_damaged = False
        self.harmed_at.clear()
        self._astray.forget()

    # Damage

    def rot(self) -> bool:
        """Flip a bit, or zero a sector, of a segment or an index; or put what is another's."""
        if self.options.misplaced and self._astray.prng.below(100) < self.options.misplaced:
            return self._swap() if self._astray.prng.chance(1, 3) else self._misplace()
        names = [name for name, file in self._files.items() if len(file.durable) > 0]
        if not names:
            return False
        name = self._prng.choice(names)
        index = self._indexes.get(name)
        if index and self._prng.chance(1, 4):  # A power cut can leave it empty.
            data = bytearray(index)
            data[self._prng.below(len(data))] ^= 1 << self._prng.below(8)
            self._indexes[name] = bytes(data)
            self.events["folder.index_rotten"] += 1
            return True
        file = self._files[name]
        size = len(file.durable)
        position = self._prng.below(size)
        if position < SEGMENT_HEADER_BYTES < size and self._prng.chance(3, 4):
            # Here the header block is larger than what follows it, and only a start looks at it.
            position = self._prng.between(SEGMENT_HEADER_BYTES, size - 1)
        if self._prng.chance(1, 4):
            end = min(len(file.durable), position + SECTOR_BYTES)
            changed = bytes(end - position)
        else:
            changed = bytes((file.durable[position] ^ 1 << self._prng.below(8),))
        self._spoil(name, position, changed, "rot")
        self.events["folder.rotten"] += 1
        return True

    def _spoil(
        self, name: SegmentFile, position: int, changed: bytes, kind: str = _MISPLACED
    ) -> None:
        self._files[name].spoil(position, changed)
        self._note_damage(name, Damage(position, position + len(changed), kind))

    def _note_damage(self, name: SegmentFile, damage: Damage) -> None:
        self.rotten.setdefault(name, []).append(damage)
        self.is_damaged = True
        self.harmed_at[name.namespace, name.created_revision] = self._agenda.now

    def _misplace(self) -> bool:
        """Put bytes of another place where others are."""
        images = {name: file.durable for name, file in self._files.items() if file.durable}
        if not images:
            return False
        name = self._astray.prng.choice(list(images))
        found = self._astray.draw_bytes(
            name, images, start=SEGMENT_HEADER_BYTES, end=len(images[name])
        )
        if found is None:
            return False
        self._spoil(name, *found)
        self.events["folder.misplaced"] += 1
        return True

    def _swap(self) -> bool:
        """Exchange two files, with or without their header blocks; one may be long gone."""
        prng = self._astray.prng
        images = {name: file.durable for name, file in self._files.items() if not file.unsynced}
        pair = self._astray.draw_pair(images)
        if pair is None:
            return False
        start = 0 if prng.chance(1, 4) else SEGMENT_HEADER_BYTES
        one, other = pair
        own = bytes(images[one][start:])
        self._spoil(one, start, bytes((images.get(other) or self._astray.past[other])[start:]))
        if other in images:
            self._spoil(other, start, own)
        kind = prng.below(3)
        indexes = [self._indexes.pop(name, None) for name in pair] if kind else []
        if kind == 1:  # Their indexes go with them, else they stay, or are gone.
            for name, index in zip(reversed(pair), indexes, strict=True):
                if index is not None and name in self._files:
                    self._indexes[name] = index
        self.events["folder.swapped"] += 1
        return True

    # What goes astray

    def _goes_astray(self, rate: int) -> bool:
        return strikes(self._astray.prng, rate)

    def _cached(self) -> dict[SegmentFile, bytearray]:
        return {name: file.cached for name, file in self._files.items()}

    def _read_index(self, name: SegmentFile) -> bytes | None:
        data = self._indexes.get(name)
        if self._goes_astray(self.options.index_astray):
            other = self._astray.draw_index(name, self._indexes)
            if other is not None:
                self.events["folder.index_read_astray"] += 1
                return other
        return data

    def _read_elsewhere(self, name: SegmentFile, position: int, data: bytes) -> bytes:
        """Return what a read brings: maybe other bytes than are there."""
        end = position + len(data)
        for damage in self.rotten.get(name, ()):
            if damage.start < end and damage.end > position:
                self.events[f"folder.read_met_{damage.kind}"] += 1
        if not self._goes_astray(self.options.read_astray):
            return data
        found = self._astray.draw_bytes(name, self._cached(), start=position, end=end)
        if found is None:
            return data
        at, other = found[0] - position, found[1]
        self.events["folder.read_astray"] += 1
        self.misread_at[name.namespace, name.created_revision] = self._agenda.now
        return data[:at] + other + data[at + len(other) :]

    def _write_elsewhere(self, name: SegmentFile, file: _File, position: int, data: bytes) -> bytes:
        """Let a write change another file; return what then lies where it was meant to."""
        astray = self._astray
        kept = SEGMENT_HEADER_BYTES if not position and not astray.prng.chance(1, 4) else 0
        at, moved = position + kept, data[kept:]
        victim = astray.draw_victim(name, self._cached(), at)
        if victim is None or not moved:
            return data
        hit = self._files[victim]
        changed = moved[: len(hit.cached) - at]
        hit.cached[at : at + len(changed)] = changed
        hit.unsynced.append((at, changed))
        self._note_damage(victim, Damage(at, at + len(changed), _MISPLACED))
        held = bytes(file.cached[at : at + len(moved)]).ljust(len(moved), b"\0")
        old = astray.draw_old(at, len(moved)) if astray.prng.chance(1, 2) else None
        self._note_damage(name, Damage(at, at + len(moved), _MISPLACED))
        self.events["folder.write_astray"] += 1
        return data[:kept] + (held if old is None else old)

    # What checkers see

    def names(self) -> list[SegmentFile]:
        """Return the files that are there."""
        return list(self._files)

    def content(self, name: SegmentFile) -> bytes | None:
        """Return what a file holds, if it is there."""
        file = self._files.get(name)
        return None if file is None else bytes(file.cached)


def check_owner(effect: SegmentEffect, shard: int, shard_count: int) -> None:
    """Check that a shard touches only files of partitions that it owns (RC-14).

    Raises:
        SimViolationError: It does not.
    """
    if isinstance(effect, ListPartitions):
        return
    if isinstance(effect, SyncSegments | RemoveSegments):
        touched = [file.namespace for file in effect.files]
    else:
        touched = [effect.file.namespace if hasattr(effect, "file") else effect.namespace]
    for namespace in touched:
        if owner_of(GroupId(namespace), shard_count) != shard:
            raise SimViolationError("RC14", why="a file of a sibling", shard=shard, effect=effect)


def _refuse_orphans(desk: _Desk, effect: QuarantinePartition) -> None:
    """Refuse what no crash may lead to: no file is older than what the stores know of it."""
    raise SimViolationError("P7", why="files of nobody", reason=effect.reason)
