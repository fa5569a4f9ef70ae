"""One store on a disk that a scenario can hold, fill, cut and damage."""

from typing import TYPE_CHECKING

from headrace.ports.recovered import Finding, RecoveredGroup
from headrace.storage.checkpointing import UnreadableError
from headrace.storage.config import SUPERBLOCK_NAME, identity_of, journal_key, journal_name
from headrace.storage.copies import BLOCK_BYTES
from headrace.storage.records import Head
from headrace.storage.scan import scan_journal
from headrace.storage.store import Opened, Refused, Store, Wiped, format_store, open_store
from headrace.wire.replica.prepares import PREPARE
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import INCARNATION, config
from tests.storage.world import Group

if TYPE_CHECKING:
    from headrace.ports.disk import DiskEffect

BODY_BYTE = 500  # a byte of every body


class Disk(FakeDisk):
    """A disk that does not begin some kinds of work before it is told to."""

    def __init__(self, files: dict[str, bytes], left: dict[type, int]) -> None:
        super().__init__(files)
        self.left = left  # how many effects of a kind are still carried out
        self.held: list[DiskEffect] = []

    def take(self, store: Store) -> None:
        store.check()
        for effect in store.take_effects():
            kind = type(effect)
            is_held = self.left.get(kind) == 0
            if kind in self.left and not is_held:
                self.left[kind] -= 1
            (self.held if is_held else self._waiting).append(effect)

    def work(self, store: Store) -> None:
        """Carry out everything that is not held; a sync when nothing else is left."""
        while self.step(store, may_sync=False) or (self.is_syncing and self.step(store)):
            pass

    def release(self) -> None:
        self.left.clear()
        self._waiting.extend(self.held)
        self.held.clear()
        self.is_syncing = True

    def cut_after(self, kept: int) -> dict[str, bytes]:
        """Cut the power; of the writes that no sync covered the first bytes stay."""
        for name, position, data in self.unsynced:
            part = data[:kept]
            kept -= len(part)
            self.durable[name][position : position + len(part)] = part
        return {name: bytes(data) for name, data in self.durable.items()}


class Stage:
    """The store while it is open, its files while it is closed, and the groups that use it."""

    def __init__(self, replicas: int) -> None:
        self.config = config(replica_count=replicas, files=4)
        self.files = format_store(self.config, INCARNATION)
        self.left: dict[type, int] = {}
        self.unreadable: dict[tuple[int, int], None] = {}  # group and op
        self.now = 0
        self.open()

    def open(self) -> Opened | Wiped | Refused:
        """Open what the files hold, and take up the groups."""
        self.disk = Disk(self.files, self.left)
        self.groups: dict[int, Group] = {}
        self.running: Store | None = None
        opened = open_store(self.config, self.files)
        if isinstance(opened, Opened):
            self.groups = {each.state.group: group_of(each) for each in opened.groups}
            self.running = opened.store
            self.work()
        return opened

    @property
    def store(self) -> Store:
        assert self.running is not None, "the store is closed"
        return self.running

    def work(self) -> None:
        self.disk.work(self.store)

    def close(self, files: dict[str, bytes]) -> None:
        """End the process; these files are what the next one reads."""
        self.files, self.running = files, None
        self.left.clear()

    def take_findings(self) -> list[Finding]:
        return [] if self.running is None else self.running.take_findings()

    def group(self, number: int) -> Group:
        return self.groups.setdefault(number, Group(number))

    def live(self, group: int, op: int) -> tuple[bytes, bytes | None] | None:
        if (group, op) in self.unreadable:
            raise UnreadableError(group, op)
        return self.groups[group].ops.get(op)

    def image(self) -> dict[str, bytes]:
        """Return the files as a new process would read them."""
        return self.files if self.running is None else self.disk.files()

    def heads(self) -> list[Head]:
        """Return the headers of all records, those of earlier laps too."""
        key = journal_key(identity_of(self.config, INCARNATION))
        return scan_journal(self.image(), files_count=self.config.journal_files, key=key).heads

    def damage_record(self, record: int, *, is_body: bool) -> None:
        head = self._head_of(record)
        entries_end = head.position + head.head_bytes
        self._change(journal_name(head.file), entries_end + (BODY_BYTE if is_body else -1))

    def damage_superblock(self, copy: int) -> None:
        self._change(SUPERBLOCK_NAME, copy * BLOCK_BYTES + 100)

    def lose_record(self, record: int) -> None:
        """Put zeros where a record was."""
        head = self._head_of(record)
        data = bytearray(self.files[journal_name(head.file)])
        data[head.position : head.position + head.length] = bytes(head.length)
        self.files[journal_name(head.file)] = bytes(data)

    def _head_of(self, record: int) -> Head:
        assert self.running is None, "a store that is open reads what it has written"
        (head,) = [head for head in self.heads() if head.sequence == record]
        return head

    def _change(self, name: str, position: int) -> None:
        data = bytearray(self.files[name])
        data[position] ^= 1
        self.files[name] = bytes(data)


def group_of(found: RecoveredGroup) -> Group:
    """Return a group as a replica goes on with it."""
    group = Group(found.state.group)
    group.state = found.state
    if found.checkpoint is not None and found.checkpoint.commit_header:
        group.commit_header = found.checkpoint.commit_header
        group.op = group.commit = PREPARE.decode(group.commit_header).op
    for entry in found.entries:
        group.op = entry.header.op
        body = None if entry.body is None else bytes(entry.body)
        group.ops[group.op] = (PREPARE.encode(entry.header), body)
    return group
