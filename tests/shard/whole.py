"""A whole shard on disks in memory that answer at once, and clients that speak its protocol."""

import struct
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from headrace import kernel
from headrace.base.limits import MIB
from headrace.base.secret import Secret
from headrace.metadata.admission import TopicDefaults
from headrace.ports.audit import Audit
from headrace.ports.bus import ReleaseReply, SendToMember
from headrace.ports.credentials import (
    HashPassword,
    MintToken,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
    VerifyPassword,
)
from headrace.ports.disk import (
    DiskEvent,
    FromStore,
    OnStore,
    Synced,
)
from headrace.ports.host import MakeSnapshot, NodeOpened, SnapshotMade, TurnBegun, WantTurn
from headrace.ports.network import (
    CloseConnection,
    ConnectionClosed,
    ConnectionLeft,
    ConnectionOpened,
    ConnectionTrusted,
    ReadConnections,
    RequestsArrived,
    SendFrame,
    SendToConnection,
    Ticked,
)
from headrace.shard.config import PlaneConfig
from headrace.shard.consensus.plane import Plane
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.shard.settings import ShardSettings
from headrace.shard.shard import Shard
from headrace.storage.config import StoreConfig
from headrace.storage.store import Opened, format_store, open_store
from headrace.vsr.timeouts import Timeouts
from headrace.wire.commands.command import Command
from headrace.wire.commands.messages import SEND_MESSAGES, Confirmation, encode_routing
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    ClientVersion,
    PasswordLogin,
    Register,
    Registered,
    TokenLogin,
)
from headrace.wire.identifiers import Identifier, Partitioning, ToPartition
from headrace.wire.numbers import Transport
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED
from tests.memory_disk import MemoryDisk
from tests.partitions.fake_files import FakeFiles

START = 1_700_000_000_000_000
ROOT = ("iggy", b"iggy")
LOOPBACK = "127.0.0.1:1"
VERSION = ClientVersion(PROTOCOL_PACKED, "tests", "0.1.0")
FIRST = ToPartition(0)
STEPS_MAX = 20_000  # Who takes more, without any time passing, has no end in sight.

CredentialEvent = PasswordVerified | PasswordHashed | TokenMinted


def _hash(password: bytes) -> str:
    return f"hash of {password.decode('ascii', 'backslashreplace')}"


JOURNAL_BYTES = 4 * MIB
JOURNAL_FILES = 4


def store_config(
    journal: int,
    boot: int = 1,
    *,
    replica: int = 0,
    replica_count: int = 1,
    journal_bytes: int = JOURNAL_BYTES,
) -> StoreConfig:
    return StoreConfig(
        cluster=1,
        replica=replica,
        replica_count=replica_count,
        journal_bytes_max=journal_bytes,
        journal_files=JOURNAL_FILES,
        record_bytes_max=journal_bytes // JOURNAL_FILES,
        boot_identity=boot,
        journal=journal,
    )


