"""What must hold, whatever the seed does; a broken rule raises `SimViolationError`.

R1  one history per group: an op has one identity, over all nodes and all time, and names its parent
R2  equal ops give equal state
R4, R5  promises (see `sim.promises`)
R6  a reply tells what was applied at that op
H1  nothing acknowledged is lost        H2  nothing is applied that nobody asked for
H3  an offset names one request         H4  a request is applied once
H5  offsets rise by one                 H6  acknowledged before sent means a lower offset
CK1 stamps rise with the ops of a group, whatever the clocks do
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from headrace.ports.machine import StateMachine
from headrace.sim.promises import Promises, PromisingReplica
from headrace.sim.violation import SimViolationError
from headrace.wire.evictions import EvictionReason
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import REPLY, RESULT_OK
from headrace.wire.requests import REQUEST


class _Applied(NamedTuple):
    checksum: int
    client: int
    request: int
    reply: bytes
    state_hash: int


class _GroupHistory:
    """What all nodes together have shown of one group."""

    def __init__(self) -> None:
        self.identities: dict[int, int] = {}  # by op
        self.applied: dict[int, _Applied] = {}  # by op
        self.order: list[int] = []  # ops that reached the machine, rising
        self.ops_by_request: dict[tuple[int, int], int] = {}
        self.invoked: dict[tuple[int, int], tuple[bytes, int]] = {}  # body, offset floor
        self.answered: dict[tuple[int, int], int] = {}  # offset
        self.next_offset = 0
        self.stamp = 0  # of the last op in order
        self.floor = -1  # highest acknowledged offset

    def state_hash_at(self, op: int) -> int:
        """Return the state's hash after that op; ops that reach no machine change nothing."""
        index = bisect_right(self.order, op)
        return self.applied[self.order[index - 1]].state_hash if index else 0


