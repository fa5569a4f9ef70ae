"""A tiny single node that stands in for the shard, to try the world without it.

It journals each request as a prepare, applies it when the journal is durable, and answers. It has
no checkpoint and no peers.
"""

from collections.abc import Mapping

from headrace.base.limits import HEADER_BYTES
from headrace.ports.disk import DiskEffect, DiskEvent, Synced, WriteJournal
from headrace.ports.machine import StateMachine
from headrace.ports.network import NetworkEffect, NetworkEvent, RequestsArrived, SendReply
from headrace.ports.probes import Probes
from headrace.sim.groups.system import Boot, PlaneRunning, TableFace
from headrace.sim.software import Refused, Wiped
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.layout import SIZE
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import body_checksum, is_sealed, seal
from headrace.wire.replies import RESULT_OK, encode_reply
from headrace.wire.requests import REQUEST, RequestHeader

JOURNAL_BYTES = 1 << 19


class StandInGroup:
    """One group of one replica."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self.view = self.log_view = 0
        self.op = self.whole_op = self.commit_min = self.commit_max = 0
        self.parent = 0
        self.sessions: dict[int, int] = {}
        self.replies: dict[tuple[int, int], bytes] = {}
        self.is_settled = self.is_serving = True
        self.is_voter = True
        self.is_wiped = False

    def table(self) -> bytes:
        return repr((self.sessions, self.replies)).encode()

    def apply(self, header: PrepareHeader, body: bytes) -> bytes:
        assert header.op == self.commit_min + 1
        self.commit_min = self.commit_max = header.op
        operation = Operation(header.operation)
        if operation == Operation.REGISTER:
            self.sessions[header.client] = header.op
            answer = RESULT_OK + header.op.to_bytes(8, "little")
        elif operation == Operation.LOGOUT:
            self.sessions.pop(header.client, None)
            answer = b""
        else:
            answer = self.machine.apply(header, body)
        request = RequestHeader(
            client=header.client, request=header.request, operation=header.operation
        )
        frame = encode_reply(request, answer, op=header.op)
        self.replies[header.client, header.request] = frame
        return frame


class StandIn:
    """The node's software."""

    def __init__(self, system: "StandInSystem", boot: Boot) -> None:
        self.may_vote = True
        self._probes = Probes()
        self._system = system
        self._groups = {group: StandInGroup(boot.machines(group)) for group in system.groups}
        self._position = 0
        self._sequence = 0
        self._waiting: list[tuple[int, PrepareHeader, bytes]] = []
        self._replay(boot.files["journal-0"])

    @property
    def probes(self) -> Mapping[str, int]:
        return self._probes.counts

    def components(self) -> tuple[object, ...]:
        return ()

    def faces(self) -> Mapping[int, TableFace]:
        return self._groups

    def start(self) -> list[DiskEffect | NetworkEffect]:
        return []

    def step(self, event: DiskEvent | NetworkEvent) -> list[DiskEffect | NetworkEffect]:
        effects: list[DiskEffect | NetworkEffect] = []
        if isinstance(event, RequestsArrived):
            for _, frame in event.frames:
                effects += self._request(bytes(frame))
        elif isinstance(event, Synced):
            while self._waiting and self._waiting[0][0] <= event.sequence:
                _, header, body = self._waiting.pop(0)
                effects.append(SendReply(header.client, self._apply(header, body)))
        return effects

    def _apply(self, header: PrepareHeader, body: bytes) -> bytes:
        return self._groups[header.group].apply(header, body)

    def _replay(self, journal: bytes) -> None:
        while True:
            size = int.from_bytes(journal[self._position :][SIZE], "little")
            data = journal[self._position : self._position + size]
            if size < HEADER_BYTES or not is_sealed(data):
                return
            header, body = PREPARE.decode(data), data[HEADER_BYTES:]
            group = self._groups[header.group]
            if body_checksum(Operation.CREATE_STREAM, body) != header.checksum_body:
                return
            group.op, group.parent = header.op, header.checksum
            self._apply(header, body)
            self._position += size

    def _request(self, frame: bytes) -> list[DiskEffect | NetworkEffect]:
        asked = REQUEST.decode(frame)
        group = self._groups[asked.group]
        known = group.replies.get((asked.client, asked.request))
        if asked.operation != Operation.REGISTER:
            if known is not None:
                self._probes.hit("session.duplicate_replayed")
                return [SendReply(asked.client, known)]
            held = group.sessions.get(asked.client)
            if held != asked.session:
                is_known = held is not None
                reason = EvictionReason.SESSION_TOO_LOW if is_known else EvictionReason.NO_SESSION
                return [SendReply(asked.client, encode_eviction(reason, asked.client))]
        if any(header.client == asked.client for _, header, _ in self._waiting):
            return []
        return self._prepare(group, asked, frame[HEADER_BYTES:])

    def _prepare(
        self, group: StandInGroup, asked: RequestHeader, body: bytes
    ) -> list[DiskEffect | NetworkEffect]:
        group.op += 1
        made = PrepareHeader(
            size=HEADER_BYTES + len(body),
            checksum_body=body_checksum(Operation.CREATE_STREAM, body),
            client=asked.client,
            parent=group.parent,
            op=group.op,
            commit=group.commit_min,
            timestamp=group.op,
            request=asked.request,
            operation=asked.operation,
            group=asked.group,
        )
        sealed = seal(PREPARE.encode(made))
        header = PREPARE.decode(sealed)
        group.parent = header.checksum
        self._sequence += 1
        data = sealed + body
        write = WriteJournal(self._sequence, 0, self._position, (data,), len(data), sync=True)
        self._position += len(write.data)
        if self._system.answers_early:
            return [write, SendReply(asked.client, self._apply(header, body))]
        self._waiting.append((self._sequence, header, body))
        return [write]


class StandInSystem:
    """Makes stand-ins; `answers_early` plants a bug: answered before the journal is durable."""

    def __init__(self, groups: tuple[int, ...], *, answers_early: bool = False) -> None:
        self.groups = groups
        self.answers_early = answers_early

    def format(self, node: int, incarnation: int) -> dict[str, bytes]:
        assert (node, incarnation) == (0, 0)
        return {"journal-0": bytes(JOURNAL_BYTES)}

    def open(self, boot: Boot) -> PlaneRunning | Wiped | Refused:
        return StandIn(self, boot) if boot.files else Wiped()

    def journal_name(self, file: int) -> str:
        return f"journal-{file}"
