"""A shard without the metadata group: partitions and clients are served from an image of it."""

from collections.abc import Iterable, Sequence

import pytest

from headrace.metadata.state import State
from headrace.ports.network import Buffer, SendFrame, SendReply, SendToConnection, Ticked
from headrace.shard.config import PlaneConfig
from headrace.shard.consensus.clock import Clock
from headrace.shard.consensus.plane import Effect, Plane
from headrace.shard.front.connections import Connection
from headrace.shard.front.credential import Credential
from headrace.shard.front.front import Front
from headrace.shard.owned.partitions import Partitions
from headrace.shard.turn import Turn
from headrace.shard.watch import unwatched
from headrace.storage.store import Opened, format_store, open_store
from headrace.vsr.timeouts import Timeouts
from headrace.wire.commands import messages, streams
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import First
from headrace.wire.numbers import Transport
from headrace.wire.replies import read_answer
from headrace.wire.requests import RequestHeader
from tests.memory_disk import MemoryDisk
from tests.partitions.fake_files import FakeFiles
from tests.shard.test_node import ME, with_topic
from tests.shard.whole import Client, Whole, store_config


class Image:
    """The metadata as another shard has it; its group is not here."""

    is_serving = False
    is_current = True
    is_caught_up = True
    is_without_space = False

    def __init__(self, state: State, commit: int) -> None:
        self.state = state
        self.commit = commit
        self.forwarded: list[RequestHeader] = []

    def put_request(self, header: RequestHeader, body: Buffer) -> None:
        self.forwarded.append(header)

    def answer_again(self, header: RequestHeader, body: Buffer) -> bool:
        return False


class _Sessions:
    """Logins are another shard's."""

    def register(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)

    def logout(self, connection: Connection, header: RequestHeader) -> None:
        raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)


class _Half:
    """Front and owned on a data plane whose disk answers at once."""

    is_without_space = False

    def __init__(self, whole: Whole, image: Image) -> None:
        settings = whole.shard.settings
        config = PlaneConfig(
            cluster=1, replica=0, replica_count=1, timeouts=Timeouts(), seed=3, journal=1
        )
        self._disk = MemoryDisk(format_store(store_config(1), 0))
        opened = open_store(store_config(1), self._disk.image())
        assert isinstance(opened, Opened)
        self._turn = Turn(Clock(settings.clock_tolerance))
        self._plane = Plane(config, opened, outside=self, has_offsets=True)
        self.partitions = Partitions(settings, image, self._plane, self._turn, unwatched)
        self.front = Front(
            settings, image, self._plane, self.partitions, self._turn, lambda: [self._turn.probes]
        )
        self._router = self.front.make_router(_Sessions(), {}, lambda _connection, _request: None)
        self._files = FakeFiles()
        self.sent: list[bytes] = []
        self._run(self._plane.start())

    def flush(self, groups: Sequence[int]) -> bool:
        return self.partitions.flushes.flush(groups)

    def lacking(self) -> Iterable[int]:
        return self.partitions.flushes.lacking()

    def tick(self, now: int) -> None:
        self._turn.clock.now = now
        self._plane.take(Ticked(now, 1_700_000_000_000_000 + now))
        self._run(self._plane.close_turn())

    def ask(self, connection: Connection, frame: bytes | bytearray) -> bytes:
        self._router.route(connection, bytearray(frame))
        self._run([])
        return self.sent.pop(0)

    def _run(self, effects: list[Effect]) -> None:
        """Let the world answer until nothing more happens."""
        while effects or not self._plane.is_quiet:
            for effect in effects:
                self._carry_out(effect)
            synced = self._disk.sync()
            if synced is not None:
                self._plane.take(synced)
            self.partitions.reconcile()
            effects = self._plane.close_turn()
            self._end_turn()
        self._end_turn()

    def _carry_out(self, effect: Effect) -> None:
        assert not isinstance(effect, SendFrame), "a single node has no peers"
        if isinstance(effect, SendReply):
            found = self.front.answers.take_waiting(effect)
            assert found is not None
            self.front.answers.send_settled(*found, effect.frame)
            return
        event = self._disk.carry_out(effect)
        if event is not None:
            self._plane.take(event)

    def _end_turn(self) -> None:
        self.partitions.after_turn()
        self.front.polls.after_turn()
        for each in self._turn.out:
            if isinstance(each, SendToConnection):
                self.sent.append(b"".join(bytes(part) for part in each.parts))
            else:
                self._files.waiting.append(each)  # type: ignore[arg-type]  # all others are files'
        self._turn.out.clear()
        while self._files.waiting:
            for answer in self._files.step():
                self.partitions.on_segment(answer)


def bound(half: _Half, client: Client) -> Connection:
    """Give a connection the session that the client has at the shard of the logins."""
    connection = half.front.connections.open(1, Transport.TCP, "127.0.0.1:1", 0)
    credential = Credential(0, 1, "hash of iggy")
    half.front.connections.bind(
        connection, client=client.client, credential=credential, session=client.session
    )
    return connection


def test_sends_and_polls_are_served_from_an_image() -> None:
    whole = Whole()
    client = with_topic(whole)
    image = Image(whole.shard.metadata.state, whole.shard.metadata.commit)
    half = _Half(whole, image)
    for now in range(1, 4):
        half.tick(now)
    assert len(half.partitions.locals) == 1
    connection = bound(half, client)
    sent = half.ask(connection, client.send_frame_of("s", "t", [b"here"]))
    (confirmation,) = messages.SEND_MESSAGES.decode_reply(read_answer(sent))
    assert confirmation.base_offset == 0
    request = messages.PollMessages(
        consumer=ME,
        stream="s",
        topic="t",
        partition_id=0,
        strategy=First(),
        count=1,
        auto_commit=False,
    )
    answer = half.ask(connection, client.make_frame(messages.POLL_MESSAGES, request))
    polled = messages.POLL_MESSAGES.decode_reply(read_answer(answer))
    assert b"here" in bytes(polled.batches)


def test_what_the_group_must_order_is_not_ordered_here() -> None:
    whole = Whole()
    client = with_topic(whole)
    image = Image(whole.shard.metadata.state, whole.shard.metadata.commit)
    half = _Half(whole, image)
    half.tick(1)
    connection = bound(half, client)
    frame = client.make_frame(streams.CREATE_STREAM, streams.CreateStream("other"))
    with pytest.raises(RefusedError) as refused:
        read_answer(half.ask(connection, frame))
    assert refused.value.code == Code.TRANSIENT_NOT_ACCEPTED
    assert not image.forwarded
