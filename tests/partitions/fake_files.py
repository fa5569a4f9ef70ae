"""A folder of segments in memory that honours the port: what the page cache has, what a power cut
leaves, and every fault that the port allows for.
"""

from collections import deque

from headrace.base.prng import Prng
from headrace.partitions.beyond import Fate, is_left_of_write
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
from headrace.sim.beyond import find_faults, judge_beyond


class FakeFiles:
    """Effects are carried out one at a time, in their order."""

    def __init__(self, prng: Prng | None = None) -> None:
        self.logs: dict[SegmentFile, bytearray] = {}
        self.indexes: dict[SegmentFile, bytes] = {}
        self.durable: dict[SegmentFile, bytearray] = {}
        self.waiting: deque[SegmentEffect] = deque()
        self.effects_done = 0
        self.is_full = False
        self.failing: str | None = None  # what a write or a sync says when it fails
        self.reads_fail = False
        self.undeletable: str | None = None  # what the removal of a partition says when it fails
        self.reads: list[ReadSegment] = []
        self.removed: list[SegmentFile] = []
        self.quarantined: list[tuple[SegmentFile, int, bytes]] = []
        self._prng = prng or Prng(0)
        self._unsynced: list[tuple[SegmentFile, int, bytes]] = []

    def step(self) -> list[SegmentEvent]:
        """Carry out the next effect; give its answer."""
        effect = self.waiting.popleft()
        self.effects_done += 1
        answer = self._answer(effect)
        return [] if answer is None else [answer]

    def _answer(self, effect: SegmentEffect) -> SegmentEvent | None:
        answer: SegmentEvent | None = None
        match effect:
            case WriteSegment():
                answer = self._write(effect)
            case SyncSegments():
                answer = self._sync(effect)
            case ReadSegment():
                self.reads.append(effect)
                answer = SegmentRead(effect.token, self._read(effect))
            case ReadIndex():
                answer = IndexRead(effect.token, self.indexes.get(effect.file))
            case OpenSegments():
                answer = self._open(effect)
            case ListPartitions():
                found = {(file.namespace, file.created_revision): None for file in self.logs}
                answer = PartitionsListed(effect.token, tuple(found))
            case RemovePartition():
                if self.undeletable is None:
                    self._carry_out(effect)
                answer = PartitionRemoved(effect.token, self.undeletable)
            case _:
                self._carry_out(effect)
        return answer

    def _carry_out(
        self, effect: WriteIndex | RemoveSegments | RemovePartition | QuarantinePartition
    ) -> None:
        if isinstance(effect, WriteIndex):
            self.indexes[effect.file] = effect.data
        elif isinstance(effect, RemoveSegments):
            for file in effect.files:
                self._remove(file)
        else:
            for file in self._files_of(effect.namespace, effect.created_revision):
                if isinstance(effect, QuarantinePartition):
                    self.quarantined.append((file, 0, bytes(self.logs[file])))
                self._remove(file)

    def _files_of(self, namespace: int, created_revision: int) -> list[SegmentFile]:
        partition = (namespace, created_revision)
        return [file for file in self.logs if (file.namespace, file.created_revision) == partition]

    def _write(self, effect: WriteSegment) -> SegmentWritten | SegmentFailed:
        if self.failing is not None:
            return SegmentFailed(effect.token, self.failing)
        if self.is_full:
            return SegmentWritten(effect.token, is_done=False)
        if effect.file not in self.logs:
            if effect.position:
                return SegmentFailed(effect.token, f"{effect.file} is missing")
            self.logs[effect.file] = bytearray()
        data = b"".join(effect.parts)
        held = self.logs[effect.file]
        assert effect.position <= len(held), "a hole in a segment"
        before = bytes(held[effect.position : effect.position + len(data)])
        if not is_left_of_write(before, data):
            self.quarantined.append((effect.file, effect.position, before))
        held[effect.position : effect.position + len(data)] = data
        self._unsynced.append((effect.file, effect.position, data))
        return SegmentWritten(effect.token, is_done=True)

    def _sync(self, effect: SyncSegments) -> SegmentsSynced | SegmentFailed:
        if self.failing is not None:
            return SegmentFailed(effect.token, self.failing)
        for file in effect.files:
            if file not in self.logs:
                return SegmentFailed(effect.token, f"{file} is missing")
            self.durable[file] = bytearray(self.logs[file])
        self._unsynced = [write for write in self._unsynced if write[0] not in effect.files]
        return SegmentsSynced(effect.token)

    def _read(self, effect: ReadSegment) -> bytes | None:
        if self.reads_fail or effect.file not in self.logs:
            return None
        return bytes(self.logs[effect.file][effect.position : effect.position + effect.length])

    def _open(self, effect: OpenSegments) -> SegmentsOpened:
        faults = find_faults(effect.extents, self.logs)
        if not faults and effect.end is not None:
            faults = self._judge(effect, effect.end)
        elif not faults:
            known = {extent.file: extent.length for extent in effect.extents}
            for file in self._files_of(effect.namespace, effect.created_revision):
                if file in known:
                    del self.logs[file][known[file] :]
                    self.durable[file] = bytearray(self.logs[file])
                else:
                    self._remove(file)
            self._unsynced.clear()
        return SegmentsOpened(effect.token, tuple(faults))

    def _judge(self, effect: OpenSegments, end: LogEnd) -> list[SegmentFault]:
        """Do with what the log does not have as the port says."""
        files = self._files_of(effect.namespace, effect.created_revision)
        faults, fates = judge_beyond(effect, end, {file: self.logs[file] for file in files})
        for file, (fate, length) in fates.items():
            if fate == Fate.QUARANTINE:
                self.quarantined.append((file, length or 0, bytes(self.logs[file][length or 0 :])))
            if length is None:
                self._remove(file)
            else:
                del self.logs[file][length:]
        return faults

    def _remove(self, file: SegmentFile) -> None:
        self.removed.append(file)
        self.logs.pop(file, None)
        self.durable.pop(file, None)
        self.indexes.pop(file, None)

    def kill(self) -> None:
        """End the process: what was asked for and not done is gone, the page cache stays."""
        self.waiting.clear()

    def cut_power(self) -> None:
        """Every write since the last sync survives whole, in part, or not at all."""
        self.waiting.clear()
        image = {file: bytearray(data) for file, data in self.durable.items()}
        for file, position, data in self._unsynced:
            kept = data[: self._prng.below(len(data) + 1)] if self._prng.chance(2, 3) else b""
            if file in image or (position == 0 and self._prng.chance(1, 2)):
                held = image.setdefault(file, bytearray())
                held.extend(bytes(max(0, position + len(kept) - len(held))))
                held[position : position + len(kept)] = kept
        self.logs = image
        self.indexes = {
            file: data[: self._prng.below(len(data) + 1)] for file, data in self.indexes.items()
        }
        self._unsynced = []
