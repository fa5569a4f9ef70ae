"""Wrong frames against a live node: it answers or closes, lives on, and others do not notice.

20,000 frames, drawn from the hash of the source tree: the same tree, the same frames. `FUZZ_FRAMES`
asks for more, and `FUZZ_SEED` for others. Takes about 20 s of the interop share.
"""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

import pytest

from headrace.base.limits import HEADER_BYTES, MIB
from headrace.base.prng import Prng
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.wire.batches import decode_batch_header, split_batches, verify_batch
from headrace.wire.commands.messages import (
    POLL_MESSAGES,
    SEND_MESSAGES,
    PollMessages,
    SendMessages,
)
from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.tokens import CREATE_TOKEN, CreateToken
from headrace.wire.commands.topics import CREATE_TOPIC, PURGE_TOPIC, CreateTopic, PurgeTopic
from headrace.wire.evictions import decode_eviction
from headrace.wire.identifiers import Consumer, FromOffset, ToPartition
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import ConsumerKind, FrameKind
from headrace.wire.replies import REPLY
from headrace.wire.requests import REQUEST
from tests.e2e.mutations import Shooter, Shot, Speaker
from tests.e2e.raw import RawClient
from tests.node import Node, running_node
from tools.recorder_model import make_batch
from tools.simulate import tree_seed

pytestmark = pytest.mark.slow

FRAMES = int(os.environ.get("FUZZ_FRAMES", "20000"))
FRAMES_BETWEEN_LOOKS = 2000
BURST_MAX = 16
BURSTS_TOLD = 4
ROUNDS_BETWEEN_PURGES = 1000  # The node keeps new messages in memory: they could hide a leak.
UNFINISHED_MAX = 50  # connections that are left in the middle of a frame
RESIDENT_BYTES_MAX = 192 * MIB
# Hashing passwords is not what this is about.
ENVIRONMENT = {
    "HEADRACE_SECURITY_ARGON2_TIME_COST": "1",
    "HEADRACE_SECURITY_ARGON2_MEMORY": "8 KiB",
}


class Calm:
    """A client that minds its own business all the time, and compares every byte that it reads.

    Its stream has a name and a number that no shot hits by chance, because those are valid orders
    of a user who may do everything. Of a million shots one had purged number 40, two bits away from
    one that shots have; this one takes five, or two whole bytes.
    """

    STREAM = "calm-2f1b8a90c7d64e35"
    STREAMS_BEFORE = 0x135

    def __init__(self, node: Node) -> None:
        self.client = RawClient(node.tcp, client=0xCA1)
        self.client.login()
        for number in range(self.STREAMS_BEFORE):
            self.client.call(CREATE_STREAM, CreateStream(f"before-{number}"))
        self.client.call(CREATE_STREAM, CreateStream(self.STREAM))
        self.client.call(CREATE_TOPIC, CreateTopic(self.STREAM, 1, "calm"))
        self.rounds = 0
        self._is_over = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="calm")
        self._thread.start()

    def end(self) -> None:
        """End it."""
        self._is_over.set()
        self._thread.join()
        self.client.close()

    def check(self) -> None:
        """Raise what it has found wrong so far."""
        if self._failure is not None:
            raise AssertionError("the calm client was disturbed") from self._failure

    def _run(self) -> None:
        offset = 0
        try:
            while not self._is_over.is_set():
                offset += self._round(offset)
                self.rounds += 1
                if self.rounds % ROUNDS_BETWEEN_PURGES == 0:
                    self.client.call(PURGE_TOPIC, PurgeTopic(self.STREAM, "calm"))
                    offset = 0
                self._is_over.wait(0.001)
        except BaseException as error:  # noqa: BLE001  # told by `check`, in the test's own thread
            self._failure = error

    def _round(self, offset: int) -> int:
        payloads = [f"{self.rounds}-{number}".encode() * 10 for number in range(3)]
        batch = make_batch(*payloads)
        send = SendMessages(self.STREAM, "calm", ToPartition(0), len(payloads), batch)
        (confirmation,) = self.client.call(SEND_MESSAGES, send)
        assert confirmation.base_offset == offset
        poll = PollMessages(
            consumer=Consumer(ConsumerKind.CONSUMER, 1),
            stream=self.STREAM,
            topic="calm",
            partition_id=0,
            strategy=FromOffset(offset),
            count=100,
            auto_commit=False,
        )
        polled = self.client.call(POLL_MESSAGES, poll)
        (stored,) = split_batches(polled.batches)
        verify_batch(stored)
        assert decode_batch_header(stored).base_offset == offset
        assert stored[BATCH_HEADER_BYTES:] == batch[BATCH_HEADER_BYTES:]
        return len(payloads)


