"""The store of one shard: journal, superblock and checkpoints behind one interface.

The caller stages entries, flushes once per turn, carries out the effects in order, and passes the
events of the disk to `step`. The formats are in docs/formats: journal.md, superblock.md and
checkpoint.md.

Flow:       replicate, recover.
Invariants: nothing is durable before the disk's event says so; a store opened from any image that a
            crash can leave holds everything up to the last synced sequence.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import msgspec

from headrace.base.limits import FRAME_BYTES_MAX, RESERVE_PARTS
from headrace.ports.disk import (
    BlockWritten,
    DiskEvent,
    FileReplaced,
    JournalAllocated,
    JournalRead,
    RemoveFile,
    Synced,
    Written,
)
from headrace.ports.network import Buffer
from headrace.ports.probes import Probes
from headrace.ports.recovered import Finding, GroupCheckpoint, RecoveredGroup, ViewState
from headrace.storage.checkpoint import CheckpointEncoder
from headrace.storage.checkpointing import Checkpointer, Live
from headrace.storage.config import (
    FILES_MIN,
    MARKER_NAME,
    SUPERBLOCK_NAME,
    StoreConfig,
    checkpoint_name,
    file_bytes_of,
    identity_of,
    journal_key,
    journal_name,
)
from headrace.storage.journal import Journal, JournalStart
from headrace.storage.judge import Cut
from headrace.storage.marker import encode_marker
from headrace.storage.moments import Moment
from headrace.storage.op_reads import Reads
from headrace.storage.opening import Loaded, LostError, Opener, RefusalError
from headrace.storage.outbox import Outbox
from headrace.storage.records import (
    ENTRY_BYTES,
    FLAG_BODY,
    PREPARE_ENTRY_BYTES,
    RECORD_ALIGNMENT,
    RECORD_HEADER_BYTES,
    Entry,
    Kind,
    prepare_entry,
    view_entry,
)
from headrace.storage.ring import RESERVE_SHARE, Ring
from headrace.storage.superblock import (
    HISTORY_MAX,
    Opening,
    Superblock,
    encode_superblock_file,
)
from headrace.storage.superblock_writer import SuperblockWriter
from headrace.wire.errors import Code
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind

__all__ = [
    "RECORD_OVERHEAD_BYTES",
    "Cut",
    "Opened",
    "Refused",
    "Store",
    "StoreConfig",
    "Wiped",
    "format_store",
    "open_store",
]

# A record that carries one op is at most so much larger than the op's body.
RECORD_OVERHEAD_BYTES = RECORD_HEADER_BYTES + PREPARE_ENTRY_BYTES + RECORD_ALIGNMENT

RESERVED_OPS_MIN = 8  # So many small ops that make room fit the reserve of the smallest journal.

assert FRAME_BYTES_MAX + RECORD_OVERHEAD_BYTES < 1 << 32, "a record has a length of 4 bytes"


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A store that was opened.

    `is_suspect`: groups that are not listed may have been lost, and are suspect too.
    `life`: a number that rises with every opening, and over replaced stores too.
    `is_rotten`: such groups may have entered views that are lost.
    `is_first`: this is its first opening, so none of its groups can have lost anything.
    `is_power_loss`: a stop was not clean, and the machine has been started since: what was written
    and not synced may be gone, of groups that are not listed too.
    `quarantine`: bytes that the store will overwrite; keep them before any effect is carried out.
    `moment`: which start of the node opened it last, to be compared with its other stores.
    """

    store: "Store"
    groups: tuple[RecoveredGroup, ...]
    findings: tuple[Finding, ...]
    incarnation: int
    is_first: bool
    life: int
    ceilings: tuple[tuple[int, int], ...]
    quarantine: tuple[Cut, ...]
    is_suspect: bool
    is_rotten: bool
    is_power_loss: bool
    moment: Moment


class Wiped(msgspec.Struct, frozen=True):
    """A lost store: format it with a new incarnation, and restore it from the peers."""

    findings: tuple[Finding, ...]


class Refused(msgspec.Struct, frozen=True):
    """A store that must not be opened; the sentence names file, position and remedy."""

    sentence: str
    findings: tuple[Finding, ...]


