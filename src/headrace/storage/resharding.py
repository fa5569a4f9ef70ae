"""Moves the groups of a node's stores to stores of another shard count (O2.5).

```
opened stores -> share_out: what each new store must hold -> build_store: its files
```

A new store has a checkpoint of the groups that had one, and a journal of one opening: the view of
each group and the ops behind its checkpoint. Segments and the metadata store stay as they are.

Flow:       recover.
Invariants: recovery of the new stores returns each group as recovery of the old ones did; a new
            store says of groups that it does not list whatever any old store said of them.
"""

from collections.abc import Iterator, Mapping

import msgspec

from headrace.base.ids import GroupId, is_partition_group
from headrace.base.placement import owner_of
from headrace.ports.disk import WriteJournal
from headrace.ports.recovered import RecoveredGroup
from headrace.storage.checkpoint import CheckpointEncoder, checkpoint_checksum
from headrace.storage.config import (
    FILE_ALIGNMENT,
    MARKER_NAME,
    SUPERBLOCK_NAME,
    Identity,
    StoreConfig,
    checkpoint_name,
    file_bytes_of,
    identity_of,
    journal_key,
    journal_name,
)
from headrace.storage.index import Index
from headrace.storage.journal import Journal, JournalStart
from headrace.storage.marker import encode_marker
from headrace.storage.outbox import Outbox
from headrace.storage.records import Entry, prepare_entry, record_bytes, view_entry
from headrace.storage.ring import ADMISSION_FILES_FREE, Ring, UsedFile
from headrace.storage.store import Opened
from headrace.storage.superblock import Opening, Superblock, encode_superblock_file
from headrace.wire.replica.prepares import PREPARE

_FIRST_CHECKPOINT = 1
_FROM_FIRST_RECORD = 1  # every view state of the new journal says more than the superblock
_OPENING_BITS = 32


class NotMovableError(Exception):
    """A store holds what cannot be moved to another store; the sentence names it and the remedy."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What recovery knows of one store. Two stores with equal contents are recovered equally.

    `opening` is the number of the last one. `is_suspect` and `is_power_loss` are about groups that
    are not listed, as in `Opened`.
    """

    groups: tuple[RecoveredGroup, ...]
    ceilings: tuple[tuple[int, int], ...]
    incarnation: int
    opening: int
    start: int
    is_suspect: bool
    is_power_loss: bool