class Checkers:
    """Told everything that happens; raises at the first thing that may not."""

    def __init__(self) -> None:
        self._groups: dict[int, _GroupHistory] = {}
        self.promises: Promises[int] = Promises(lambda group, _: group)
        self._position: dict[tuple[int, int], int | None] = {}  # index of the last applied op
        self._reused: dict[tuple[int, int, int], None] = {}  # client, number, checksum
        self._leaving: dict[int, None] = {}  # client ids whose logout was asked for

    @property
    def applied_count(self) -> int:
        """How many ops were committed, as far as any node has applied them."""
        return sum(len(history.applied) for history in self._groups.values())

    # Told by machines

    def made(self, node: int, group: int) -> None:
        """Take note of an empty machine."""
        self._position[node, group] = -1

    def installed(self, node: int, group: int) -> None:
        """Take note that a machine's state was replaced."""
        self._position[node, group] = None

    def applied(
        self, node: int, header: PrepareHeader, body: bytes, reply: bytes, state_hash: int
    ) -> None:
        """Check one application against all others of that op."""
        history = self._history(header.group)
        self._check_identity(history, node, header)
        known = history.applied.get(header.op)
        if known is None:
            self._check_first(history, node, header, body, reply)
            history.applied[header.op] = _Applied(
                header.checksum, header.client, header.request, reply, state_hash
            )
            history.order.append(header.op)
        elif known.state_hash != state_hash or known.reply != reply:
            raise SimViolationError(
                "R2", node=node, group=header.group, op=header.op, hash=state_hash, known=known
            )
        self._advance(history, node, header)

    def _check_identity(self, history: _GroupHistory, node: int, header: PrepareHeader) -> None:
        for op, checksum in ((header.op, header.checksum), (header.op - 1, header.parent)):
            if op == 0:
                continue
            known = history.identities.setdefault(op, checksum)
            if known != checksum:
                raise SimViolationError(
                    "R1",
                    node=node,
                    group=header.group,
                    op=op,
                    applied=header.op,
                    view=header.view,
                    checksum=checksum,
                    known=known,
                )

    def _check_first(
        self, history: _GroupHistory, node: int, header: PrepareHeader, body: bytes, reply: bytes
    ) -> None:
        facts = {"node": node, "group": header.group, "op": header.op, "client": header.client}
        if history.order and header.op < history.order[-1]:
            raise SimViolationError("R1", why="applied by none of those who went on", **facts)
        if header.timestamp <= history.stamp:
            raise SimViolationError("CK1", stamp=header.timestamp, before=history.stamp, **facts)
        history.stamp = header.timestamp
        if header.operation != Operation.CREATE_STREAM:
            return
        key = (header.client, header.request)
        invoked = history.invoked.get(key)
        if invoked is None or invoked[0] != body:
            raise SimViolationError("H2", request=header.request, invoked=invoked, **facts)
        if key in history.ops_by_request:
            first = history.ops_by_request[key]
            raise SimViolationError("H4", request=header.request, first=first, **facts)
        history.ops_by_request[key] = header.op
        if reply[:4] != RESULT_OK:
            return
        offset = int.from_bytes(reply[4:12], "little")
        if offset != history.next_offset:
            raise SimViolationError("H5", offset=offset, expected=history.next_offset, **facts)
        history.next_offset += 1

    def _advance(self, history: _GroupHistory, node: int, header: PrepareHeader) -> None:
        """Check that the node applied what comes next, and nothing else."""
        place = (node, header.group)
        position = self._position.get(place)
        index = bisect_right(history.order, header.op) - 1
        if position is not None and index != position + 1:
            raise SimViolationError(
                "R1",
                why="applied out of order",
                node=node,
                group=header.group,
                op=header.op,
                last=history.order[position] if position >= 0 else 0,
            )
        self._position[place] = index

    # Told by nodes

    def booted(self, node: int, replicas: Iterable[tuple[int, PromisingReplica]]) -> None:
        """Check what a node knows at the start of a life."""
        self.promises.booted(node)
        for group, replica in replicas:
            self.promises.observe(node, group, replica)

    def observe(
        self,
        node: int,
        replicas: Iterable[tuple[int, PromisingReplica]],
        machines: dict[int, StateMachine],
    ) -> None:
        """Look at a running node: view and commit never go back, state belongs to its op."""
        for group, replica in replicas:
            self.promises.observe(node, group, replica)
            if self._position.get((node, group), -1) is None:
                self._check_state((node, group), replica, machines[group])

    def _check_state(
        self, place: tuple[int, int], replica: PromisingReplica, machine: StateMachine
    ) -> None:
        history = self._history(place[1])
        if machine.state_hash() != history.state_hash_at(replica.commit_min):
            raise SimViolationError(
                "R2", why="installed", node=place[0], group=place[1], op=replica.commit_min
            )
        self._position[place] = bisect_right(history.order, replica.commit_min) - 1

    # Told by clients

    def invoked(self, group: int, client: int, request: int, body: bytes) -> None:
        """Take note of a request that begins."""
        history = self._history(group)
        history.invoked[client, request] = (body, history.floor)

    def reused(self, client: int, request: int, checksum: int) -> None:
        """Take note of a number that was answered and now goes out with another content."""
        self._reused[client, request, checksum] = None

    def leaving(self, client: int) -> None:
        """Take note that a client id asks to be forgotten."""
        self._leaving[client] = None

    def evicted(self, client: int, reason: EvictionReason | None) -> None:
        """Check an eviction: a session that was not given up is never unknown (R6, O4.1)."""
        if reason == EvictionReason.NO_SESSION and client not in self._leaving:
            raise SimViolationError("R6", why="a session was forgotten", client=client)

    def took(self, frames: Iterable[bytes], replies: Iterable[tuple[int, bytes]]) -> None:
        """Check what a node granted at once to requests: none under another's number (VS-26)."""
        if not self._reused:
            return
        granted: dict[tuple[int, int], int] = {}
        for client, frame in replies:
            if frame[KIND_OFFSET] == FrameKind.REPLY and (reply := REPLY.decode(frame)).status == 0:
                key = (client, reply.request)
                granted[key] = granted.get(key, 0) + 1
        wrong = []
        for frame in frames:
            header = REQUEST.decode(frame)
            key = (header.client, header.request)
            if (*key, header.request_checksum) in self._reused:
                wrong.append(key)
            else:
                granted[key] = granted.get(key, 0) - 1
        for key in wrong:
            if granted.get(key, 0) > 0:
                raise SimViolationError(
                    "R6", why="answered for another request", client=key[0], request=key[1]
                )

    def answered(self, group: int, client: int, request: int, op: int, body: bytes) -> None:
        """Check the answer of an append against what was applied."""
        history = self._history(group)
        facts = {"group": group, "client": client, "request": request, "op": op}
        applied = history.applied.get(op)
        if applied is None:
            raise SimViolationError("R6", why="answered what was never applied", **facts)
        if (applied.client, applied.request, applied.reply) != (client, request, body):
            raise SimViolationError("R6", body=body, applied=applied, **facts)
        if body[:4] != RESULT_OK:
            return
        offset = int.from_bytes(body[4:12], "little")
        floor = history.invoked[client, request][1]
        if offset <= floor:
            raise SimViolationError("H6", offset=offset, acknowledged_before=floor, **facts)
        if history.answered.setdefault((client, request), offset) != offset:
            raise SimViolationError("H3", offset=offset, **facts)
        history.floor = max(history.floor, offset)

    # At the end

    def applied_up_to(self, group: int) -> int:
        """Return the highest op that any node ever applied: less is a loss (H1)."""
        order = self._history(group).order
        return order[-1] if order else 0

    def _history(self, group: int) -> _GroupHistory:
        history = self._groups.get(group)
        if history is None:
            history = self._groups[group] = _GroupHistory()
        return history
