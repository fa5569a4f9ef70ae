"""Restores every group from checkpoint and journal: view, log and bodies.

A body that cannot be read is one of two things (DK6). At or below the sync point it is **rotten**:
it was synced, so the op may have been acknowledged, and now it is lost. Above, it is **torn**:
nothing on the disk says that its sync ever returned.

| body, of an op above the commit point | what becomes of it |
|---|---|
| rotten | the op stays known; the group is suspect, for it may have lost what it acknowledged |
| torn | the op stays known, and the group is as it was; nothing of it was promised |

Where the tail of the journal is torn too, it has been cut at the first torn body already.

Flow:       recover.
Invariants: a replayed row gives what was staged, in its order: a later prepare of the same op wins,
            a truncation takes what came before it, the latest view stands. What was found torn is
            written down first, so that every later recovery finds the same.
"""

import msgspec

from headrace.ports.network import Buffer
from headrace.ports.recovered import (
    Finding,
    GroupCheckpoint,
    RecoveredEntry,
    RecoveredGroup,
    ViewState,
)
from headrace.storage.checkpoint import Checkpoint
from headrace.storage.config import journal_name
from headrace.storage.index import Index
from headrace.storage.journal import apply_to_index
from headrace.storage.judge import GoodRecord, Verdict
from headrace.storage.records import Entry, Kind, prepare_entry, prepare_op, view_of
from headrace.wire.errors import RemoteError
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import is_sealed


class _Held(msgspec.Struct, frozen=True):
    """An op as the journal holds it, and where to look for its damage."""

    header: PrepareHeader
    body: Buffer | None
    is_body_damaged: bool
    is_never_held: bool
    sequence: int
    file: str
    position: int


class _Group:
    """One group during the replay."""

    def __init__(self, group: int, checkpoint: GroupCheckpoint | None) -> None:
        self.checkpoint = checkpoint
        self.state = checkpoint.state if checkpoint else ViewState(group, 0, 0, 0, is_suspect=False)
        self.state_sequence = 0
        self.ops: dict[int, _Held] = {}

    @property
    def commit(self) -> int:
        header = self.checkpoint.commit_header if self.checkpoint else b""
        return prepare_op(header) if header else 0


class Recovered(msgspec.Struct):
    """The recovered groups, and the damage that only a peer can repair.

    `verdicts` are the entries that the next record must hold for torn bodies: once records follow,
    the sync point has passed them, and they would seem rotten.
    """

    groups: tuple[RecoveredGroup, ...]
    ceilings: dict[int, int]
    index: Index
    damaged: list[Finding]
    verdicts: list[Entry]