def format_store(config: StoreConfig, incarnation: int) -> dict[str, bytes]:
    """Return the files of an empty store; remove old files first, and write the marker last."""
    reserved_bytes = RESERVED_OPS_MIN * RECORD_OVERHEAD_BYTES
    assert config.journal_files >= FILES_MIN, "the configuration was checked"
    assert config.record_bytes_max <= file_bytes_of(config), "a record fits a file"
    assert reserved_bytes <= file_bytes_of(config) // RESERVE_SHARE, "the reserve holds some ops"
    identity = identity_of(config, incarnation)
    superblock = Superblock(
        identity=identity,
        boot_identity=config.boot_identity,
        file_bytes=file_bytes_of(config),
        journal_files=config.journal_files,
        is_clean=True,
    )
    return {
        SUPERBLOCK_NAME: encode_superblock_file(superblock, sequence=1),
        MARKER_NAME: encode_marker(identity),
    }


def open_store(config: StoreConfig, files: Mapping[str, bytes]) -> Opened | Wiped | Refused:
    """Return a store that continues from the files of a disk.

    Sync the files before reading them: what a killed process left in the page cache is taken for
    durable.
    """
    opener = Opener(config, files)
    try:
        loaded = opener.load()
    except LostError:
        return Wiped(tuple(opener.findings))
    except RefusalError as refusal:
        return Refused(str(refusal), tuple(opener.findings))
    old = loaded.superblock
    leftovers = [
        name
        for name in sorted(files)
        if name.startswith("checkpoint.")
        and (old.checkpoint_number == 0 or name != checkpoint_name(old.checkpoint_number))
    ]
    store = Store(config, loaded, files, leftovers)
    return Opened(
        store=store,
        groups=loaded.recovered.groups,
        findings=tuple(opener.findings),
        incarnation=loaded.identity.incarnation,
        is_first=old.opening == 0,
        life=loaded.identity.incarnation << 32 | old.opening + 1,
        ceilings=tuple(sorted(loaded.recovered.ceilings.items())),
        quarantine=tuple(loaded.verdict.cuts),
        is_suspect=loaded.suspect_at != 0,
        is_rotten=loaded.verdict.is_rotten,
        is_power_loss=loaded.power_lost_at != 0,
        moment=loaded.moment,
    )


class _Stop(Enum):
    """How far a clean stop is."""

    UNASKED = "unasked"
    SYNCING = "syncing"  # everything that was issued
    MARKING = "marking"  # the superblock as clean
    DONE = "done"


_UNASKED = _Stop.UNASKED
_PREPARE = int(Kind.PREPARE)
_PREPARE_FRAME = int(FrameKind.PREPARE)
_FOLLOWING = {
    _Stop.UNASKED: _Stop.SYNCING,
    _Stop.SYNCING: _Stop.MARKING,
    _Stop.MARKING: _Stop.DONE,
}


