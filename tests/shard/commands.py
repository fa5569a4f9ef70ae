"""The commands of scenarios of shards with groups that append, and of their disks."""

from headrace.storage.config import journal_name
from headrace.wire.numbers import FrameKind
from tests.memory_disk import MemoryDisk
from tests.shard.stage import GROUPS, Stage

FRAMES: dict[str, int | None] = {**GROUPS, "beats": None}  # heartbeats are of no group


class Commands:
    """Understands the commands of a scenario file.

    cluster N                   start N nodes, each with groups m, p and q
    append NODE GROUP COUNT     send appends, one after another
    ask NODE GROUP              send one append and do not wait
    again NODE GROUP            send the last append once more
    mute GROUP, unmute GROUP    lose every frame of a group, then no longer; `beats` are heartbeats
    lose_kind KIND              from now on lose every frame of a kind; `lose_no_kind` ends it
    pass TICKS                  let time pass; frames arrive
    hold NODE, release NODE     syncs of its disk do not end, then do
    kill NODE                   end the process; the page cache lives
    cut NODE [KEPT]             power cut; of the last unsynced write the first KEPT bytes stay
    rot NODE BYTES              damage the journal that many bytes before its end
    lose NODE                   lose the last record of the journal, as if it was never written
    boot NODE                   start it again, and tell what recovery found
    show [GROUP]                show every replica of a group
    reached NODE MARK           show how often its code passed a mark
    journal NODE                show what its journal did
    """

    def __init__(self) -> None:
        self.stage = Stage(1)
        self.sessions: dict[str, int] = {}
        self.numbers: dict[str, int] = {}

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        printed: list[str] = getattr(self, f"do_{verb}")(*words) or []
        return printed

    def do_cluster(self, count: str) -> None:
        self.stage = Stage(int(count))
        self.sessions.clear()
        self.numbers.clear()
        self.stage.tick(1)

    def do_mute(self, group: str) -> None:
        self.stage.muted[FRAMES[group]] = None

    def do_unmute(self, group: str) -> None:
        del self.stage.muted[FRAMES[group]]

    def do_lose_kind(self, kind: str) -> None:
        self.stage.lost_kinds[FrameKind[kind.upper().replace("-", "_")]] = None

    def do_lose_no_kind(self) -> None:
        self.stage.lost_kinds.clear()

    def do_append(self, node: str, group: str, count: str) -> list[str]:
        last = ""
        for _ in range(int(count)):
            self.send(int(node), group)
            self.stage.deliver()
            answers = self.stage.take_answers()
            last = answers[-1][0] if answers else "no answer"
        return [last]

    def do_ask(self, node: str, group: str) -> list[str]:
        self.send(int(node), group)
        return [text for text, _ in self.stage.take_answers()]

    def do_again(self, node: str, group: str) -> list[str]:
        self.numbers[group] -= 1
        return self.do_append(node, group, "1")

    def send(self, node: int, group: str) -> None:
        if group not in self.sessions:
            self.stage.request(node, group, 0, 0, b"")
            self.stage.deliver()
            self.sessions[group] = self.stage.take_answers()[-1][1]
        self.numbers[group] = self.numbers.get(group, 0) + 1
        value = b"value %d" % self.numbers[group]
        self.stage.request(node, group, self.numbers[group], self.sessions[group], value)

    def do_pass(self, ticks: str) -> list[str]:
        self.stage.tick(int(ticks))
        return [text for text, _ in self.stage.take_answers()]

    def do_hold(self, node: str) -> None:
        self.stage.nodes[int(node)].disk.is_syncing = False

    def do_release(self, node: str) -> list[str]:
        held = self.stage.nodes[int(node)]
        held.disk.is_syncing = True
        self.stage.carry_out(held, [])
        self.stage.deliver()
        return [text for text, _ in self.stage.take_answers()]

    def do_kill(self, node: str) -> None:
        self.stage.nodes[int(node)].shard = None

    def do_cut(self, node: str, kept: str = "0") -> None:
        self.do_kill(node)
        cut = self.stage.nodes[int(node)]
        cut.disk = MemoryDisk(cut.disk.cut(int(kept)))

    def do_rot(self, node: str, distance: str) -> None:
        disk = self.stage.nodes[int(node)].disk
        name = max(
            (journal_name(number) for number in range(4)),
            key=lambda each: len(bytes(disk.cached.get(each, b"")).rstrip(b"\0")),
        )
        at = len(bytes(disk.cached[name]).rstrip(b"\0")) - int(distance)
        disk.damage(name, at, bytes((disk.cached[name][at] ^ 0xFF,)))

    def do_lose(self, node: str) -> list[str]:
        disk = self.stage.nodes[int(node)].disk
        name, position, record = disk.last
        disk.damage(name, position, record)
        return [f"lost: {name} at {position}"]

    def do_boot(self, node: str) -> list[str]:
        return self.stage.boot(int(node))

    def do_show(self, group: str = "m") -> list[str]:
        lines = []
        for node in self.stage.nodes:
            if node.shard is None:
                lines.append(f"{node.number} down")
                continue
            replica = node.shard.groups[GROUPS[group]]
            told = [
                word
                for word, is_so in (
                    ("primary", replica.is_primary),
                    ("suspect", replica.is_suspect),
                    ("wiped", replica.is_wiped),
                )
                if is_so
            ]
            text = f"{node.number} {replica.status.name.lower()} view {replica.view}"
            place = f"head {replica.op} commit {replica.commit_min}"
            lines.append(" ".join([text, place, *told]))
        return lines

    def do_reached(self, node: str, mark: str) -> list[str]:
        shard = self.stage.nodes[int(node)].shard
        assert shard is not None
        return [f"{mark}: {shard.probes.counts.get(mark, 0)}"]

    def do_journal(self, node: str) -> list[str]:
        shard = self.stage.nodes[int(node)].shard
        assert shard is not None
        names = sorted(self.stage.nodes[int(node)].disk.cached)
        return [
            f"has room: {shard.store.has_room(100)}",
            f"checkpoints: {[name for name in names if name.startswith('checkpoint')]}",
        ]