class Replay:
    """Replays the records of one journal over a checkpoint."""

    def __init__(self, checkpoint: Checkpoint | None, verdict: Verdict) -> None:
        self._verdict = verdict
        self._covered = checkpoint.covered if checkpoint else 0
        self._groups: dict[int, _Group] = {}
        self._ceilings: dict[int, int] = dict(checkpoint.ceilings) if checkpoint else {}
        self._index = Index()
        self._malformed: list[Finding] = []
        self._verdicts: list[Entry] = []
        for one in checkpoint.groups if checkpoint else ():
            self._groups[one.state.group] = _Group(one.state.group, one)

    def run(self, *, suspect_at: int, power_lost_at: int) -> Recovered:
        """Return every group.

        A group is suspect unless a view state from `suspect_at` on clears it; likewise for the
        power loss.
        """
        for record in self._verdict.records:
            for entry, header_at, body_at in record.entries:
                self._apply(record, entry, header_at, body_at)
        damaged = list(self._malformed)
        lost = [hole.last for hole in self._verdict.holes if hole.last > self._covered]
        groups = []
        for number in sorted(self._groups):
            group = self._groups[number]
            assert group.state.group == number, "a group is kept under its number"
            found = _recovered(group, suspect_at, max(lost, default=0), power_lost_at)
            groups.append(self._judge_bodies(group, found))
            self._check_newest(number, group)
            damaged += [
                self._damage(held)
                for op, held in sorted(group.ops.items())
                if op > group.commit and held.is_body_damaged
            ]
        return Recovered(tuple(groups), self._ceilings, self._index, damaged, self._verdicts)

    def _apply(self, record: GoodRecord, entry: Entry, header_at: int, body_at: int) -> None:
        is_newer = record.head.sequence > self._covered
        match entry.kind:
            case Kind.PREPARE:
                if not self._apply_prepare(record, entry, header_at, body_at):
                    return
            case Kind.TRUNCATE:
                if (group := self._groups.get(entry.first)) is not None:
                    group.ops = {op: group.ops[op] for op in group.ops if op < entry.second}
            case Kind.VIEW_STATE if is_newer:
                self._apply_view(view_of(entry), record.head.sequence)
            case Kind.OFFSET_CEILING if is_newer:
                self._ceilings[entry.first] = entry.second
            case Kind.GROUP_GONE:
                self._apply_gone(entry.first, is_newer=is_newer)
            case _:
                pass
        apply_to_index(
            self._index, entry, ordinal=record.ordinal, header_at=header_at, body_at=body_at
        )

    def _apply_prepare(
        self, record: GoodRecord, entry: Entry, header_at: int, body_at: int
    ) -> bool:
        file = journal_name(record.head.file)
        try:
            header = PREPARE.decode(entry.extra)
        except RemoteError:
            header = PrepareHeader()
        if header.op == 0 or not is_sealed(entry.extra):
            text = f"record {record.head.sequence} holds a prepare that was never sealed"
            self._malformed.append(Finding("rot", file, header_at, text))
            return False
        group = self._group(header.group)
        group.ops[header.op] = _Held(
            header,
            entry.body,
            entry.has_body and not body_at,
            entry.is_never_held,
            record.head.sequence,
            file,
            record.head.position,
        )
        return True

    def _apply_view(self, state: ViewState, sequence: int) -> None:
        assert sequence > self._covered, "the checkpoint holds earlier views"
        assert state.log_view <= state.view, "a record with such a view is not read"
        group = self._group(state.group)
        if (state.view, state.log_view) >= (group.state.view, group.state.log_view):
            group.state = state
            group.state_sequence = sequence

    def _apply_gone(self, number: int, *, is_newer: bool) -> None:
        group = self._groups.get(number)
        if group is None:
            return
        if is_newer or group.checkpoint is None:
            del self._groups[number]
            if is_newer:
                self._ceilings.pop(number, None)
        else:  # The checkpoint holds a later incarnation of the group.
            group.ops = {}

    def _group(self, number: int) -> _Group:
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = _Group(number, None)
        return group

    def _check_newest(self, number: int, group: _Group) -> None:
        """Assert that the index holds the newest op of a group as the group has it."""
        op = max(group.ops, default=0)
        place = self._index.find(number, op)
        assert (place is not None) == (op > 0), "the index holds what was replayed"
        assert self._index.find(number, op + 1) is None, "and nothing more"
        if place is not None:
            assert place.is_never_held == group.ops[op].is_never_held, "it is of the same entry"

    def _judge_bodies(self, group: _Group, found: RecoveredGroup) -> RecoveredGroup:
        """Return the group after judging its damaged bodies, by the table above."""
        is_suspect = found.state.is_suspect
        commit = _known_commit(found)
        for op in sorted(group.ops):
            held = group.ops[op]
            if not held.is_body_damaged or op <= group.commit:
                continue
            if self._is_rotten(held):
                is_suspect = is_suspect or op > commit
            else:
                header = PREPARE.encode(held.header)
                self._verdicts.append(prepare_entry(header, None, is_never_held=False))
        assert found.state.is_suspect <= is_suspect, "damage clears no group"
        state = msgspec.structs.replace(found.state, is_suspect=is_suspect)
        return msgspec.structs.replace(found, state=state)

    def _is_rotten(self, held: _Held) -> bool:
        return held.sequence <= self._verdict.synced

    def _damage(self, held: _Held) -> Finding:
        is_rot = self._is_rotten(held)
        text = (
            f"the body of op {held.header.op} of group {held.header.group} in record "
            f"{held.sequence} is damaged; synced were the records up to {self._verdict.synced}"
        )
        return Finding("rot" if is_rot else "torn", held.file, held.position, text)


def _recovered(group: _Group, suspect_at: int, lost_at: int, power_lost_at: int) -> RecoveredGroup:
    ops = [group.ops[op] for op in sorted(group.ops) if op > group.commit]
    state = group.state
    is_suspect = state.is_suspect or group.state_sequence < suspect_at
    # A view that only prepares still name was promised too.
    view = max([state.view, *(held.header.view for held in ops)])
    assert state.log_view <= view, "no log is newer than the view of its group"
    return RecoveredGroup(
        ViewState(
            state.group,
            view,
            state.log_view,
            state.commit,
            is_suspect=is_suspect,
            # A lost synced record may have held a later view.
            is_view_lost=state.is_view_lost or group.state_sequence < lost_at,
            is_tail_lost=state.is_tail_lost or group.state_sequence < power_lost_at,
        ),
        group.checkpoint,
        tuple([RecoveredEntry(held.header, held.body, held.is_never_held) for held in ops]),
    )


def _known_commit(found: RecoveredGroup) -> int:
    """Return the highest op that the view state, or an entry linked to the head, has committed."""
    commit = found.state.commit
    above: PrepareHeader | None = None
    for entry in reversed(found.entries):
        header = entry.header
        if above is not None and (header.op + 1, header.checksum) != (above.op, above.parent):
            break
        commit = max(commit, header.commit)
        above = header
    assert found.state.commit <= commit, "a commit point never falls"
    return commit
