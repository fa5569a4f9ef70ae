"""The results of recovery, as storage returns them to the other packages."""

import msgspec

from headrace.ports.machine import Artifact
from headrace.ports.network import Buffer
from headrace.wire.replica.prepares import PrepareHeader


class ViewState(msgspec.Struct, frozen=True):
    """The state of a group that must be durable before the replica sends a frame of it (MD-26).

    `is_suspect`: its log may have lost ops that it acknowledged, so a short log proves nothing
    until a later view has been installed. `is_view_lost`: even the view may be older than one that
    it has entered, so it must learn the view from others before it takes part (FM-7).
    `is_tail_lost`: power was lost, and so maybe what was written and not synced: nothing for a
    group that waits for syncs, acknowledged ops for one that does not. Its log does not say so yet.
    """

    group: int
    view: int
    log_view: int
    commit: int  # known to be committed when the view was entered
    is_suspect: bool
    is_view_lost: bool = False
    is_tail_lost: bool = False


class GroupCheckpoint(msgspec.Struct, frozen=True):
    """One group as the checkpoint holds it: everything up to the op of `commit_header`."""

    state: ViewState
    commit_header: bytes  # 256 sealed bytes of the prepare at the commit point; empty for op 0
    client_table: bytes
    artifacts: tuple[Artifact, ...]


class RecoveredEntry(msgspec.Struct, frozen=True):
    """One prepare of the log; without a body it is known but damaged, and must come from a peer."""

    header: PrepareHeader
    body: Buffer | None
    is_never_held: bool = False  # stored without a body, as one that was never acknowledged


class RecoveredGroup(msgspec.Struct, frozen=True):
    """One group as recovered from the disk.

    Entries are in order of ops, above the checkpoint's commit point; an op may be missing.
    """

    state: ViewState
    checkpoint: GroupCheckpoint | None
    entries: tuple[RecoveredEntry, ...]


class Finding(msgspec.Struct, frozen=True):
    """Something that recovery or the store noticed: counted, logged, shown by `headrace doctor`."""

    kind: str
    file: str
    position: int
    text: str
