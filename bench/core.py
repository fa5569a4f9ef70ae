"""What the core costs without a disk and without a network.

First, microseconds for each op of a group with one replica, from the request's event to the reply's
effect, on a disk that answers at once. A second pass with a clock around some calls says what part
of it the journal and the state machine take; the total is from a pass without those clocks. Times
are of the processor, not of the wall, so that a neighbour counts for little; medians of rounds.

Then, 10,000 idle groups: what share of a core their ticks take. The shard is one node of three and
leads all groups; the other two nodes acknowledge one op of every group and then only send their
heartbeats.

    python bench/core.py [--shortest] [--profile]
"""

import argparse
import cProfile
import os
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES, MIB
from headrace.ports.disk import (
    AllocateJournal,
    BlockWritten,
    DiskEvent,
    FileReplaced,
    JournalAllocated,
    ReplaceFile,
    Synced,
    WriteBlock,
    WriteJournal,
    Written,
)
from headrace.ports.network import FramesArrived, RequestsArrived, SendFrame, SendReply, Ticked
from headrace.shard.config import GroupConfig, PlaneConfig
from headrace.shard.consensus.peers import Peer
from headrace.shard.consensus.plane import Effect, Event, Plane
from headrace.sim.machine import AppendMachine, encode_append
from headrace.storage.store import Opened, StoreConfig, format_store, open_store
from headrace.vsr.sessions import ClientTable
from headrace.vsr.timeouts import Timeouts
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import NodeHeartbeatHeader
from headrace.wire.replica.prepares import PREPARE_OK, PrepareHeader, PrepareOkHeader
from headrace.wire.replica.seals import seal
from headrace.wire.replies import REPLY
from headrace.wire.requests import REQUEST, RequestHeader

CLUSTER = 7
TURN_SIZES = (1, 64)
VALUE_BYTES = 384
PIECE_BYTES = 64 << 10
TICKS_PER_SECOND = 100
PEER_LIFE = 1
WALL = 1_700_000_000_000_000
PROFILE_LINES = 12
STORE_CALLS = ("has_room", "stage_prepare", "flush", "step")
MACHINE_CALLS = ("apply",)


class Pace(NamedTuple):
    """How much is measured: all for figures, or as little as shows that the benchmark runs."""

    ops: int  # of one round
    rounds: int
    idle_groups: int
    idle_ticks: int


FULL = Pace(6_400, 7, 10_000, 1_000)
SHORTEST = Pace(640, 1, 100, 100)


class Node:
    """A shard, and a disk that answers at once; `clocks` are put in front of calls of its parts."""

    def __init__(
        self, *, replica_count: int, groups: int, clocks: "dict[str, Clock] | None" = None
    ) -> None:
        config = StoreConfig(
            cluster=CLUSTER,
            replica=0,
            replica_count=replica_count,
            journal_bytes_max=256 * MIB,
            journal_files=8,
            record_bytes_max=8 * MIB,
            boot_identity=1,
        )
        opened = open_store(config, format_store(config, 0))
        assert isinstance(opened, Opened)
        if clocks is not None:
            # Before the shard is made: it hands methods of its store on to others.
            put_clocks(clocks, "Store", opened.store, STORE_CALLS)
        self.shard = Plane(
            PlaneConfig(
                cluster=CLUSTER,
                replica=0,
                replica_count=replica_count,
                timeouts=Timeouts(),
                seed=1,
                pipeline_max=max(TURN_SIZES),
            ),
            opened,
        )
        for group in range(1, groups + 1):
            machine = AppendMachine(PIECE_BYTES)
            if clocks is not None:
                put_clocks(clocks, "machine", machine, MACHINE_CALLS)
            self.shard.add_group(GroupConfig(group), machine, ClientTable())
        self.settle(self.shard.start())
        self.step(Ticked(1, WALL))

    def step(self, event: Event) -> list[Effect]:
        """Take an event, and all that follows on the disk; give what leaves the node."""
        return self.settle(self.shard.step(event))

    def settle(self, effects: list[Effect]) -> list[Effect]:
        """Let the disk answer until it has nothing to do."""
        sent: list[Effect] = []
        while effects:
            following: list[Effect] = []
            for effect in effects:
                if type(effect) is SendReply or type(effect) is SendFrame:
                    sent.append(effect)
                else:
                    for event in answers_of(effect):
                        following += self.shard.step(event)
            effects = following
        return sent


def answers_of(effect: Effect) -> Iterable[DiskEvent]:
    """Give what the disk says when it is done."""
    if type(effect) is WriteJournal:
        synced = Synced(effect.sequence)
        return (Written(effect.sequence), synced) if effect.is_awaited else (synced,)
    if type(effect) is WriteBlock:
        return (BlockWritten(effect.token),)
    if type(effect) is AllocateJournal:
        return (JournalAllocated(effect.file, is_done=True),)
    if type(effect) is ReplaceFile:
        return (FileReplaced(effect.token, is_done=True),)
    return ()


