"""Whole shards side by side on disks that a scenario can cut, tear and damage."""

from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.ports.disk import (
    AllocateJournal,
    BlockWritten,
    DiskEvent,
    FileReplaced,
    JournalAllocated,
    JournalRead,
    ReadJournal,
    RemoveFile,
    ReplaceFile,
    Synced,
    WriteBlock,
    WriteJournal,
    Written,
)
from headrace.ports.network import (
    FramesArrived,
    RequestsArrived,
    SendFrame,
    SendReply,
    Ticked,
)
from headrace.shard.config import GroupConfig, PlaneConfig
from headrace.shard.consensus.checkpoints import Outside
from headrace.shard.consensus.plane import Effect, Event, Plane
from headrace.sim.machine import AppendMachine, encode_append
from headrace.storage.config import StoreConfig, journal_name
from headrace.storage.store import Opened, Refused, format_store, open_store
from headrace.vsr.sessions import ClientTable
from headrace.vsr.timeouts import Timeouts
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replies import REPLY, read_answer
from headrace.wire.requests import REQUEST, RequestHeader

CLIENT = 7
GROUPS = {"m": METADATA_GROUP, "p": 1, "q": 2}


class Disk:
    """Files, and the writes to them that no sync has covered yet."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = {name: bytearray(data) for name, data in files.items()}
        self.unsynced: list[tuple[str, int, bytes]] = []  # with what lay there before
        self.last = ("", 0, b"")  # where the last record was written, and what lay there before
        self.is_holding = False  # syncs do not end
        self.written = 0

    def write(self, name: str, position: int, data: bytes) -> None:
        file = self.files.setdefault(name, bytearray())
        file.extend(bytes(max(0, position + len(data) - len(file))))
        self.last = (name, position, bytes(file[position : position + len(data)]))
        self.unsynced.append(self.last)
        file[position : position + len(data)] = data

    def cut(self, kept_of_last: int) -> None:
        """Lose what no sync covered, but for the first bytes of the last write."""
        for number, (name, position, before) in enumerate(reversed(self.unsynced)):
            kept = kept_of_last if number == 0 else 0
            self.files[name][position + kept : position + len(before)] = before[kept:]
        self.unsynced.clear()


class Node:
    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self.starts = 0
        self.shard: Plane | None = None
        self.disk = Disk(format_store(self.store_config(), 0))

    def store_config(self) -> StoreConfig:
        return StoreConfig(
            cluster=1,
            replica=self.number,
            replica_count=self.count,
            journal_bytes_max=4 * 16_384,
            journal_files=4,
            record_bytes_max=8_192,
            boot_identity=1,
        )


class Stage:
    """The cluster, and what flies between its nodes."""

    def __init__(self, count: int) -> None:
        self.nodes = [Node(number, count) for number in range(count)]
        self.flying: list[tuple[int, SendFrame]] = []
        self.replies: list[SendReply] = []
        self.muted: dict[int | None, None] = {}  # groups whose frames are lost; None: heartbeats
        self.lost_kinds: dict[FrameKind, None] = {}  # of frames that are lost
        self.now = 0
        for node in self.nodes:
            self.boot(node.number)

    def boot(
        self, number: int, *, outside: Outside | None = None, is_awake: bool = True
    ) -> list[str]:
        """Start a node from its disk, its groups at once or later; tell what recovery found."""
        node = self.nodes[number]
        files = {name: bytes(data) for name, data in node.disk.files.items()}
        node.disk = Disk(files)
        opened = open_store(node.store_config(), files)
        if isinstance(opened, Refused):
            return [f"refused: {opened.sentence}"]
        assert isinstance(opened, Opened)
        node.starts += 1
        config = PlaneConfig(
            cluster=1,
            replica=number,
            replica_count=node.count,
            timeouts=Timeouts(),
            seed=100 * number + node.starts,
        )
        node.shard = Plane(config, opened, outside=outside)
        if is_awake:
            self.wake(number)
        self.carry_out(node, node.shard.start())
        self.step(node, Ticked(self.now, self.now))
        return [f"{each.kind}: {each.file} at {each.position}" for each in opened.findings]

    def wake(self, number: int) -> None:
        """Have a node take up its groups."""
        plane = self.nodes[number].shard
        assert plane is not None
        for group in GROUPS.values():
            plane.add_group(GroupConfig(group), AppendMachine(), ClientTable())

    def step(self, node: Node, event: Event) -> None:
        if node.shard is not None:
            self.carry_out(node, node.shard.step(event))

    def carry_out(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            answer = self._carry_out(node, effect)
            if answer is not None:
                self.step(node, answer)
        if not node.disk.is_holding and node.disk.unsynced:
            node.disk.unsynced.clear()
            self.step(node, Synced(node.disk.written))

    def _carry_out(self, node: Node, effect: Effect) -> DiskEvent | None:
        disk = node.disk
        match effect:
            case SendFrame():
                self.flying.append((node.number, effect))
            case SendReply():
                self.replies.append(effect)
            case WriteJournal():
                disk.write(journal_name(effect.file), effect.position, effect.data)
                disk.written = effect.sequence
                return Written(effect.sequence) if effect.is_awaited else None
            case AllocateJournal():
                disk.files.setdefault(journal_name(effect.file), bytearray(effect.size))
                return JournalAllocated(effect.file, is_done=True)
            case ReadJournal():
                file = disk.files[journal_name(effect.file)]
                end = effect.position + effect.length
                return JournalRead(effect.token, bytes(file[effect.position : end]))
            case ReplaceFile():
                disk.files[effect.name] = bytearray(effect.data)
                return FileReplaced(effect.token, is_done=True)
            case WriteBlock():
                end = effect.position + len(effect.data)
                disk.files[effect.name][effect.position : end] = effect.data
                return BlockWritten(effect.token)
            case RemoveFile():
                disk.files.pop(effect.name, None)
        return None

    def deliver(self) -> None:
        """Deliver what flies, and what comes of it; frames to nodes that are down are lost."""
        while self.flying:
            sender, sent = self.flying.pop(0)
            kind, header = decode_replica(sent.frame)
            if getattr(header, "group", None) in self.muted or kind in self.lost_kinds:
                continue
            self.step(self.nodes[sent.replica], FramesArrived(((sender, sent.frame),)))

    def tick(self, count: int) -> None:
        """Let time pass for all; frames arrive between any two ticks."""
        for _ in range(count):
            self.now += 1
            for node in self.nodes:
                self.step(node, Ticked(self.now, self.now * 10_000))
            self.deliver()

    def request(self, number: int, group: str, request: int, session: int, value: bytes) -> None:
        body = encode_append(b"key", value) if session else b""
        header = RequestHeader(
            size=HEADER_BYTES + len(body),
            client=CLIENT,
            session=session,
            request=request,
            operation=Operation.CREATE_STREAM if session else Operation.REGISTER,
            group=GROUPS[group],
        )
        self.step(self.nodes[number], RequestsArrived(((0, REQUEST.encode(header) + body),)))

    def take_answers(self) -> list[tuple[str, int]]:
        """Give what was answered: in words, and for a login the session."""
        answers = []
        for reply in self.replies:
            try:
                payload = int.from_bytes(read_answer(reply.frame), "little")
            except (RefusedError, EvictedError) as refused:
                answers.append((f"refused, {refused.code.name}", 0))
                continue
            header = REPLY.decode(reply.frame)
            if header.operation == Operation.REGISTER:
                answers.append((f"session {payload}", payload))
            else:
                answers.append((f"op {header.op}, offset {payload}", 0))
        self.replies.clear()
        return answers