class BuiltStore(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a store; each journal file is as long as `journal_bytes`, with zeros at the end.

    Write the marker last.
    """

    files: dict[str, bytes]
    journal_bytes: int


def contents_of(opened: Opened) -> Contents:
    """Return what recovery found in a store."""
    opening = (opened.life & (1 << _OPENING_BITS) - 1) - 1
    assert opened.life == opened.incarnation << _OPENING_BITS | opening + 1
    assert opened.is_first == (opening == 0), "a store that was open has an opening"
    return Contents(
        groups=opened.groups,
        ceilings=opened.ceilings,
        incarnation=opened.incarnation,
        opening=opening,
        start=opened.moment.start,
        is_suspect=opened.is_suspect,
        is_power_loss=opened.is_power_loss,
    )


def share_out(
    stores: Mapping[str, Opened], *, shard_count: int, start: int
) -> tuple[Contents, ...]:
    """Return what each store of the new shard count must hold.

    `stores` are those of the old shards, in their order, by a name for refusals. `start` is the
    oldest start that any store of the node knows: of two stores that know different starts the
    newer one was not written since, so that the new stores are of one moment with all others.

    Raises:
        NotMovableError: Recovery would not find in the new stores what it finds in the old ones.
    """
    assert stores
    assert shard_count > 0, "a node without shards holds nothing"
    for shard, (name, opened) in enumerate(stores.items()):
        _check_movable(name, opened, shard, len(stores))
    found = [contents_of(opened) for opened in stores.values()]
    assert all(start <= each.start for each in found), "the oldest start is of all moments"
    is_power_loss = any(each.is_power_loss for each in found)
    groups: list[list[RecoveredGroup]] = [[] for _ in range(shard_count)]
    ceilings: list[list[tuple[int, int]]] = [[] for _ in range(shard_count)]
    for each in found:
        for group in each.groups:
            groups[owner_of(GroupId(group.state.group), shard_count)].append(group)
        for number, offset in _needed_ceilings(each, is_power_loss=is_power_loss):
            ceilings[owner_of(GroupId(number), shard_count)].append((number, offset))
    assert sum(map(len, groups)) == sum(len(each.groups) for each in found), "none is left behind"
    known = sum(len(each.ceilings) for each in found)
    assert sum(map(len, ceilings)) <= known, "a ceiling has one place"
    return tuple(
        Contents(
            groups=tuple(sorted(groups[shard], key=lambda group: group.state.group)),
            ceilings=tuple(sorted(ceilings[shard])),
            incarnation=max(each.incarnation for each in found),
            opening=max(each.opening for each in found),
            start=start,
            is_suspect=any(each.is_suspect for each in found),
            is_power_loss=is_power_loss,
        )
        for shard in range(shard_count)
    )


def _check_movable(name: str, opened: Opened, shard: int, shard_count: int) -> None:
    if opened.is_rotten:
        raise NotMovableError(
            f"{name}: records of the journal that were synced are missing, and with them maybe"
            f" groups; start the node with {shard_count} shards until its peers have restored them,"
            " then change the number"
        )
    numbers = [group.state.group for group in opened.groups]
    for number in [*numbers, *(number for number, _ in opened.ceilings)]:
        is_partition = is_partition_group(number)
        if not is_partition or owner_of(GroupId(number), shard_count) != shard:
            what = f"belongs to another of {shard_count} shards" if is_partition else "is none"
            raise NotMovableError(
                f"{name}: holds group {number}, which {what}: the layout record and the stores are"
                " not of one node and moment; restore the whole data folder from one copy"
            )


def _needed_ceilings(found: Contents, *, is_power_loss: bool) -> Iterator[tuple[int, int]]:
    """Yield the ceilings of one old store that the new stores must know.

    One of a group that is not listed counts only where power was lost. If it was not, the group
    assigned nothing below it, and a new store that inherits a power loss would report a loss.
    """
    listed = {group.state.group: None for group in found.groups}
    for number, offset in found.ceilings:
        if number in listed or found.is_power_loss or not is_power_loss:
            yield number, offset


def build_store(contents: Contents, config: StoreConfig) -> BuiltStore:
    """Return the files of a store with these contents, cleanly stopped.

    The journal has the configured size, or more if it must hold more.
    """
    assert contents.opening > 0 or not contents.groups, "groups come with an opening"
    identity = identity_of(config, contents.incarnation)
    entries = list(_entries(contents))
    file_bytes = _file_bytes(config, entries)
    journal, files = _build_journal(identity, contents.opening, config, entries, file_bytes)
    checkpoint = _build_checkpoint(contents, identity)
    if checkpoint:
        files[checkpoint_name(_FIRST_CHECKPOINT)] = checkpoint
    superblock = Superblock(
        identity=identity,
        checkpoint_number=_FIRST_CHECKPOINT if checkpoint else 0,
        checkpoint_checksum=checkpoint_checksum(checkpoint) if checkpoint else 0,
        covered=0,
        synced=journal.issued,
        tail=1,
        suspect_at=_FROM_FIRST_RECORD if contents.is_suspect else 0,
        power_lost_at=_FROM_FIRST_RECORD if contents.is_power_loss else 0,
        boot_identity=config.boot_identity,
        file_bytes=file_bytes,
        journal_files=journal.ring.files_count,
        start=contents.start,
        is_clean=True,
        history=(Opening(contents.opening, 1),) if contents.opening else (),
    )
    files[SUPERBLOCK_NAME] = encode_superblock_file(superblock, sequence=1)
    files[MARKER_NAME] = encode_marker(identity)
    return BuiltStore(files=files, journal_bytes=file_bytes)


def _entries(contents: Contents) -> Iterator[Entry]:
    """Yield what recovery must find in the journal, beyond the checkpoint."""
    is_overruled = contents.is_suspect or contents.is_power_loss
    for group in contents.groups:
        checkpoint = group.checkpoint
        if checkpoint is None or checkpoint.state != group.state or is_overruled:
            yield view_entry(group.state)
        for entry in group.entries:
            header = PREPARE.encode(entry.header)
            yield prepare_entry(header, entry.body, is_never_held=entry.is_never_held)


def _file_bytes(config: StoreConfig, entries: list[Entry]) -> int:
    """Return the size of a journal file: as configured, or as the largest record needs it."""
    record = max((record_bytes(entry.size) for entry in entries), default=0)
    file_bytes = max(file_bytes_of(config), record + -record % FILE_ALIGNMENT)
    assert record <= file_bytes, "no record spans two files"
    assert file_bytes % FILE_ALIGNMENT == 0, "files are aligned"
    return file_bytes


def _build_journal(
    identity: Identity, opening: int, config: StoreConfig, entries: list[Entry], file_bytes: int
) -> tuple[Journal, dict[str, bytes]]:
    """Return a journal that has placed these entries, and its files up to their last record."""

    def make(files_count: int) -> Journal:
        ring = Ring(
            files_count=files_count,
            file_bytes=file_bytes,
            used=[UsedFile(0, 1, 0)],
            position=0,
            is_allocated=[True] * files_count,
        )
        return Journal(
            JournalStart(journal_key(identity), opening, 0, 0),
            ring=ring,
            index=Index(),
            record_bytes_max=file_bytes,
            outbox=outbox,
        )

    outbox = Outbox()
    journal = make(config.journal_files)
    if not entries:
        return journal, {}
    used = _count_files(journal.rewrite_sizes(entries), file_bytes)
    # Behind it stays one file for new ops: without any, a checkpoint would have to come first.
    journal = make(max(config.journal_files, used + 1 + ADMISSION_FILES_FREE))
    journal.is_open = True
    journal.rewrite(entries)
    assert journal.placed == journal.issued, "there is room for every record"
    assert len(journal.ring.used) == used, "records are placed as they were counted"
    files: dict[str, bytearray] = {}
    for effect in outbox.take_effects():
        assert isinstance(effect, WriteJournal), "a journal with its space only writes"
        data = files.setdefault(journal_name(effect.file), bytearray())
        assert effect.position <= len(data), "records follow each other"
        data[effect.position :] = effect.data
        assert len(data) <= file_bytes, "no record spans two files"
    return journal, {name: bytes(data) for name, data in files.items()}


def _count_files(sizes: list[int], file_bytes: int) -> int:
    """Return how many files these records fill, one after another."""
    count, position = 1, 0
    assert max(sizes, default=0) <= file_bytes, "no record spans two files"
    for size in sizes:
        if position + size > file_bytes:
            count, position = count + 1, 0
        position += size
    return count


def _build_checkpoint(contents: Contents, identity: Identity) -> bytes:
    """Return the checkpoint file, empty if nothing must be in it."""
    encoder = CheckpointEncoder(identity)
    blocks = {
        group.state.group: encoder.encode_group(group.checkpoint)
        for group in contents.groups
        if group.checkpoint is not None
    }
    ceilings = dict(contents.ceilings)
    assert len(ceilings) == len(contents.ceilings), "a group has one ceiling"
    if not blocks and not ceilings:
        return b""
    return encoder.encode(number=_FIRST_CHECKPOINT, covered=0, blocks=blocks, ceilings=ceilings)
