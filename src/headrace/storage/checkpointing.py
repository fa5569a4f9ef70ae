"""Makes a checkpoint durable and frees journal files behind it.

```
ReplaceFile(checkpoint.N) -> live entries of the files to free are written again, synced
  -> superblock names checkpoint N and the new tail, four copies -> files are free
  -> RemoveFile(checkpoint.N-1)
```

A crash at any step leaves the old checkpoint with the old tail, or the new one with the new tail:
no file is overwritten before the last copy of the superblock is durable.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from headrace.ports.disk import RemoveFile, ReplaceFile
from headrace.ports.network import Buffer
from headrace.ports.recovered import Finding, GroupCheckpoint
from headrace.storage.checkpoint import CheckpointEncoder, checkpoint_checksum
from headrace.storage.config import checkpoint_name
from headrace.storage.journal import Journal
from headrace.storage.outbox import Outbox
from headrace.storage.records import Entry, prepare_entry, prepare_group, prepare_op
from headrace.storage.ring import UsedFile
from headrace.storage.superblock import Superblock
from headrace.storage.superblock_writer import SuperblockWriter

Live: TypeAlias = Callable[[int, int], tuple[bytes, Buffer | None] | None]

RETRY_TICKS = 100


class UnreadableError(Exception):
    """Raised by `Live`: an op must be kept and cannot be read, so its file stays as it is."""

    def __init__(self, group: int, op: int) -> None:
        super().__init__(f"op {op} of group {group} cannot be read, and is in the journal alone")


class Phase(Enum):
    """How far a checkpoint is."""

    WAITING = "waiting"  # for the one before it
    WRITING = "writing"  # its file
    STARVED = "starved"  # of space for its file
    RETRYING = "retrying"  # to write a file for which there was no space
    SYNCING = "syncing"  # everything that the superblock will vouch for
    NAMING = "naming"  # it in the superblock


# A checkpoint that was named in all copies of the superblock is done.
_FOLLOWING: dict[Phase, tuple[Phase, ...]] = {
    Phase.WAITING: (Phase.WRITING, Phase.RETRYING),
    Phase.WRITING: (Phase.STARVED, Phase.SYNCING),
    Phase.STARVED: (Phase.RETRYING,),
    Phase.RETRYING: (Phase.STARVED, Phase.SYNCING),
    Phase.SYNCING: (Phase.NAMING,),
    Phase.NAMING: (),
}


class _Changes(msgspec.Struct):
    """The changes of groups since the previous checkpoint."""

    blocks: dict[int, bytes] = msgspec.field(default_factory=dict)
    commits: dict[int, int] = msgspec.field(default_factory=dict)
    gone: dict[int, None] = msgspec.field(default_factory=dict)

    def put(self, group: GroupCheckpoint, block: bytes) -> None:
        """Record the current block of a group."""
        number = group.state.group
        self.gone.pop(number, None)
        self.blocks[number] = block
        self.commits[number] = prepare_op(group.commit_header) if group.commit_header else 0

    def drop(self, group: int) -> None:
        """Record that a group was removed."""
        self.blocks.pop(group, None)
        self.commits.pop(group, None)
        self.gone[group] = None

    def check(self) -> None:
        """Assert that no group is both changed and gone."""
        assert self.blocks.keys() == self.commits.keys(), "a block has its commit point"
        assert not self.blocks.keys() & self.gone.keys(), "a group that is gone has no block"

    def apply_to(self, blocks: dict[int, bytes], commits: dict[int, int]) -> None:
        """Bring the blocks and commit points of all groups up to date."""
        for group in self.gone:
            blocks.pop(group, None)
            commits.pop(group, None)
        blocks.update(self.blocks)
        commits.update(self.commits)

    def add(self, later: "_Changes") -> None:
        """Add later changes to these."""
        for group in later.gone:
            self.drop(group)
        for group in later.blocks:
            self.gone.pop(group, None)
        self.blocks.update(later.blocks)
        self.commits.update(later.commits)
        assert not self.blocks.keys() & self.gone.keys(), "a group that is gone has no block"
        assert self.blocks.keys() == self.commits.keys(), "a block has its commit point"


class _Order(msgspec.Struct):
    """One requested checkpoint."""

    number: int
    covered: int
    changes: _Changes
    ceilings: dict[int, int]
    live: Live
    phase: Phase = Phase.WAITING
    checksum: int = 0
    token: int = 0
    synced_wanted: int = 0  # once the live entries are queued
    freed_count: int = 0
    retry_at: int = 0  # while it is starved

    def enter(self, phase: Phase) -> None:
        """Go on to a phase that may follow."""
        assert phase in _FOLLOWING[self.phase], f"{phase} after {self.phase}"
        self.phase = phase


class Checkpointer:
    """Runs one checkpoint at a time; the newest of those requested meanwhile runs next."""

    def __init__(
        self,
        *,
        journal: Journal,
        writer: SuperblockWriter,
        encoder: CheckpointEncoder,
        outbox: Outbox,
        is_healing: bool,
    ) -> None:
        self.number = writer.current.checkpoint_number  # of the durable one
        self._journal = journal
        self._writer = writer
        self._encoder = encoder
        self._outbox = outbox
        self._number_last = self.number
        self._now = 0
        self._staged = _Changes()  # of the next checkpoint to be requested
        # All groups as the running checkpoint has them, or the last one if none is running.
        self._blocks: dict[int, bytes] = {}
        self.commits: dict[int, int] = {}
        self._current: _Order | None = None
        self._next: _Order | None = None
        self._is_short = False
        self._is_healing = is_healing  # the journal is damaged: free all of it
        # The next checkpoint can free something after so many placed bytes, or at this tick: ops
        # that were uncommitted may be committed by then, and a full journal places nothing.
        self._gain_at = 0
        self._again_at = 0

    @property
    def is_running(self) -> bool:
        """Whether a checkpoint is running."""
        return self._current is not None

    @property
    def is_without_space(self) -> bool:
        """Whether a checkpoint waits for space to be written."""
        order = self._current
        return order is not None and order.phase in (Phase.STARVED, Phase.RETRYING)

    def wants(self) -> bool:
        """Whether the journal is three quarters full, or refused an op, or is damaged."""
        if self._current is not None:
            return False
        ring = self._journal.ring
        if self._is_healing:
            return True
        if ring.head is ring.used[0]:
            return False  # There is one file, which is written.
        if self._journal.placed_bytes < self._gain_at:
            return self._is_short and self._now >= self._again_at
        return self._is_short or ring.used_bytes * 4 >= ring.admission_bytes * 3

    def on_refused(self) -> None:
        """Note that an op found no room, which a checkpoint may free."""
        self._is_short = True

    def stage(self, group: GroupCheckpoint) -> None:
        """Put a group into the next checkpoint, and into all that follow."""
        self._staged.put(group, self._encoder.encode_group(group))

    def stage_gone(self, group: int) -> None:
        """Remove a group from the next checkpoint, and from all that follow."""
        self._encoder.forget(group)
        self._staged.drop(group)

    def begin(self, ceilings: dict[int, int], live: Live, covered: int) -> int:
        """Start a checkpoint, or queue it behind the running one; return its number."""
        assert covered <= self._journal.issued, "only issued records are covered"
        assert self._writer.current.covered <= covered, "checkpoints go forward"
        assert self.number <= self._number_last, "each checkpoint has a number of its own"
        self._number_last += 1
        changes, self._staged = self._staged, _Changes()
        order = _Order(self._number_last, covered, changes, dict(ceilings), live)
        if self._current is None:
            self._start(order, Phase.WRITING)
        elif self._current.phase is Phase.STARVED:
            self._outbox.probes.hit("checkpoint: a newer one replaces one without space")
            self._current = None
            self._start(order, Phase.RETRYING)
        else:
            self._outbox.probes.hit("checkpoint: one waits for another")
            assert self._current.covered <= covered, "checkpoints go forward"
            if self._next is not None:
                assert self._next.covered <= covered, "checkpoints go forward"
                self._next.changes.add(changes)
                order.changes = self._next.changes
            self._next = order
        return order.number

    def on_replaced(self, token: int, *, is_done: bool) -> None:
        """Handle the completion of the file's write."""
        order = self._current
        if order is None or order.token != token:
            return  # A newer checkpoint replaced it while there was no space.
        if not is_done:
            self._outbox.probes.hit("checkpoint: no space")
            order.retry_at = self._now + RETRY_TICKS
            order.enter(Phase.STARVED)
            return
        order.enter(Phase.SYNCING)
        assert order.freed_count == 0, "files are chosen once"
        entries = self._choose_files(order)
        if entries or self._journal.synced < order.covered or not order.covered:
            self._journal.is_urgent = True
            order.synced_wanted = self._journal.rewrite(entries)
        else:
            # Nothing must be written first; a full journal would have no room for it.
            order.synced_wanted = order.covered
        assert 0 < order.synced_wanted <= self._journal.issued, "a sync can reach it"
        self.on_progress()

    def on_progress(self) -> None:
        """Go on to the superblock when everything that it names is synced."""
        order = self._current
        if order is None or order.phase is not Phase.SYNCING:
            return
        if self._journal.synced >= max(order.synced_wanted, order.covered):
            order.enter(Phase.NAMING)
            self._journal.is_urgent = False
            self._writer.write(lambda old: self._name_in(old, order), lambda: self._finish(order))

    def tick(self, now: int) -> None:
        """Retry a checkpoint that found no space."""
        assert self._now <= now, "time never falls"
        self._now = now
        order = self._current
        if order is not None and order.phase is Phase.STARVED and now >= order.retry_at:
            self._start(order, Phase.RETRYING)

    def tails(self) -> list[UsedFile]:
        """Return the files that the superblock may name as the tail of the journal."""
        used, order = self._journal.ring.used, self._current
        if order is None or order.phase is not Phase.NAMING:
            return used[:1]
        return [used[0], used[order.freed_count]]

    def check(self) -> None:
        """Assert that orders, blocks, journal and superblock agree."""
        order, following = self._current, self._next
        self._check_blocks()
        named = self._writer.current.checkpoint_number
        assert self.number <= named <= self._number_last, "a durable one was named"
        is_naming = order is not None and order.phase is Phase.NAMING
        assert is_naming or self.number == named, "what a recovery chooses is durable"
        is_syncing = order is not None and order.phase is Phase.SYNCING
        assert self._journal.is_urgent == is_syncing, "live entries may open the last file"
        self._check_files()
        gain_bytes = self._journal.ring.file_bytes // 4
        assert self._gain_at <= self._journal.placed_bytes + gain_bytes, "it is reached by placing"
        assert self._again_at <= self._now + RETRY_TICKS, "another one is begun in time"
        if order is None:
            assert following is None, "nothing waits for nothing"
        else:
            self._check_order(order)
        if order is not None and following is not None:
            assert following.phase is Phase.WAITING, "one checkpoint runs at a time"
            assert order.number < following.number <= self._number_last, "the newest comes next"
            assert order.covered <= following.covered, "a later one covers as much"

    def _check_files(self) -> None:
        """Assert that the durable checkpoint, and the one being written, are not removed."""
        kept = [checkpoint_name(self.number)] if self.number else []
        for effect in self._outbox.waiting(ReplaceFile):
            assert effect.name not in kept, "the durable checkpoint is not overwritten"
            if self._current is not None and effect.token == self._current.token:
                kept.append(effect.name)
        # In their order: what a crash left under a number goes before that number is used again.
        removed: dict[str, None] = {}
        for each in self._outbox.effects:
            if isinstance(each, RemoveFile):
                removed[each.name] = None
            elif isinstance(each, ReplaceFile):
                removed.pop(each.name, None)
        assert not any(name in removed for name in kept), "a checkpoint that is needed stays"

    def _check_blocks(self) -> None:
        assert self._blocks.keys() == self.commits.keys(), "a block has its commit point"
        blocks, commits = dict(self._blocks), dict(self.commits)
        if self._next is not None:
            self._next.changes.check()
            self._next.changes.apply_to(blocks, commits)
        self._staged.check()
        self._staged.apply_to(blocks, commits)
        self._encoder.check(blocks)

    def _check_order(self, order: _Order) -> None:
        journal = self._journal
        assert self.number < order.number <= self._number_last, "each has a number of its own"
        assert order.covered <= journal.issued, "only issued records are covered"
        assert order.freed_count < len(journal.ring.used), "the head is never freed"
        for used in journal.ring.used[: order.freed_count]:
            assert used.last <= order.covered, "only covered files are freed"
        match order.phase:
            case Phase.WRITING | Phase.RETRYING:
                assert order.token > 0, "its file is being written"
                assert not order.freed_count, "files are chosen when the file is durable"
            case Phase.STARVED:
                assert self._now < order.retry_at, "it is tried again in time"
            case Phase.SYNCING:
                wanted = max(order.synced_wanted, order.covered)
                assert journal.synced < wanted <= journal.issued, "a sync is still awaited"
            case Phase.NAMING:
                assert order.synced_wanted <= journal.synced, "the copies are synced"
                assert order.covered <= journal.synced, "what is covered is synced"
            case Phase.WAITING:
                raise AssertionError("a checkpoint waits behind another")

    def _start(self, order: _Order, phase: Phase) -> None:
        assert self._current is None or self._current is order, "one checkpoint runs at a time"
        assert self.number < order.number, "a checkpoint never replaces a later one"
        self._current = order
        order.enter(phase)
        order.changes.apply_to(self._blocks, self.commits)
        data = self._encoder.encode(
            number=order.number,
            covered=order.covered,
            blocks=self._blocks,
            ceilings=order.ceilings,
        )
        order.checksum = checkpoint_checksum(data)
        order.token = self._outbox.new_token()
        self._outbox.put(ReplaceFile(order.token, checkpoint_name(order.number), data))

    def _choose_files(self, order: _Order) -> list[Entry]:
        """Choose the oldest files that can be freed; return the live entries in them."""
        ring = self._journal.ring
        chosen: list[Entry] = []
        enough = 0 if self._is_healing else ring.admission_bytes // 2
        for used in ring.used[:-1]:
            kept_bytes = ring.used_bytes - order.freed_count * ring.file_bytes
            if used.last > order.covered or (kept_bytes <= enough and not self._is_short):
                break
            try:
                entries = self._live_entries(used.ordinal, order.live)
            except UnreadableError as error:
                self._outbox.probes.hit("checkpoint: a file stays for what cannot be read")
                self._outbox.find(Finding("full", checkpoint_name(order.number), 0, str(error)))
                break
            sizes = self._journal.rewrite_sizes([*chosen, *entries])
            must_write = bool(chosen or entries)
            if must_write and not ring.can_place([*self._journal.queued_sizes(), *sizes], leave=0):
                text = "live entries fill the journal; the groups they belong to need a quorum"
                self._outbox.find(Finding("full", checkpoint_name(order.number), 0, text))
                break
            chosen += entries
            order.freed_count += 1
        if chosen:
            self._outbox.probes.hit("checkpoint: live entries travel")
        return chosen

    def _live_entries(self, ordinal: int, live: Live) -> list[Entry]:
        entries = []
        for group, op in self._journal.index.held_in(ordinal, above=self.commits):
            found = live(group, op)
            if found is not None:
                place = self._journal.index.find(group, op)
                assert place is not None
                assert place.ordinal == ordinal, "only what lies in a freed file is copied"
                assert prepare_op(found[0]) == op, "the copy is of the op that is held"
                assert prepare_group(found[0]) == group, "and of its group"
                entries.append(prepare_entry(*found, is_never_held=place.is_never_held))
        return entries

    def _name_in(self, old: Superblock, order: _Order) -> Superblock:
        tail = self._journal.ring.used[order.freed_count]
        assert tail.first <= order.covered + 1, "the checkpoint covers what is freed"
        assert order.synced_wanted <= self._journal.synced, "copies are synced before they count"
        return msgspec.structs.replace(
            old,
            checkpoint_number=order.number,
            checkpoint_checksum=order.checksum,
            covered=order.covered,
            synced=self._journal.synced,
            tail=tail.first,
            tail_ordinal=tail.ordinal,
            power_lost_at=0,
            suspect_at=0,  # From here on the state of each group holds it.
        )

    def _finish(self, order: _Order) -> None:
        assert self._current is order, "one checkpoint runs at a time"
        assert order.phase is Phase.NAMING, "all copies of the superblock name it"
        assert self.number < order.number, "the file that is removed is an older one"
        named = self._writer.current
        assert order.number <= named.checkpoint_number, "a recovery chooses it, or a later one"
        ring = self._journal.ring
        if self.number:
            self._outbox.put(RemoveFile(checkpoint_name(self.number)))
        self.number = order.number
        ring.release(order.freed_count)
        assert named.tail <= ring.used[0].first, "no file is freed that a recovery reads"
        self._gain_at = self._journal.placed_bytes + ring.file_bytes // 4
        self._again_at = self._now + RETRY_TICKS
        self._is_short = False
        if order.freed_count or len(ring.used) == 1:
            self._is_healing = False
        self._current = None
        self._journal.pump()
        if self._next is not None:
            following, self._next = self._next, None
            self._start(following, Phase.WRITING)
