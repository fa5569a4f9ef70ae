"""Whole shards side by side on disks that a scenario can cut, tear and damage."""

from collections.abc import Iterable, Sequence

from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.ports.disk import (
    DiskEvent,
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
from headrace.storage.config import StoreConfig
from headrace.storage.store import Opened, Refused, format_store, open_store
from headrace.vsr.sessions import ClientTable
from headrace.vsr.timeouts import Timeouts
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replies import REPLY, read_answer
from headrace.wire.requests import REQUEST, RequestHeader
from tests.memory_disk import MemoryDisk

CLIENT = 7
GROUPS = {"m": METADATA_GROUP, "p": 1, "q": 2}


class Slowly:
    """What lies outside of checkpoints, and is durable only when the test says so."""

    is_without_space = False

    def flush(self, groups: Sequence[int]) -> bool:
        return False

    def lacking(self) -> Iterable[int]:
        return ()


class Node:
    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self.starts = 0
        self.boot_identity = 1  # of its machine; another one after a power cut
        self.shard: Plane | None = None
        self.disk = MemoryDisk(format_store(self.store_config(), 0))

    def store_config(self) -> StoreConfig:
        return StoreConfig(
            cluster=1,
            replica=self.number,
            replica_count=self.count,
            journal_bytes_max=4 * 16_384,
            journal_files=4,
            record_bytes_max=8_192,
            boot_identity=self.boot_identity,
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
        files = node.disk.image()
        node.disk = MemoryDisk(files)
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
        synced = node.disk.sync()
        if synced is not None:
            self.step(node, synced)

    def _carry_out(self, node: Node, effect: Effect) -> DiskEvent | None:
        if isinstance(effect, SendFrame):
            self.flying.append((node.number, effect))
            return None
        if isinstance(effect, SendReply):
            self.replies.append(effect)
            return None
        return node.disk.carry_out(effect)

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
