"""The commands of scenarios of one store: journal, superblock and checkpoints on one disk."""

from headrace.base.ids import METADATA_GROUP
from headrace.ports.disk import ReplaceFile, WriteBlock, WriteJournal
from headrace.ports.recovered import Finding, RecoveredGroup, ViewState
from headrace.storage.config import SUPERBLOCK_NAME, journal_name
from headrace.storage.copies import BLOCK_BYTES, COPIES
from headrace.storage.store import Opened, Wiped
from headrace.storage.superblock import choose_superblock, decode_superblock
from tests.storage.samples import prepare
from tests.storage.stage import Stage, group_of
from tests.storage.world import Group, commit

GROUPS = {"m": METADATA_GROUP, "p": 1, "q": 2}
NAMES = {number: name for name, number in GROUPS.items()}
KINDS = {"writes": WriteJournal, "checkpoints": ReplaceFile, "superblocks": WriteBlock}
BODY = bytes(range(1, 251)) * 4


class Commands:
    """Understands the commands of a scenario file.

    store [REPLICAS]         format a store of one of that many replicas, and open it
    append GROUP COUNT       journal ops of 1000 bytes, each in a record of its own, with a sync
    announce GROUP [COUNT]   journal the next ops without their bodies, as never held here; whether
                             there is room for ops is not asked
    view GROUP VIEW          journal that a group is in a view
    commit GROUP OP          apply ops: the next checkpoint holds them
    checkpoint               begin a checkpoint
    name                     have the superblock name what is synced
    pass TICKS               let time pass
    hold KIND [COUNT]        do not begin `writes`, `checkpoints`, `superblocks` or `syncs` on the
                             disk, or only so many of them
    release                  carry out what is held, and everything that follows
    unreadable GROUP OP      an op that only the journal holds cannot be read just now
    readable                 all ops can be read again
    full, emptied            the disk has no space, then has again
    stop                     end the process in order
    kill                     end the process; what it has written is there
    cut [KEPT]               power cut; of what no sync covered the first KEPT bytes stay
    rot RECORD [body]        change a byte of a record while the store is closed
    rot superblock COPY      or of a copy of the superblock
    lose RECORD              have nothing where a record was, as if it was never written
    open                     open the store, and print what recovery found
    read GROUP OP            read an op of the journal
    journal                  show which records lie in which file, and whether there is room for ops
    superblock               show what the superblock says, and which of its copies
    files                    list the checkpoints
    """

    def __init__(self) -> None:
        self.stage = Stage(3)

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        printed: list[str] = getattr(self, f"do_{verb}")(*words) or []
        return printed + [finding_text(each) for each in self.stage.take_findings()]

    def do_store(self, replicas: str = "3") -> None:
        self.stage = Stage(int(replicas))

    def do_open(self) -> list[str]:
        opened = self.stage.open()
        lines = [finding_text(each) for each in opened.findings]
        if isinstance(opened, Opened):
            return lines + [describe(each) for each in opened.groups]
        return [*lines, "wiped" if isinstance(opened, Wiped) else "not opened"]

    def do_append(self, group: str, count: str) -> list[str]:
        mine = self.stage.group(GROUPS[group])
        last: list[str] = []
        for _ in range(int(count)):
            header, body = next_op(mine)
            if not self.stage.store.has_room(len(body)):
                return [f"no room for op {mine.op + 1}"]
            last = self.journal(mine, header, body)
        return last

    def do_announce(self, group: str, count: str = "1") -> list[str]:
        mine = self.stage.group(GROUPS[group])
        last: list[str] = []
        for _ in range(int(count)):
            last = self.journal(mine, next_op(mine)[0], None)
        return last

    def journal(self, group: Group, header: bytes, body: bytes | None) -> list[str]:
        group.op += 1
        group.ops[group.op] = (header, body)
        self.stage.store.stage_prepare(header, body, is_never_held=body is None)
        return self.flush(f"op {group.op}")

    def do_view(self, group: str, view: str) -> list[str]:
        mine = self.stage.group(GROUPS[group])
        mine.state = ViewState(GROUPS[group], int(view), int(view), mine.commit, is_suspect=False)
        self.stage.store.stage_view(mine.state)
        return self.flush(f"view {view}")

    def flush(self, what: str) -> list[str]:
        sequence = self.stage.store.flush(sync=True)
        self.stage.work()
        how = "is synced" if sequence <= self.stage.store.synced else "waits"
        return [f"{what} {how}, record {sequence}"]

    def do_commit(self, group: str, op: str) -> None:
        commit(self.stage.groups[GROUPS[group]], int(op))

    def do_checkpoint(self) -> list[str]:
        made = [group.checkpoint() for group in self.stage.groups.values()]
        number = self.stage.store.begin_checkpoint(made, self.stage.live)
        self.stage.work()
        is_durable = self.stage.store.checkpointed >= number
        return [f"checkpoint {number} is {'durable' if is_durable else 'under way'}"]

    def do_name(self) -> list[str]:
        self.stage.store.name_synced()
        self.stage.work()
        return [f"named is record {self.stage.store.named}"]

    def do_pass(self, ticks: str) -> None:
        for _ in range(int(ticks)):
            self.stage.now += 1
            self.stage.store.tick(self.stage.now)
            self.stage.work()

    def do_hold(self, kind: str, count: str = "0") -> None:
        if kind == "syncs":
            self.stage.disk.is_syncing = False
        else:
            self.stage.left[KINDS[kind]] = int(count)

    def do_release(self) -> None:
        self.stage.disk.release()
        self.stage.work()

    def do_full(self) -> None:
        self.stage.disk.is_full = True

    def do_unreadable(self, group: str, op: str) -> None:
        self.stage.unreadable[GROUPS[group], int(op)] = None

    def do_readable(self) -> None:
        self.stage.unreadable.clear()

    def do_emptied(self) -> None:
        self.stage.disk.is_full = False

    def do_stop(self) -> None:
        self.stage.store.stop_clean()
        self.stage.work()
        assert self.stage.store.is_stopped
        self.do_kill()

    def do_kill(self) -> None:
        self.stage.close(self.stage.disk.files())

    def do_cut(self, kept: str = "0") -> None:
        self.stage.close(self.stage.disk.cut_after(int(kept)))

    def do_rot(self, what: str, place: str = "") -> None:
        if what == SUPERBLOCK_NAME:
            self.stage.damage_superblock(int(place))
        else:
            self.stage.damage_record(int(what), is_body=place == "body")

    def do_lose(self, record: str) -> None:
        self.stage.lose_record(int(record))

    def do_read(self, group: str, op: str) -> list[str]:
        store = self.stage.store
        if not store.read(GROUPS[group], int(op), token=1):
            return ["not in the journal"]
        self.stage.work()
        ((_, header, body),) = store.take_reads()
        is_it = (header, body) == self.stage.groups[GROUPS[group]].ops.get(int(op))
        return [f"op {op} as it was written" if is_it else "damaged"]

    def do_journal(self) -> list[str]:
        lines = []
        for file in range(self.stage.config.journal_files):
            heads = [head for head in self.stage.heads() if head.file == file]
            lap = max((head.lap for head in heads), default=0)
            held = [head.sequence for head in heads if head.lap == lap]
            told = f"lap {lap}, records {min(held)} to {max(held)}" if held else "empty"
            lines.append(f"{journal_name(file)}: {told}")
        return [*lines, f"has room: {self.stage.store.has_room(len(BODY))}"]

    def do_superblock(self) -> list[str]:
        data = self.stage.image()[SUPERBLOCK_NAME]
        choice = choose_superblock(data)
        if not choice.payload:
            return ["no two copies agree"]
        said = decode_superblock(choice.payload)
        blocks = [data[copy * BLOCK_BYTES :][:BLOCK_BYTES] for copy in range(COPIES)]
        agree = [str(copy) for copy, block in enumerate(blocks) if choice.payload in block]
        facts = [
            f"checkpoint {said.checkpoint_number} covers {said.covered}",
            f"tail {said.tail}",
            f"synced {said.synced}",
        ]
        facts += ["clean"] * said.is_clean
        return [f"{', '.join(facts)}: copies {' '.join(agree)}"]

    def do_files(self) -> list[str]:
        return [name for name in sorted(self.stage.image()) if name.startswith("checkpoint.")]


def next_op(group: Group) -> tuple[bytes, bytes]:
    return prepare(group.state.group, group.op + 1, BODY, view=group.state.log_view)


def finding_text(finding: Finding) -> str:
    return f"{finding.kind}: {finding.file}: {finding.text}"


def describe(found: RecoveredGroup) -> str:
    state = found.state
    facts = [f"view {state.view}"]
    if commit_op := group_of(found).commit:
        facts.append(f"op {commit_op} in the checkpoint")
    whole = [entry.header.op for entry in found.entries if entry.body is not None]
    if whole:
        facts.append(f"ops {whole[0]} to {whole[-1]}, {len(whole)} in all")
    for entry in found.entries:
        if entry.body is None:
            how = "never held" if entry.is_never_held else "without its body"
            facts.append(f"op {entry.header.op} {how}")
    facts += ["suspect"] * state.is_suspect + ["its view may be lost"] * state.is_view_lost
    return f"{NAMES[state.group]}: {', '.join(facts)}"