def request_of(
    operation: Operation, body: bytes, *, client: int, session: int, number: int, group: int
) -> bytes:
    """Give a client's frame, stamped as a server does."""
    header = RequestHeader(
        cluster=CLUSTER,
        size=HEADER_BYTES + len(body),
        client=client,
        request_checksum=xxh3_64(body),
        request=number,
        operation=operation,
        session=session,
        user_id=1,
        group=group,
    )
    return REQUEST.encode(header) + body


class Clients:
    """Clients of one group, each with one request in flight."""

    def __init__(self, node: Node, count: int) -> None:
        self._sessions: dict[int, int] = {}
        self._number = 0
        for client in range(1, count + 1):
            frame = request_of(
                Operation.REGISTER, b"bench", client=client, session=0, number=0, group=1
            )
            (reply,) = node.step(RequestsArrived(((0, frame),)))
            assert isinstance(reply, SendReply)
            self._sessions[client] = REPLY.decode(reply.frame).op

    def make_turns(self, count: int) -> list[RequestsArrived]:
        """Give turns in each of which every client asks once."""
        return [self._make_turn() for _ in range(count)]

    def _make_turn(self) -> RequestsArrived:
        self._number += 1
        frames = []
        for client, session in self._sessions.items():
            body = encode_append(b"key-%d" % (client % 8), b"v" * VALUE_BYTES)
            frames.append(
                request_of(
                    Operation.CREATE_STREAM,
                    body,
                    client=client,
                    session=session,
                    number=self._number,
                    group=1,
                )
            )
        return RequestsArrived(tuple((0, frame) for frame in frames))