class Attackers:
    """Opens connections in every state of a session and fires bursts of shots at the node."""

    def __init__(self, node: Node, prng: Prng, token: str) -> None:
        self.frames = 0  # that the node took: those behind a close are not counted
        self._node = node
        self._prng = prng
        self._token = token
        self._shooter = Shooter(prng.fork("shots"))
        self._clients = 0x1000
        self._unfinished: list[RawClient] = []
        self._last: deque[list[Shot]] = deque(maxlen=BURSTS_TOLD)

    def fire_burst(self) -> None:
        """Open a connection, fire some shots, and see that none meets silence."""
        with self._telling():
            client = self._open()
            shots = self._draw(client)
            self._last.append(shots)
            framed = [shot for shot in shots if shot.is_framed]
            client.connection.send(b"".join(shot.frame for shot in framed))
            answered, is_open = self._read_answers(client, framed)
            self.frames += answered + (answered < len(shots))
            if is_open:
                self._end(client, [shot for shot in shots if not shot.is_framed])

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say what was fired last when something goes wrong: a node may fall a moment later."""
        try:
            yield
        except (AssertionError, OSError) as error:
            shots = [f"{shot.what}: {shot.frame.hex()}" for each in self._last for shot in each]
            told = "\n".join([f"{error} after {self.frames} frames, the last:", *shots])
            raise AssertionError(told) from error

    def close(self) -> None:
        """End all that was left open."""
        for client in self._unfinished:
            client.close()

    def _open(self) -> RawClient:
        self._clients += 2
        client = RawClient(self._node.tcp, self._clients)
        phase = self._prng.below(10)
        if phase < 3:
            return client  # before login
        client.login(token=self._token)
        if phase == 8:
            client.logout()
        if phase == 9:
            client.login(token=self._token)
        return client

    def _draw(self, client: RawClient) -> list[Shot]:
        """Give a burst; after a shot whose framing is wrong nothing can follow."""
        shots: list[Shot] = []
        for _ in range(self._prng.between(1, BURST_MAX)):
            client.request += 1
            speaker = Speaker(client.client, client.session, client.request)
            shots.append(self._shooter.shoot(speaker))
            if not shots[-1].is_framed:
                break
        return shots

    def _read_answers(self, client: RawClient, framed: list[Shot]) -> tuple[int, bool]:
        """Read an answer to each shot; give how many came, and whether the connection is open."""
        waiting = [_sender_of(shot.frame) for shot in framed]
        evicted: list[int] = []  # An eviction names its client and not the request.
        while len(waiting) > len(evicted):
            try:
                answer = client.connection.receive()
            except TimeoutError:
                raise AssertionError(f"silence: {waiting} wait, {evicted} evicted") from None
            if answer is None:
                client.close()
                return len(framed) - len(waiting) + len(evicted), False
            if answer[KIND_OFFSET] == FrameKind.EVICTION:
                evicted.append(decode_eviction(answer).client)
                continue
            header = REPLY.decode(answer)
            assert not header.status or len(answer) == HEADER_BYTES
            told = Sender(header.client, header.request)
            assert told in waiting, f"an answer to {told}, and {waiting} wait"
            waiting.remove(told)
        assert sorted(evicted) == sorted(each.client for each in waiting)
        return len(framed), True

    def _end(self, client: RawClient, broken: list[Shot]) -> None:
        """Leave at once, or in the middle of a frame, or politely: then the node must close too."""
        for shot in broken:
            client.connection.send(shot.frame)
        way = self._prng.below(4)
        if way == 0:
            client.close()
        elif way == 1:
            self._unfinished.append(client)
            if len(self._unfinished) > UNFINISHED_MAX:
                self._unfinished.pop(0).close()
        else:
            client.connection.finish()
            while client.connection.receive() is not None:
                pass  # What follows a wrong size may be taken for frames.
            client.close()


class Sender(NamedTuple):
    """What an answer repeats of its request."""

    client: int
    request: int


def _sender_of(frame: bytes) -> Sender:
    # Whatever kind the frame has: only requests are answered.
    as_request = frame[:KIND_OFFSET] + bytes([FrameKind.REQUEST]) + frame[KIND_OFFSET + 1 :]
    header = REQUEST.decode(as_request)
    return Sender(header.client, header.request)


def test_wrong_frames() -> None:
    seed = int(os.environ.get("FUZZ_SEED", str(tree_seed())))
    with running_node(environment=ENVIRONMENT) as node:
        calm = Calm(node)
        try:
            _fire(node, calm, Prng(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{node.last_words()}") from error
        finally:
            calm.end()
        calm.check()


def _fire(node: Node, calm: Calm, prng: Prng) -> None:
    client = RawClient(node.tcp, client=0xF00)
    client.login()
    token = client.call(CREATE_TOKEN, CreateToken("fuzz-4c1d", 0)).token
    client.close()
    pid = node.pid
    attackers = Attackers(node, prng, token)
    looks, rounds = 0, 0
    while attackers.frames < FRAMES:
        attackers.fire_burst()
        if attackers.frames // FRAMES_BETWEEN_LOOKS == looks:
            continue
        looks += 1
        calm.check()
        node.check_alive()
        assert node.pid == pid
        assert calm.rounds > rounds, "the calm client stands still"
        rounds = calm.rounds
        assert node.resident_bytes() < RESIDENT_BYTES_MAX
    attackers.close()
    assert looks >= FRAMES // FRAMES_BETWEEN_LOOKS