class Whole:
    """One node in memory, and time that passes when it is told to.

    A node of several sends its frames to `sent`, and is ready once others take part.
    """

    is_fed = False  # whether it has to wait for the metadata of another shard

    def __init__(
        self,
        *,
        replica: int = 0,
        replica_count: int = 1,
        repair_ops_max: int = 128,
        offsets_reserved: int = 65_536,
        journal_bytes: int = JOURNAL_BYTES,
        steps_max: int = STEPS_MAX,
        slice_groups_max: int = 256,
        **settings: Any,
    ) -> None:
        self._settings = settings
        self._steps_max = steps_max
        self._repair_ops_max = repair_ops_max
        self._offsets_reserved = offsets_reserved
        self._journal_bytes = journal_bytes
        self._slice_groups_max = slice_groups_max
        self.replica = replica
        self.replica_count = replica_count
        self.starts = 0
        self.sent: list[SendFrame] = []
        self.disks = [MemoryDisk(format_store(self._store_config(each), 0)) for each in (0, 1)]
        self.segments = FakeFiles()
        self.boot_identity = 1
        self.now = 0
        self.clock_ahead = 0  # microseconds that the wall clock is ahead of the true time
        self.closed: list[tuple[int, str]] = []
        self.audited: list[Audit] = []
        self.trusted: dict[int, bool] = {}
        self.is_checking = True  # whether the shard checks itself after every step
        self.is_reading = True
        self.is_reading_segments = True  # whether the folder of segments does anything
        self.is_syncing = True  # whether syncs come back by themselves
        self.unanswered: dict[int, list[DiskEvent]] = {}  # by store, of those that are held back
        self._held_kind: type[DiskEvent] | None = None  # all, if it is not said which
        self.is_strengthening = False  # whether hashes cost too little
        self.is_verifying = True  # whether the credential hasher answers at once
        self.unverified: list[CredentialEvent] = []  # answers that are held back
        self.is_turning = True  # whether a turn that the shard wants begins at once
        self.has_turn_held = False
        self.is_archiving = True  # whether snapshots of the host are made at once
        self.unmade: list[SnapshotMade] = []  # those that are held back
        self._connection = 0
        self.start()

    def _store_config(self, journal: int, boot: int = 1) -> StoreConfig:
        return store_config(
            journal,
            boot,
            replica=self.replica,
            replica_count=self.replica_count,
            journal_bytes=self._journal_bytes,
        )

    def _plane_config(self, journal: int) -> PlaneConfig:
        return PlaneConfig(
            cluster=1,
            replica=self.replica,
            replica_count=self.replica_count,
            timeouts=Timeouts(),
            seed=7 + 100 * self.replica + self.starts,
            journal=journal,
            repair_ops_max=self._repair_ops_max,
            offsets_reserved=self._offsets_reserved,
            slice_groups_max=self._slice_groups_max,
        )

    def start(self) -> None:
        """Start the node from its disks."""
        opened = [
            open_store(self._store_config(each, self.boot_identity), disk.image())
            for each, disk in enumerate(self.disks)
        ]
        self.disks = [MemoryDisk(disk.image()) for disk in self.disks]
        for each in opened:
            assert isinstance(each, Opened), each
        options: dict[str, Any] = {
            "metadata": self._plane_config(0),
            "data": self._plane_config(1),
            "topic_defaults": TopicDefaults(),
            "server_version": "0.1.0",
            "server_semver": 1000,
            "root_username": ROOT[0],
            "root_password_hash": _hash(ROOT[1]),
            "password_bytes_min": 3,
            "piece_bytes": 4096,
            "tail_bytes_max": MIB,
            "poll_bytes_max": MIB,
        }
        self.shard = self._make(ShardSettings(**(options | self._settings)), opened)  # type: ignore[arg-type]
        self.inbox: dict[int, list[bytes]] = {}
        self._run([], self.shard.start())
        self.tick()
        self.starts += 1
        if self.shard.settings.placement.shard_count > 1 and not self.is_fed:
            self.step(NodeOpened())  # The test is about one shard of several; the others are well.
            self.tick()
        is_held = self.unanswered or not self.is_reading_segments
        is_waiting = is_held or self.replica_count > 1 or self.is_fed
        assert self.shard.is_ready or is_waiting

    def _make(self, settings: ShardSettings, opened: list[Opened]) -> Shard:
        return Shard(settings, *opened)

    def crash(self, *, is_power_cut: bool = False) -> None:
        """End the node as a kill does, or as a power cut does; and start it again."""
        self.end(is_power_cut=is_power_cut)
        self.start()

    def end(self, *, is_power_cut: bool = False) -> None:
        """Leave on the disks what a kill leaves, or a power cut; `start` goes on from there."""
        for events in self.unanswered.values():
            events.clear()
        if is_power_cut:
            self.disks = [MemoryDisk(disk.cut()) for disk in self.disks]
            self.segments.cut_power()
            self.boot_identity += 1
        else:
            self.segments.kill()

    def hold_store(self, store: int, kind: type[DiskEvent] | None = None) -> None:
        """Hold back what the disk of a store answers, all or one kind of it, over restarts too."""
        self.unanswered[store] = []
        self._held_kind = kind

    def answer_held(self, store: int) -> None:
        """Deliver what was held back; what comes of it is held back again."""
        events, self.unanswered[store] = self.unanswered[store], []
        for event in events:
            self.step(FromStore(store, event))

    def release_store(self, store: int) -> None:
        """Deliver what was held back, and hold back nothing more."""
        for event in self.unanswered.pop(store):
            self.step(FromStore(store, event))

    def set_files(self, images: list[dict[str, bytes]]) -> None:
        """Put other files in the place of both stores, for the next start."""
        self.disks = [MemoryDisk(files) for files in images]

    def tick(self, count: int = 1) -> None:
        """Let time pass."""
        for _ in range(count):
            self.now += 1
            self.step(Ticked(self.now, self.clock))

    def set(self, name: str, value: object) -> None:
        """Change a setting, from the next start on."""
        self._settings[name] = value

    @property
    def clock(self) -> int:
        """What the wall clock of the node says."""
        return START + self.now * 10_000 + self.clock_ahead

    def step(self, event: ShardEvent) -> None:
        self._run([event], [])

    def _run(self, events: list[ShardEvent], effects: list[ShardEffect]) -> None:
        """Step, and let the world answer until nothing more happens."""
        for _ in range(self._steps_max):
            events += [answer for effect in effects for answer in self._carry_out(effect)]
            effects = []
            if not events:
                while self.segments.waiting and not events and self.is_reading_segments:
                    events += self.segments.step()
            if not events and self.is_syncing:
                synced = [
                    (each, disk.sync())
                    for each, disk in enumerate(self.disks)
                    if not self._is_held(each, Synced)
                ]
                events += [FromStore(each, event) for each, event in synced if event is not None]
            if not events:
                return
            effects = self.shard.step(events.pop(0))
            if self.is_checking:
                self._check()
        raise AssertionError("the node does not come to rest")

    def _check(self) -> None:
        self.shard.check()
        for plane in self._planes():
            plane.check()

    def _planes(self) -> tuple[Plane, ...]:
        return self.shard.metadata.plane, self.shard.data_plane

    def _carry_out(self, effect: ShardEffect) -> list[ShardEvent]:  # noqa: C901, PLR0911, PLR0912
        match effect:
            case OnStore():
                return self._carry_out_on_store(effect)
            case SendToConnection():
                frame = b"".join(bytes(part) for part in effect.parts)
                self.inbox.setdefault(effect.connection, []).append(frame)
            case CloseConnection():
                self.closed.append((effect.connection, effect.reason))
                return [ConnectionClosed(effect.connection)]
            case ReadConnections():
                self.is_reading = effect.is_reading
            case VerifyPassword():
                return self._hold_or_answer(self._verify(effect))
            case HashPassword():
                return self._hold_or_answer(PasswordHashed(effect.token, _hash(effect.password)))
            case MintToken():
                made = TokenMinted(effect.token, Secret(b"token-%d" % effect.token))
                return self._hold_or_answer(made)
            case MakeSnapshot():
                self.unmade.append(SnapshotMade(effect.token, b"archive"))
                return [self.unmade.pop()] if self.is_archiving else []
            case WantTurn():
                self.has_turn_held = not self.is_turning
                return [TurnBegun()] if self.is_turning else []
            case SendFrame():
                assert self.replica_count > 1, "a single node has no peers"
                self.sent.append(effect)
            case SendToMember() | ReleaseReply() | ConnectionLeft():
                pass  # Nobody is there; `several` has a bus.
            case ConnectionTrusted():
                self.trusted[effect.connection] = effect.is_trusted
            case Audit():
                self.audited.append(effect)
            case _:
                self.segments.waiting.append(effect)
        return []

    def _carry_out_on_store(self, effect: OnStore) -> list[ShardEvent]:
        event = self.disks[effect.store].carry_out(effect.effect)
        if event is None:
            return []
        if self._is_held(effect.store, type(event)):
            self.unanswered[effect.store].append(event)
            return []
        return [FromStore(effect.store, event)]

    def _is_held(self, store: int, kind: type[DiskEvent]) -> bool:
        return store in self.unanswered and self._held_kind in (None, kind)

    def _verify(self, effect: VerifyPassword) -> PasswordVerified:
        weak = _hash(effect.password)
        strong = f"strong {weak}"
        is_right = effect.password_hash in (weak, strong)
        is_weak = is_right and effect.password_hash == weak and self.is_strengthening
        return PasswordVerified(effect.token, is_right, strong if is_weak else None)

    def _hold_or_answer(self, event: CredentialEvent) -> list[ShardEvent]:
        if self.is_verifying:
            return [event]
        self.unverified.append(event)
        return []

    def connect(self, address: str = LOOPBACK) -> int:
        """Open a connection; give its number."""
        self._connection += 1
        self.step(ConnectionOpened(self._connection, Transport.TCP, address))
        return self._connection

    def client(self, user: tuple[str, bytes] = ROOT, client: int = 0) -> "Client":
        """Give a client that is logged in."""
        made = Client(self, client or 1000 + self._connection)
        made.login(*user)
        return made