class Store:
    """Stages, flushes, reads and checkpoints; made by `open_store`."""

    def __init__(
        self,
        config: StoreConfig,
        loaded: Loaded,
        files: Mapping[str, bytes],
        leftovers: list[str],
    ) -> None:
        self.outbox = Outbox()
        self.ceilings = loaded.recovered.ceilings  # the newest of each group, durable or staged
        self._is_open = False
        self._stop = _Stop.UNASKED
        self._is_dated = config.start > 0
        self._noted_ordinal = -1  # the newest file of which the superblock knows a synced record
        self._is_naming = False  # the superblock is being written to name what is synced
        for name in leftovers:
            self.outbox.put(RemoveFile(name))
        verdict, old = loaded.verdict, loaded.superblock
        file_bytes = old.file_bytes
        ring = Ring(
            files_count=old.journal_files,
            file_bytes=file_bytes,
            used=verdict.used,
            position=verdict.position,
            is_allocated=[
                len(files.get(journal_name(file), b"")) >= file_bytes
                for file in range(old.journal_files)
            ],
        )
        self._journal = Journal(
            JournalStart(
                journal_key(loaded.identity), old.opening + 1, verdict.last, verdict.previous
            ),
            ring=ring,
            index=loaded.recovered.index,
            # The files keep the size that they were made with, whatever is configured now.
            record_bytes_max=min(config.record_bytes_max, file_bytes),
            outbox=self.outbox,
        )
        self._writer = SuperblockWriter(
            old,
            sequence=loaded.choice.sequence_max,
            order=loaded.choice.order,
            outbox=self.outbox,
        )
        self._reads = Reads(self._journal, self.outbox)
        self._checkpointer = Checkpointer(
            journal=self._journal,
            writer=self._writer,
            encoder=CheckpointEncoder(loaded.identity),
            outbox=self.outbox,
            is_healing=verdict.is_rotten,
        )
        # Asked for every turn, so without a method of the store in between.
        self.wants_checkpoint = self._checkpointer.wants  # whether a checkpoint should begin now
        self.journal = self._journal
        self.take_effects = self.outbox.take_effects  # for the disk, in order, each once
        self.flush = self._journal.flush  # see there, as for the next
        self.on_written = self._journal.on_written
        self.fits = self._journal.fits  # whether an op certainly has room; if not: `has_room`
        self._open(loaded, config)

    @property
    def probes(self) -> Probes:
        """The probes that were hit."""
        return self.outbox.probes

    @property
    def is_open(self) -> bool:
        """Whether the superblock names this opening: nothing may leave the node before (MD-26)."""
        return self._is_open

    @property
    def is_stopped(self) -> bool:
        """Whether the clean stop is durable."""
        return self._stop is _Stop.DONE

    @property
    def written(self) -> int:
        """The highest sequence known to be written; later ones may be, if nothing awaits them."""
        return self._journal.written

    @property
    def issued(self) -> int:
        """The highest sequence that was issued."""
        return self._journal.issued

    @property
    def synced(self) -> int:
        """The highest sequence that survives a power cut."""
        return self._journal.synced

    @property
    def named(self) -> int:
        """The highest sequence that the superblock names as synced: its loss is detected."""
        return self._writer.current.synced

    def name_synced(self) -> None:
        """Name the highest synced record in the superblock (O2.9); `named` says when it is done.

        One write names all records that are synced when it begins. A second write does not begin
        while one is pending.
        """
        assert self._first <= self._journal.synced, "the superblock knows what recovery read"
        if not self._is_naming and self.named < self._journal.synced:
            self._is_naming = True
            self.probes.hit("superblock: a synced record is named")
            self._write_synced(self._on_named)

    def _on_named(self) -> None:
        assert self._first <= self.named, "a record of this opening is named"
        self._is_naming = False

    @property
    def checkpointed(self) -> int:
        """The number of the durable checkpoint, 0 if there is none."""
        return self._checkpointer.number

    def checkpointed_ops(self) -> Mapping[int, int]:
        """Return the op of each group up to which the running or the last checkpoint has it.

        Nothing is known of those from before this opening.
        """
        return self._checkpointer.commits

    @property
    def is_checkpointing(self) -> bool:
        """Whether a checkpoint is running."""
        return self._checkpointer.is_running

    @property
    def is_without_space(self) -> bool:
        """Whether the disk has no space for a checkpoint or the next file of the journal.

        Both are retried each second.
        """
        return self._checkpointer.is_without_space or self._journal.is_starved

    @property
    def journal_bytes(self) -> int:
        """How many bytes the journal may take on the disk."""
        ring = self._journal.ring
        assert ring.admission_bytes < ring.files_count * ring.file_bytes, "some stays free"
        return ring.files_count * ring.file_bytes

    @property
    def journal_used_bytes(self) -> int:
        """How many bytes lie between the oldest entry that is kept and the newest."""
        used = self._journal.ring.used_bytes
        assert 0 <= used <= self.journal_bytes, "the journal is a ring of its files"
        return used

    @property
    def is_crowded(self) -> bool:
        """Whether little of the journal is left for new ops."""
        ring = self._journal.ring
        return ring.used_bytes * 8 > ring.admission_bytes * 7

    def stage_prepare(
        self, header: bytes, body: Buffer | None, *, is_never_held: bool = False
    ) -> None:
        """Stage an op; without a body while that is still missing.

        `is_never_held` is kept with an op without a body: it was never acknowledged here.
        """
        assert self._stop is _UNASKED, "a store that stops takes no more ops"
        if body is not None and header[KIND_OFFSET] == _PREPARE_FRAME:  # The usual case.
            entry = Entry(_PREPARE, FLAG_BODY, 0, 0, header, body)
            self._journal.stage(entry, PREPARE_ENTRY_BYTES + len(body))
            return
        entry = prepare_entry(header, body, is_never_held=is_never_held)
        self._journal.stage(entry, entry.size)

    def stage_truncate(self, group: int, from_op: int) -> None:
        """Stage the removal of the ops of a group from one on."""
        assert from_op > 0, "op 0 is the empty log"
        assert self._stop is _Stop.UNASKED, "a store that stops takes no more entries"
        self._journal.stage(Entry(Kind.TRUNCATE, 0, group, from_op), ENTRY_BYTES)

    def stage_view(self, state: ViewState) -> None:
        """Stage a group's view; it must be synced before a frame of it is sent (MD-26)."""
        assert self._stop is _Stop.UNASKED, "a store that stops takes no more entries"
        entry = view_entry(state)
        self._journal.stage(entry, entry.size)

    def stage_gone(self, group: int) -> None:
        """Stage the removal of a group with all its ops."""
        self.ceilings.pop(group, None)
        self._journal.stage(Entry(Kind.GROUP_GONE, 0, group), ENTRY_BYTES)

    def stage_ceiling(self, group: int, offset: int) -> None:
        """Stage the offset below which a group may assign offsets that are not yet durable."""
        self.ceilings[group] = offset
        self._journal.stage(Entry(Kind.OFFSET_CEILING, 0, group, offset), ENTRY_BYTES)

    def begin(self) -> None:
        """Start the groups; if starts are numbered, nothing is written before (DK16)."""
        if self._is_dated:
            assert self._is_open, "the opening is durable before any record"
            self._let_write()
            self._journal.write_sync_point()

    def has_room(
        self,
        body_bytes: int,
        *,
        held_count: int = 0,
        held_bytes: int = 0,
        reserve_parts: int = 0,
    ) -> bool:
        """Whether an op with a body of this size may be staged now; stage it before the next call.

        `held_count` other ops, with `held_bytes` of bodies, are held back and may be staged
        before it. It may use `reserve_parts` of the reserve for ops that make room (O2.10).
        """
        assert 0 <= reserve_parts <= RESERVE_PARTS, "nobody may use more than the reserve"
        if self._journal.has_room(body_bytes, held_count, held_bytes):
            return True
        if reserve_parts and self._journal.has_reserve(
            body_bytes, held_count, held_bytes, reserve_parts
        ):
            self.outbox.probes.hit("journal: the reserve is used")
            return True
        self._checkpointer.on_refused()
        return False

    def room_code(self, body_bytes: int) -> Code | None:
        """Return why there is no room for an op, or None if a checkpoint will make some."""
        if not self._journal.holds(body_bytes):
            return Code.TOO_BIG_MESSAGE_PAYLOAD
        return Code.CANNOT_APPEND_MESSAGE if self.is_without_space else None

    def step(self, event: DiskEvent) -> None:
        """Handle one event of the disk."""
        match event:
            case Written():
                self.on_written(event.sequence)  # A stop waits for syncs alone.
                return
            case Synced():
                self._journal.on_synced(event.sequence)
                self._checkpointer.on_progress()
                self._note_synced()
            case JournalAllocated():
                self._journal.on_allocated(event.file, is_done=event.is_done)
            case JournalRead():
                self._reads.on_read(event.token, event.data)
            case FileReplaced():
                self._checkpointer.on_replaced(event.token, is_done=event.is_done)
            case BlockWritten():
                is_ours = self._writer.on_written(event.token)
                assert is_ours
        self._try_stop()

    def tick(self, now: int) -> None:
        """Advance the time: `now` counts ticks of 10 ms and never falls."""
        self._journal.tick(now)
        self._checkpointer.tick(now)

    def read(self, group: int, op: int, token: int) -> bool:
        """Start reading an op; return whether the journal holds it with its body."""
        return self._reads.start(group, op, token)

    def take_reads(self) -> list[tuple[int, bytes, bytes]]:
        """Return the completed reads: token, header, body; both empty when the op is damaged."""
        return self._reads.take()

    def pending_reads(self) -> dict[int, None]:
        """Return the tokens of the reads that `take_reads` has not returned yet."""
        return self._reads.pending()

    def capture(self, group: GroupCheckpoint) -> None:
        """Put a group into the next checkpoint; nothing is written yet."""
        self._checkpointer.stage(group)

    def capture_gone(self, group: int) -> None:
        """Remove a group from the next checkpoint."""
        self._checkpointer.stage_gone(group)

    def begin_checkpoint(
        self, groups: Iterable[GroupCheckpoint], live: Live, *, covered: int | None = None
    ) -> int:
        """Make all groups durable as they are; return the number that `checkpointed` will reach.

        Pass every group that has changed since the last checkpoint here or to `capture`, and every
        group of the store to the first checkpoint; the others keep their block. `covered` is the
        value of `issued` when the groups were in this state, by default the current one. While a
        checkpoint runs, the newest request waits. `live` returns header and body of an op above
        the commit point that must be kept; it is called in `step`, when files are freed.
        """
        if covered is None:
            covered = self._journal.issued
        for group in groups:
            self.capture(group)
        assert self._stop is _Stop.UNASKED, "the last checkpoint comes before the stop"
        return self._checkpointer.begin(self.ceilings, live, covered)

    def stop_clean(self) -> None:
        """Mark the stop as clean once everything is synced; `is_stopped` says when it is durable.

        Nothing may be staged any more.
        """
        self._enter(_Stop.SYNCING)
        if self._journal.synced < self._journal.issued:
            self._journal.write_sync_point()
        self._try_stop()

    def take_findings(self) -> list[Finding]:
        """Return the findings since the last call."""
        return self.outbox.take_findings()

    def check(self) -> None:
        """Assert what holds between any two events; for tests and the simulator."""
        self._journal.check()
        self.outbox.check()
        self._reads.check()
        self._writer.check()
        self._checkpointer.check()
        self._check_superblock()
        journal = self._journal
        assert self._noted_ordinal <= journal.ring.head.ordinal, "a file is noted once it is used"
        assert (journal.placed >= self._first) == (journal.placed_bytes > 0), "bytes are counted"
        assert self._writer.current.is_clean or not self.is_stopped, "a stop is marked as clean"
        assert self._writer.is_busy or not self._is_naming, "a name is written, or was"

    def _check_superblock(self) -> None:
        named, journal = self._writer.current, self._journal
        assert named.synced <= journal.synced, "only synced records are named"
        assert named.journal_files == journal.ring.files_count, "a ring keeps its number of files"
        assert named.file_bytes == journal.ring.file_bytes, "and their size"
        assert self._first <= journal.issued + 1, "an opening goes on behind what it read"
        tails = [(used.first, used.ordinal) for used in self._checkpointer.tails()]
        assert (named.tail, named.tail_ordinal) in tails, "no file is freed before it is named"
        if self._is_open:
            assert named.first_sequence == self._first, "records follow their opening"
        assert self._is_open or not journal.is_open, "the opening is durable before any record"

    def _open(self, loaded: Loaded, config: StoreConfig) -> None:
        """Name this opening in the superblock; only then may the journal be written.

        Torn bodies stay above the sync point until the first record has said what they are.
        """
        journal = self._journal
        old = loaded.superblock
        verdicts = loaded.recovered.verdicts
        self._first = journal.issued + 1  # the first record of this opening
        assert loaded.verdict.synced <= journal.synced, "what recovery read is durable"
        opening = Opening(old.opening + 1, self._first)
        for entry in verdicts:
            journal.stage(entry, entry.size)
        journal.flush(sync=True, is_awaited=False)
        opened = msgspec.structs.replace(
            old,
            synced=loaded.verdict.synced if verdicts else journal.synced,
            suspect_at=loaded.suspect_at,
            power_lost_at=loaded.power_lost_at,
            boot_identity=config.boot_identity,
            start=config.start,
            is_clean=False,
            history=(*old.history, opening)[-HISTORY_MAX:],
        )
        self._writer.write(lambda _: opened, self._on_open)

    def _on_open(self) -> None:
        assert not self._journal.is_open, "the opening is durable before any record"
        self._is_open = True
        if not self._is_dated:
            self._let_write()

    def _let_write(self) -> None:
        assert self._writer.current.first_sequence == self._first, "records follow their opening"
        self._journal.is_open = True
        self._journal.pump()

    def _note_synced(self) -> None:
        """Name a synced record of this opening, and of every file of the ring, in the superblock.

        Without it, a file from an older copy in the place of the newest one would look like a
        journal that ends earlier (DK16).
        """
        journal = self._journal
        head = journal.ring.head
        assert self._noted_ordinal <= head.ordinal, "a file is noted once it is used"
        is_known = not self._is_dated or head.ordinal <= self._noted_ordinal
        if not is_known and journal.synced >= max(head.first, self._first):
            self._noted_ordinal = head.ordinal
            self._write_synced(lambda: None)

    def _write_synced(self, done: Callable[[], None]) -> None:
        journal = self._journal
        assert self._first <= journal.synced, "the superblock knows what recovery read"
        self._writer.write(
            lambda old: msgspec.structs.replace(old, synced=max(old.synced, journal.synced)), done
        )

    def _try_stop(self) -> None:
        journal = self._journal
        if self._stop is not _Stop.SYNCING:
            return
        if not journal.is_idle or journal.synced < journal.issued:
            return
        self._enter(_Stop.MARKING)
        self._writer.write(
            lambda old: msgspec.structs.replace(old, synced=journal.synced, is_clean=True),
            lambda: self._enter(_Stop.DONE),
        )

    def _enter(self, stop: _Stop) -> None:
        assert stop is _FOLLOWING[self._stop], "a clean stop goes on by one phase at a time"
        self._stop = stop