class Clock:
    """Sums up the time that calls of one function take, without what the clock itself takes."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._seconds = 0.0
        self._calls = 0

    def __call__(self, *arguments: object, **named: object) -> object:
        """Call the function."""
        began = time.process_time()
        result = self._call(*arguments, **named)
        self._seconds += time.process_time() - began
        self._calls += 1
        return result

    def take(self, nothing: float = 0.0) -> float:
        """Give the sum, once, where a call of nothing takes so long."""
        seconds = self._seconds - self._calls * nothing
        self._seconds, self._calls = 0.0, 0
        return seconds


def put_clocks(
    clocks: dict[str, Clock], owner_name: str, owner: object, calls: Iterable[str]
) -> None:
    """Put a clock in front of each of these methods, of this one object alone."""
    for call in calls:
        clock = Clock(getattr(owner, call))
        clocks[f"{owner_name}.{call}"] = vars(owner)[call] = clock


def seconds_of_nothing(calls: int) -> float:
    """Return what a clock shows for a call that does nothing, as the mean of some."""
    clock = Clock(lambda *_, **__: None)
    for _ in range(calls):
        clock()
    return clock.take() / calls


def run_ops(node: Node, turns: list[RequestsArrived]) -> float:
    """Give the seconds from the first request to the last reply."""
    replies = 0
    began = time.process_time()
    for turn in turns:
        replies += len(node.step(turn))
    seconds = time.process_time() - began
    assert replies == sum(len(turn.frames) for turn in turns)
    return seconds


def measure_ops(turn_size: int, pace: Pace) -> tuple[float, dict[str, float]]:
    """Give the seconds of one op, and of what it is made."""
    node = Node(replica_count=1, groups=1)
    clients = Clients(node, turn_size)
    totals = [
        run_ops(node, clients.make_turns(pace.ops // turn_size)) / pace.ops
        for _ in range(pace.rounds)
    ]
    return statistics.median(totals), measure_parts(turn_size, pace)


def measure_parts(turn_size: int, pace: Pace) -> dict[str, float]:
    """Give the seconds that some calls take of one op, in rounds of their own."""
    clocks: dict[str, Clock] = {}
    node = Node(replica_count=1, groups=1, clocks=clocks)
    clients = Clients(node, turn_size)
    for clock in clocks.values():
        clock.take()  # what the start took
    samples: dict[str, list[float]] = {name: [] for name in clocks}
    for _ in range(pace.rounds):
        nothing = seconds_of_nothing(pace.ops)
        run_ops(node, clients.make_turns(pace.ops // turn_size))
        for name, clock in clocks.items():
            samples[name].append(clock.take(nothing) / pace.ops)
    return {name: statistics.median(times) for name, times in samples.items()}


class FakePeer:
    """Another node: acknowledges every prepare, sends heartbeats, and nothing else."""

    def __init__(self, replica: int) -> None:
        self.replica = replica
        self._peer = Peer(0, 0, replica << 32)  # what it keeps of the measured node
        self._counter = 0

    def answer(self, frame: bytes) -> bytes | None:
        """Take a frame; give the answer to it."""
        kind, header = decode_replica(frame)
        if isinstance(header, NodeHeartbeatHeader):
            self._peer.hear(header, 0)
        if kind != FrameKind.PREPARE:
            return None
        assert isinstance(header, PrepareHeader)
        ok = PrepareOkHeader(
            cluster=CLUSTER,
            view=header.view,
            replica=self.replica,
            life=PEER_LIFE,
            parent=header.parent,
            prepare_checksum=header.checksum,
            op=header.op,
            timestamp=header.timestamp,
            request=header.request,
            operation=header.operation,
            group=header.group,
        )
        return seal(PREPARE_OK.encode(ok))

    def beat(self) -> bytes:
        """Give its next heartbeat."""
        self._counter += 1
        return self._peer.make_frame(
            cluster=CLUSTER,
            own_replica=self.replica,
            life=PEER_LIFE,
            journal=0,
            counter=self._counter,
            beats=[],
        )


class IdleNode:
    """A node of three that leads many groups, and its two peers."""

    def __init__(self, groups: int) -> None:
        self._node = Node(replica_count=3, groups=groups)
        self._peers = {replica: FakePeer(replica) for replica in (1, 2)}
        self._now = 1
        for group in range(1, groups + 1):
            frame = request_of(
                Operation.REGISTER, b"bench", client=group, session=0, number=0, group=group
            )
            sent = self._pass_on(self._node.step(RequestsArrived(((0, frame),))))
            assert [type(effect) for effect in sent] == [SendReply]

    def tick(self) -> float:
        """Let 10 ms pass; give the seconds of work that this made for the shard."""
        self._now += 1
        began = time.process_time()
        sent = self._node.step(Ticked(self._now, WALL + self._now * 10_000))
        seconds = time.process_time() - began
        self._pass_on(sent)
        if self._now % Timeouts().heartbeat_interval == 0:
            frames = tuple((peer.replica, peer.beat()) for peer in self._peers.values())
            began = time.process_time()
            self._node.step(FramesArrived(frames))
            seconds += time.process_time() - began
        return seconds

    def _pass_on(self, effects: list[Effect]) -> list[Effect]:
        """Let the peers answer until they have nothing to say; give what went to clients."""
        replies: list[Effect] = []
        while effects:
            answers = []
            for effect in effects:
                if type(effect) is SendFrame:
                    answer = self._peers[effect.replica].answer(effect.frame)
                    if answer is not None:
                        answers.append((effect.replica, answer))
                else:
                    replies.append(effect)
            effects = self._node.step(FramesArrived(tuple(answers))) if answers else []
        return replies


def report_ops(pace: Pace) -> None:
    """Print what an op costs, for each size of turn."""
    print(f"\nOne op of a single replica, body of {VALUE_BYTES + 7} bytes, microseconds")
    print(f"{'':24}" + "".join(f"{size:>4} a turn" for size in TURN_SIZES))
    measured = [measure_ops(size, pace) for size in TURN_SIZES]
    print(f"{'request to reply':24}" + "".join(f"{total * 1e6:11.2f}" for total, _ in measured))
    for name in measured[0][1]:
        print(f"{name:24}" + "".join(f"{parts[name] * 1e6:11.2f}" for _, parts in measured))


def report_idle(pace: Pace) -> None:
    """Print what idle groups cost."""
    node = IdleNode(pace.idle_groups)
    told = sum(node.tick() for _ in range(2 * TICKS_PER_SECOND))
    times = [node.tick() for _ in range(pace.idle_ticks)]
    share = sum(times) * TICKS_PER_SECOND / pace.idle_ticks
    print(
        f"\n{pace.idle_groups:,} idle groups, {TICKS_PER_SECOND} ticks a second, one node of three"
        f"\nshare of a core       {share * 100:8.3f} %"
        f"\nlongest tick          {max(times) * 1e3:8.3f} ms"
        f"\nfirst two seconds     {told * 1e3:8.3f} ms (all groups are told to both peers)"
    )


def report_profile(turn_size: int, pace: Pace) -> None:
    """Print the functions that take the most time of an op."""
    node = Node(replica_count=1, groups=1)
    clients = Clients(node, turn_size)
    turns = clients.make_turns(pace.ops // turn_size)
    profile = cProfile.Profile()
    profile.runcall(run_ops, node, turns)
    print(f"\nProfile of {pace.ops} ops, {turn_size} a turn")
    pstats.Stats(profile).sort_stats("tottime").print_stats(PROFILE_LINES)


def main() -> None:
    """Print the conditions, then the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shortest", action="store_true", help="little of it: whether it runs")
    parser.add_argument("--profile", action="store_true", help="which functions take the time")
    given = parser.parse_args()
    pace = SHORTEST if given.shortest else FULL
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    print(f"Python {sys.version.split()[0]}; load {load}")
    report_ops(pace)
    report_idle(pace)
    if given.profile:
        for turn_size in TURN_SIZES:
            report_profile(turn_size, pace)


if __name__ == "__main__":
    main()
