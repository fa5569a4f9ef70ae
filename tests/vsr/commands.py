"""The commands of scenarios of one replica group."""

from headrace.base.checksum import xxh3_64
from headrace.ports.machine import Artifact, StateMachine
from headrace.ports.network import SendFrame, SendReply
from headrace.sim.machine import RECORD, RECORDS, encode_append
from headrace.vsr.timeouts import Timer
from headrace.wire.errors import RefusedError, RemoteError
from headrace.wire.evictions import EvictedError
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.prepares import PREPARE
from headrace.wire.replies import REPLY, read_answer
from tests.vsr.cluster import Cluster


class Commands:
    """Understands the commands of a scenario file.

    cluster N [PIPELINE]          start N replicas; they order so many ops at a time
    register NODE CLIENT          log a client in
    request NODE CLIENT N VALUE   send request number N, which appends VALUE
    deliver [KIND] [A->B]         deliver frames: all that come, or those that fly and match
    drop [KIND] [A->B]            lose the frames that fly and match
    silent NODE                   the node notices that its primary is silent
    fire NODE TIMER [TIMES]       a timer runs out
    beat                          every primary tells how far it has committed
    crash NODE, wipe NODE
    restart NODE [DAMAGE OP]      damage is vanished, cut, torn, rotten, missing; see Cluster
    delay [KIND] [A->B]           frames that fly and match take long; `late` has them fly again
    spoil [KIND] [A->B]           the last byte of the frames that fly and match is changed
    hold NODE, release NODE       its disk takes no write, then what has come since
    checkpoint NODE               take a checkpoint; the journal no longer holds what it covers
    values                        show what every replica has applied
    flying                        show the frames under way
    show                          show every replica
    wall NODE TIME                set the wall clock of a node
    stamps                        show the stamps of the prepares under way
    checked NODE CLIENT N VALUE   send a request that carries the checksum of its body
    damage [KIND] [A->B] BYTE     deliver what matches with that byte changed; -1 is the last
    """

    def __init__(self) -> None:
        self.cluster = Cluster(1)
        self.sessions: dict[int, int] = {}
        self.down: dict[int, None] = {}
        self.late: list[tuple[int, SendFrame]] = []

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        printed: list[str] = getattr(self, f"do_{verb}")(*words) or []
        return printed + self.take_replies()

    def do_cluster(self, count: str, pipeline: str = "32") -> None:
        self.cluster = Cluster(int(count), pipeline_max=int(pipeline))

    def do_register(self, node: str, client: str) -> None:
        self.cluster.request(int(node), number_of(client), 0, 0, b"")

    def do_request(self, node: str, client: str, number: str, value: str) -> None:
        body = encode_append(client.encode(), value.encode())
        session = self.sessions[number_of(client)]
        self.cluster.request(int(node), number_of(client), int(number), session, body)

    def do_deliver(self, *words: str) -> list[str]:
        printed: list[str] = []
        if not words:
            while self.matching():
                printed += self.deliver(self.matching()[0])
            return printed
        for position in reversed(self.matching(*words)):
            self.cluster.flying.append(self.cluster.flying.pop(position))
        count = len(self.matching(*words))
        start = len(self.cluster.flying) - count
        for _ in range(count):
            printed += self.deliver(start)
        return [*printed, f"{count} delivered"]

    def deliver(self, position: int) -> list[str]:
        try:
            self.cluster.deliver(position)
        except RemoteError as error:
            return [f"refused: {error}"]
        return []

    def do_drop(self, *words: str) -> list[str]:
        positions = self.matching(*words)
        for position in reversed(positions):
            self.cluster.flying.pop(position)
        return [f"{len(positions)} lost"]

    def do_silent(self, node: str) -> None:
        self.cluster.silent(int(node))

    def do_fire(self, node: str, timer: str, times: str = "1") -> None:
        for _ in range(int(times)):
            self.cluster.fire(int(node), Timer[timer.upper()])

    def do_beat(self) -> None:
        self.cluster.beat()

    def do_crash(self, node: str) -> None:
        self.down[int(node)] = None
        self.do_drop_link(int(node))

    def do_drop_link(self, node: int) -> None:
        self.cluster.flying = [
            (sender, sent)
            for sender, sent in self.cluster.flying
            if node not in (sender, sent.replica)
        ]

    def do_restart(self, node: str, damage: str = "", op: str = "0") -> None:
        self.down.pop(int(node), None)
        self.cluster.restart(int(node), damage=damage, op=int(op))

    def do_wipe(self, node: str) -> None:
        self.down.pop(int(node), None)
        self.cluster.wipe(int(node))

    def do_delay(self, *words: str) -> list[str]:
        positions = self.matching(*words)
        self.late += [self.cluster.flying[position] for position in positions]
        self.do_drop(*words)
        return [f"{len(positions)} delayed"]

    def do_late(self) -> None:
        self.cluster.flying += self.late
        self.late.clear()

    def do_spoil(self, *words: str) -> list[str]:
        positions = self.matching(*words)
        for position in positions:
            sender, sent = self.cluster.flying[position]
            spoilt = SendFrame(sent.replica, sent.frame[:-1] + bytes([sent.frame[-1] ^ 1]))
            self.cluster.flying[position] = (sender, spoilt)
        return [f"{len(positions)} spoilt"]

    def do_hold(self, node: str) -> None:
        self.cluster.nodes[int(node)].is_holding = True

    def do_release(self, node: str) -> None:
        self.cluster.nodes[int(node)].release()
        self.cluster.collect()

    def do_checkpoint(self, node: str) -> None:
        self.cluster.nodes[int(node)].save()

    def do_values(self) -> list[str]:
        return [
            f"{node.number} {' '.join(values_of(node.replica.machine)) or 'nothing'}"
            for node in self.cluster.nodes
            if node.number not in self.down
        ]

    def do_flying(self) -> list[str]:
        return [describe(sender, sent.replica, sent.frame) for sender, sent in self.cluster.flying]

    def do_show(self) -> list[str]:
        lines = []
        for node in self.cluster.nodes:
            replica = node.replica
            if node.number in self.down:
                lines.append(f"{node.number} down")
                continue
            text = (
                f"{node.number} {replica.status.name.lower()} view {replica.view}"
                f" log {replica.log_view} head {replica.op} commit {replica.commit_min}"
            )
            lines.append(text + (" primary" if replica.is_primary else ""))
        return lines

    def matching(self, *words: str) -> list[int]:
        kinds = [word.upper().replace("-", "_") for word in words if "->" not in word]
        links = [tuple(map(int, word.split("->"))) for word in words if "->" in word]
        return [
            position
            for position, (sender, sent) in enumerate(self.cluster.flying)
            if (not kinds or FrameKind(sent.frame[KIND_OFFSET]).name in kinds)
            and (not links or (sender, sent.replica) in links)
            and sent.replica not in self.down
            and sender not in self.down
        ]

    def take_replies(self) -> list[str]:
        lines = []
        for node in self.cluster.nodes:
            lines += [f"{name_of(reply.client)}: {self.read(reply)}" for reply in node.replies]
            node.replies.clear()
        return lines

    def read(self, reply: SendReply) -> str:
        try:
            payload = bytes(read_answer(reply.frame))
        except EvictedError as evicted:
            return f"evicted, {evicted.reason.name if evicted.reason else 'unknown'}"
        except RefusedError as refused:
            return f"refused, {refused.code.name}"
        header = REPLY.decode(reply.frame)
        number = int.from_bytes(payload, "little")
        if header.operation == Operation.REGISTER:
            self.sessions[reply.client] = number
            return f"session {number}"
        return f"request {header.request} is op {header.op}, offset {number}"

    # Clocks, checksums and damaged frames.

    def do_wall(self, node: str, time: str) -> None:
        self.cluster.nodes[int(node)].shared.wall = int(time)

    def do_stamps(self) -> list[str]:
        lines = []
        for position in self.matching("prepare"):
            sender, sent = self.cluster.flying[position]
            header = PREPARE.decode(sent.frame)
            lines.append(f"{sender}->{sent.replica} op {header.op}: stamp {header.timestamp}")
        return lines

    def do_checked(self, node: str, client: str, number: str, value: str) -> None:
        body = encode_append(client.encode(), value.encode())
        session = self.sessions[number_of(client)]
        self.cluster.request(
            int(node), number_of(client), int(number), session, body, checksum=xxh3_64(body)
        )

    def do_damage(self, *words: str) -> list[str]:
        *wanted, place = words
        lines = []
        for position in reversed(self.matching(*wanted)):
            sender, sent = self.cluster.flying[position]
            frame = bytearray(sent.frame)
            frame[int(place)] ^= 1
            self.cluster.flying[position] = (sender, SendFrame(sent.replica, bytes(frame)))
            try:
                self.cluster.deliver(position)
            except RemoteError as error:
                lines.append(f"{sent.replica} refuses: {error}")
            else:
                lines.append(f"{sent.replica} takes it")
        return lines


def number_of(client: str) -> int:
    return ord(client) - ord("a") + 1


def name_of(client: int) -> str:
    return chr(ord("a") + client - 1)


def values_of(machine: StateMachine) -> list[str]:
    """Return the values that a machine holds, in the order of their offsets."""
    values = []
    for piece in machine.export():
        assert isinstance(piece, Artifact)
        data = piece.data if piece.kind == RECORDS else b""
        while data:
            _, key_bytes, value_bytes = RECORD.unpack_from(data)
            values.append(data[RECORD.size + key_bytes :][:value_bytes].decode())
            data = data[RECORD.size + key_bytes + value_bytes :]
    return values


def describe(sender: int, target: int, frame: bytes) -> str:
    kind, header = decode_replica(frame)
    facts = [
        f"{name} {getattr(header, name)}"
        for name in ("op", "commit", "log_view", "from_op", "to_op")
        if hasattr(header, name)
    ]
    told = ", ".join([f"view {header.view}", *facts])
    return f"{sender}->{target} {kind.name.lower().replace('_', '-')}: {told}"
