"""Random work on a store, a model of what it must hold, and crashes in between."""

from collections.abc import Iterator

from headrace.base.limits import PIPELINE_OPS_MAX
from headrace.base.prng import Prng
from headrace.ports.machine import Artifact
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup, ViewState
from headrace.storage.store import Opened, Store, StoreConfig
from headrace.wire.replica.prepares import PREPARE
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import GROUPS, formatted, opened, prepare


class Group:
    """What a group has staged: its view, its ops, how far it has committed."""

    def __init__(self, number: int) -> None:
        self.state = ViewState(number, 0, 0, 0, is_suspect=False)
        self.ops: dict[int, tuple[bytes, bytes | None]] = {}
        self.op = 0
        self.commit = 0
        self.commit_header = b""
        self.made: GroupCheckpoint | None = None

    def copy(self) -> "Group":
        other = Group(self.state.group)
        other.__dict__.update(self.__dict__)
        other.ops = dict(self.ops)
        return other

    def checkpoint(self) -> GroupCheckpoint:
        made = GroupCheckpoint(
            self.state, self.commit_header, b"table", (Artifact(1, self.commit, b"state"),)
        )
        if made != self.made:
            self.made = made
        assert self.made is not None
        return self.made


Groups = dict[int, Group]


class World:
    """One store, its disk, and what was staged, entry by entry."""

    def __init__(self, config: StoreConfig, seed: int, numbers: tuple[int, ...] = GROUPS) -> None:
        self.config = config
        self.numbers = numbers  # of the groups; the last one comes and goes
        self.prng = Prng(seed)
        self.disk = formatted(config)
        self.history: list[Groups] = [{}]  # the state after each entry
        self.flushed: list[tuple[int, int]] = []  # sequence, entries up to it
        self.now = 0
        self.salt = 0
        self.restarts = 0
        self.commits: dict[int, int] = {}
        self.stuck: int | None = None
        self.open(self.disk.files())

    @property
    def groups(self) -> Groups:
        return self.history[-1]

    def open(self, files: dict[str, bytes]) -> Opened:
        self.disk = FakeDisk(files, self.prng.fork("disk"))
        result = opened(self.config, files)
        again = opened(self.config, files)
        assert again.groups == result.groups, "recovery is idempotent"
        assert again.findings == result.findings
        self.store: Store = result.store
        return result

    # Work.

    def work(self, turns: int) -> None:
        for _ in range(turns):
            for _ in range(self.prng.below(4)):
                self.stage()
            self.flush()
            for _ in range(self.prng.below(6)):
                self.disk.step(self.store, may_sync=self.prng.chance(2, 3))
            self.tick()

    def tick(self) -> None:
        self.now += 1
        self.store.tick(self.now)
        for group in self.groups.values():
            if group.state.group != self.stuck and self.prng.chance(1, 2):
                commit(group, self.prng.between(group.commit, group.op))
                self.commits[group.state.group] = group.commit
        if self.store.wants_checkpoint() and self.flushed_all():
            self.checkpoint()

    def flushed_all(self) -> bool:
        return not self.flushed or self.flushed[-1][1] == len(self.history) - 1

    def checkpoint(self) -> None:
        for number in self.numbers:
            if number not in self.groups:
                self.store.capture_gone(number)
        made = [group.checkpoint() for group in self.groups.values()]
        self.store.begin_checkpoint(made, self.live)

    def live(self, group: int, op: int) -> tuple[bytes, bytes | None] | None:
        held = self.groups.get(group)
        return held.ops.get(op) if held else None

    def flush(self) -> None:
        sequence = self.store.flush(sync=self.prng.chance(2, 3))
        if sequence:
            self.flushed.append((sequence, len(self.history) - 1))

    def stage(self) -> None:
        number = self.prng.choice(self.numbers)
        group = self.groups.get(number)
        kind = self.prng.below(20)
        if group is None or kind < 14:
            self.stage_prepare(number)
        elif kind < 16:
            self.stage_view(number)
        elif kind < 18 and group.op > group.commit:
            self.stage_truncate(number, self.prng.between(group.commit + 1, group.op))
        elif kind == 18 and number == self.numbers[-1]:
            self.stage_gone(number)
        else:
            self.store.stage_ceiling(number, self.prng.u64())

    def after(self, number: int) -> Group:
        """Begin the state after one more entry."""
        state = {each: group.copy() for each, group in self.groups.items()}
        self.history.append(state)
        if number not in state:
            state[number] = Group(number)
        return state[number]

    def stage_prepare(self, number: int) -> bool:
        group = self.groups.get(number) or Group(number)
        body = self.prng.bytes(self.prng.choice((0, 10, 300, 2000)))
        self.salt += 1
        made = prepare(number, group.op + 1, body, view=group.state.log_view, salt=self.salt)
        if group.op - group.commit >= PIPELINE_OPS_MAX or not self.store.has_room(len(made[1])):
            return False
        self.store.stage_prepare(*made)
        group = self.after(number)
        group.op += 1
        group.ops[group.op] = made
        return True

    def stage_view(self, number: int) -> None:
        group = self.after(number)
        view = group.state.view + 1
        log_view = self.prng.between(group.state.log_view, view)
        group.state = ViewState(number, view, log_view, group.commit, self.prng.chance(1, 4))
        self.store.stage_view(group.state)

    def stage_truncate(self, number: int, from_op: int) -> None:
        self.store.stage_truncate(number, from_op)
        group = self.after(number)
        group.ops = {op: group.ops[op] for op in group.ops if op < from_op}
        group.op = from_op - 1

    def stage_gone(self, number: int) -> None:
        self.store.stage_gone(number)
        self.after(number)
        del self.history[-1][number]
        self.commits.pop(number, None)

    # Crashes.

    def crash(self) -> Opened:
        """Cut the power, open what is left, and check it against what was staged."""
        synced = max(
            (entries for sequence, entries in self.flushed if sequence <= self.store.synced),
            default=0,
        )
        result = self.open(self.disk.crash())
        self.restarts += 1
        lost = [each for each in result.findings if each.text.startswith("records ")]
        assert not lost, "no power cut takes what was synced"
        self.history = [self.find_prefix(result, synced)]
        self.flushed = []
        return result

    def find_prefix(self, result: Opened, synced: int) -> Groups:
        """Give the state that was recovered: one that stood after all that was synced."""
        found = {group.state.group: group for group in result.groups}
        for state in reversed(self.history[synced:]):
            if all(self.is_same(state, number, found) for number in {**state, **found}):
                return {number: taken_up(group, found[number]) for number, group in state.items()}
        raise AssertionError(f"recovered what never was, or lost what was synced: {result.groups}")

    def is_same(self, state: Groups, number: int, found: dict[int, RecoveredGroup]) -> bool:
        group, got = state.get(number), found.get(number)
        if group is None or got is None:
            return False
        checkpoint = got.checkpoint
        commit_op = (
            PREPARE.decode(checkpoint.commit_header).op
            if checkpoint and (checkpoint.commit_header)
            else 0
        )
        wanted = {op: group.ops[op] for op in group.ops if op > commit_op}
        views = (group.state.view, group.state.log_view, group.state.commit)
        return (
            views == (got.state.view, got.state.log_view, got.state.commit)
            and got.state.is_suspect >= group.state.is_suspect
            and list(wanted) == [entry.header.op for entry in got.entries]
            and all(
                PREPARE.encode(entry.header) == wanted[entry.header.op][0]
                and entry.body in (None, wanted[entry.header.op][1])
                for entry in got.entries
            )
        )


def commit(group: Group, op: int) -> None:
    """Move the commit point; what is below it leaves the log at the next checkpoint."""
    if op > group.commit:
        group.commit = op
        group.commit_header = group.ops[op][0]


def taken_up(group: Group, got: RecoveredGroup) -> Group:
    """Give the group as a replica goes on with it: without the bodies that were torn."""
    other = group.copy()
    other.state = got.state
    for entry in got.entries:
        header, _ = other.ops[entry.header.op]
        body = None if entry.body is None else bytes(entry.body)
        other.ops[entry.header.op] = (header, body)
    return other


def seeds(count: int) -> Iterator[int]:
    yield from range(1, count + 1)