class Client:
    """One connection, in lockstep as the released SDK is."""

    def __init__(self, node: Whole, client: int, address: str = LOOPBACK) -> None:
        self.node = node
        self.client = client
        self.connection = node.connect(address)
        self.session = 0
        self.number = 0

    def send_frame(self, frame: bytes | bytearray) -> bytes:
        """Send a frame; give the one that answers it."""
        self.post(frame)
        return self.take()

    def post(self, *frames: bytes | bytearray) -> None:
        """Send frames that arrive in one turn."""
        arrived = tuple((self.connection, bytearray(frame)) for frame in frames)
        self.node.step(RequestsArrived(arrived))

    def has_answer(self) -> bool:
        """Whether a frame was sent to us that we have not taken."""
        return bool(self.node.inbox.get(self.connection))

    def take(self) -> bytes:
        """Give the next frame that was sent to us."""
        return self.node.inbox[self.connection].pop(0)

    def login(self, username: str, password: bytes) -> None:
        self._register(Register(VERSION, password=PasswordLogin(username, password)))

    def login_by_token(self, token: str) -> None:
        self._register(Register(VERSION, token=TokenLogin(token.encode())))

    def _register(self, request: Register) -> None:
        registered = self.ask(LOGIN_PASSWORD, request)
        assert isinstance(registered, Registered)
        self.session = registered.session

    def make_frame(
        self, command: Command[Any, Any], request: Any, number: int | None = None
    ) -> bytes:
        body = command.encode_request(request)
        if number is None:
            number = self.next_number() if command.operation > 2 else 0
        header = encode_request(
            command.operation,
            body,
            client=self.client,
            session=0 if command.operation == 1 else self.session,
            request=number,
            code=command.code,
        )
        return header + body

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def ask(self, command: Command[Any, Any], request: Any = None) -> Any:
        """Ask, and give the reply."""
        return command.decode_reply(read_answer(self.send_frame(self.make_frame(command, request))))

    def send_frame_of(
        self,
        stream: Identifier,
        topic: Identifier,
        payloads: list[bytes],
        *,
        to: Partitioning = FIRST,
        number: int | None = None,
    ) -> bytearray:
        batch = make_batch(payloads)
        body = encode_routing(stream, topic, to, messages_count=len(payloads)) + batch
        header = encode_request(
            SEND_MESSAGES.operation,
            body,
            client=self.client,
            session=self.session,
            request=self.next_number() if number is None else number,
            code=0,
        )
        return bytearray(header + body)

    def send(
        self, stream: Identifier, topic: Identifier, payloads: list[bytes], **options: Any
    ) -> Confirmation:
        """Send messages; give where they landed."""
        frame = self.send_frame(self.send_frame_of(stream, topic, payloads, **options))
        (confirmation,) = SEND_MESSAGES.decode_reply(read_answer(frame))
        return confirmation

    def close(self) -> None:
        self.node.step(ConnectionClosed(self.connection))


def hold(node: Whole) -> Callable[[], None]:
    """Have syncs wait until the function is called that this gives."""
    node.is_syncing = False

    def go_on() -> None:
        node.is_syncing = True
        node.tick()

    return go_on


def make_batch(payloads: list[bytes], origin: int = START) -> bytes:
    """Give a batch as a producer sends it."""
    count = len(payloads)
    ids = b"".join((number + 1).to_bytes(16, "little") for number in range(count))
    ends = list(accumulate((len(payload) for payload in payloads), initial=0))
    return kernel.build(
        ids,
        struct.pack(f"<{count}Q", *(origin + number for number in range(count))),
        b"".join(payloads),
        struct.pack(f"<{count + 1}i", *ends),
        None,
        None,
    )
