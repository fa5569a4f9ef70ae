"""Every key of the configuration, declared once: type, default, bounds, meaning.

Reading, showing and the page of the guide are derived from it. Sizes are bytes, durations
microseconds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_type_hints

import msgspec

from headrace.base.endpoints import Endpoint
from headrace.base.ids import Micros
from headrace.base.limits import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN_OF_MAX,
    GIB,
    HEADER_BYTES,
    KIB,
    MIB,
    PASSWORD_BYTES_MAX,
    PASSWORD_BYTES_MIN,
    PIPELINE_OPS_MAX,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_BYTES_STEP,
    USERNAME_BYTES_MAX,
    USERNAME_BYTES_MIN,
)
from headrace.base.secret import Secret
from headrace.runtime.bus.ends import CAPACITY, CAPACITY_MAX
from headrace.server.allocation import Wanted
from headrace.server.config.kinds import (
    DAY,
    HOUR,
    MILLISECOND,
    MINUTE,
    SECOND,
    Factor,
    Flag,
    Folder,
    Listener,
    LogFile,
    Name,
    SecretText,
    Setting,
    Shards,
    Text,
    Word,
    count,
    duration,
    size,
)
from headrace.storage.config import FILE_ALIGNMENT, FILES_MIN
from headrace.wire.topic_options import IGNORE_CONSUMERS, RESPECT_CONSUMERS, UNLIMITED

Profile: TypeAlias = Literal["dev", "serve"]

DEFAULT_USERNAME = "iggy"
DEFAULT_PASSWORD = Secret(b"iggy")
TICK = 10 * MILLISECOND
JOURNAL_FILES_MAX = 64

_TOPIC_BYTES_MAX = 1 << 50
_EXPIRY_MAX = 36_500 * DAY
_patience = duration(SECOND, HOUR, step=SECOND)  # connections are checked once a second
_wait = duration(TICK, HOUR, step=TICK)  # consensus counts in ticks


class ServerSection(msgspec.Struct, frozen=True, kw_only=True):
    """The node itself."""

    data_dir: Annotated[
        Path,
        Setting(
            Folder(), "folder of all data; `dev` without it uses one that is thrown away", "--data"
        ),
    ] = Path("headrace-data")
    shards: Annotated[
        Wanted | None,
        Setting(
            Shards(),
            "processes that share the partitions, one per core; empty: as many as the folder has,"
            " of a new one 1 under dev and auto under serve",
            "--shards",
        ),
    ] = None
    pin_cores: Annotated[
        bool,
        Setting(
            Flag(),
            "whether each shard keeps to its CPU; one shard that is given as a number does not",
        ),
    ] = True
    name: Annotated[str, Setting(Name(), "name of this node, as clients are told it")] = "headrace"
    shutdown_drain_timeout: Annotated[
        Micros,
        Setting(duration(SECOND, 10 * MINUTE), "how long a stop may wait for requests in flight"),
    ] = Micros(10 * SECOND)
    shutdown_join_timeout: Annotated[
        Micros,
        Setting(
            duration(SECOND, 15 * MINUTE),
            "how long a stop may take until all shards have ended; then they are killed",
        ),
    ] = Micros(30 * SECOND)
    skip_shard_zero_for_clients: Annotated[
        bool,
        Setting(Flag(), "whether shard 0 gives all clients to other shards, if there are some"),
    ] = False
    reconcile_interval: Annotated[
        Micros,
        Setting(
            duration(TICK, 30 * SECOND, step=TICK),
            "how often partitions are compared with the metadata, if no change asks for it earlier",
        ),
    ] = Micros(SECOND)


class BusSection(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes between the shards of a node."""

    inbox_capacity: Annotated[
        int, Setting(count(1, CAPACITY_MAX), "frames that may wait on a lane for their shard")
    ] = CAPACITY
    reply_inbox_capacity: Annotated[
        int,
        Setting(
            count(1, CAPACITY_MAX), "requests to one shard that may wait for their reply at once"
        ),
    ] = CAPACITY


class RootSection(msgspec.Struct, frozen=True, kw_only=True):
    """The first user, made when the node starts for the first time."""

    username: Annotated[
        str,
        Setting(
            Text(USERNAME_BYTES_MIN, USERNAME_BYTES_MAX),
            "name of the root user",
            older_names=("IGGY_ROOT_USERNAME",),
        ),
    ] = DEFAULT_USERNAME
    password: Annotated[
        Secret | None,
        Setting(
            SecretText(PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX),
            "its password; without one, the first start makes one and shows it once",
            dev=DEFAULT_PASSWORD,
            older_names=("IGGY_ROOT_PASSWORD",),
        ),
    ] = None


# A larger message is still sent whole: its reader could never get past it otherwise.
_LARGEST_REPLY = "largest reply to a poll; one that holds a single message may be larger"
REPLY_BYTES_MIN_OF_MAX = 64 * KIB
QUIC_REPLY_BYTES_MAX = 10_000_000 - 1


class TcpSection(msgspec.Struct, frozen=True, kw_only=True):
    """The listener of the binary protocol."""

    enabled: Annotated[bool, Setting(Flag(), "whether clients can connect over TCP")] = True
    address: Annotated[Endpoint, Setting(Listener(), "where clients connect", "--tcp")] = Endpoint(
        "127.0.0.1", 8090
    )
    frame_bytes_max: Annotated[
        int,
        Setting(size(FRAME_BYTES_MIN_OF_MAX, FRAME_BYTES_MAX), "largest frame of a client"),
    ] = FRAME_BYTES_MAX
    frame_bytes_max_before_login: Annotated[
        int,
        Setting(size(4 * HEADER_BYTES, FRAME_BYTES_MAX), "largest frame before a login"),
    ] = 64 * KIB
    connections_max: Annotated[
        int, Setting(count(1, 1_000_000), "connections of all clients together")
    ] = 10_000
    connections_per_address_max: Annotated[
        int, Setting(count(1, 1_000_000), "connections from one address")
    ] = 1000
    unauthenticated_max: Annotated[
        int, Setting(count(1, 1_000_000), "connections that have not logged in")
    ] = 500
    handshake_timeout: Annotated[
        Micros,
        Setting(_patience, "until the first whole frame of a connection"),
    ] = Micros(10 * SECOND)
    login_timeout: Annotated[Micros, Setting(_patience, "until a connection has logged in")] = (
        Micros(30 * SECOND)
    )
    frame_timeout: Annotated[
        Micros,
        Setting(_patience, "in which a frame that has begun must end, or grow"),
    ] = Micros(30 * SECOND)
    in_flight_max: Annotated[
        int, Setting(count(1, 65_536), "requests of one connection that wait for their answer")
    ] = 256
    write_buffer_bytes_pause: Annotated[
        int,
        Setting(size(4 * KIB, GIB), "unsent bytes at which a connection is no longer read"),
    ] = MIB
    write_buffer_bytes_max: Annotated[
        int, Setting(size(64 * KIB, GIB), "unsent bytes at which a connection is closed")
    ] = 2 * FRAME_BYTES_MAX
    write_timeout: Annotated[
        Micros,
        Setting(_patience, "until a client must take some of what waits for it"),
    ] = Micros(30 * SECOND)
    reply_bytes_max: Annotated[
        int,
        Setting(size(REPLY_BYTES_MIN_OF_MAX, FRAME_BYTES_MAX), _LARGEST_REPLY),
    ] = FRAME_BYTES_MAX


class WebSocketSection(msgspec.Struct, frozen=True, kw_only=True):
    """WebSocket, for when there is a listener."""

    reply_bytes_max: Annotated[
        int,
        Setting(size(REPLY_BYTES_MIN_OF_MAX, 16 * MIB), f"{_LARGEST_REPLY}; it is one frame"),
    ] = 16 * MIB


class QuicSection(msgspec.Struct, frozen=True, kw_only=True):
    """QUIC, for when there is a listener."""

    reply_bytes_max: Annotated[
        int,
        Setting(
            size(REPLY_BYTES_MIN_OF_MAX, QUIC_REPLY_BYTES_MAX),
            f"{_LARGEST_REPLY}; the released SDK takes less than 10,000,000 bytes",
        ),
    ] = 9 * MIB


class HttpSection(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP listener; for now it answers /ping."""

    enabled: Annotated[bool, Setting(Flag(), "whether there is one")] = True
    address: Annotated[Endpoint, Setting(Listener(), "where it listens", "--http")] = Endpoint(
        "127.0.0.1", 3000
    )


class TlsSection(msgspec.Struct, frozen=True, kw_only=True):
    """Encryption of connections. The listeners have none yet: this key is about its absence."""

    allow_plaintext: Annotated[
        bool,
        Setting(
            Flag(),
            "whether `serve` may listen off loopback without TLS; each start then logs a warning",
            "--allow-plaintext",
        ),
    ] = False


class JournalSection(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of the partitions; each message is in it before it is acknowledged."""

    bytes_max: Annotated[int, Setting(size(4 * MIB, 1024 * GIB), "size of all its files")] = (
        256 * MIB
    )
    files: Annotated[int, Setting(count(FILES_MIN, JOURNAL_FILES_MAX), "how many files it has")] = (
        FILES_MIN
    )
    preallocate: Annotated[
        bool,
        Setting(
            Flag(),
            "whether files of both journals take their space before they are used; without, a node"
            " stops when its disk is full, instead of refusing sends",
            dev=False,
        ),
    ] = True

    @property
    def file_bytes(self) -> int:
        """How large each file is, and so the largest record: none spans two files."""
        return _file_bytes(self.bytes_max, self.files)


class MetadataJournalSection(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of streams, topics, users and sessions."""

    bytes_max: Annotated[int, Setting(size(4 * MIB, 64 * GIB), "size of all its files")] = 64 * MIB
    files: Annotated[int, Setting(count(FILES_MIN, JOURNAL_FILES_MAX), "how many files it has")] = (
        FILES_MIN
    )

    @property
    def file_bytes(self) -> int:
        """How large each file is, and so the largest record: none spans two files."""
        return _file_bytes(self.bytes_max, self.files)


class SegmentsSection(msgspec.Struct, frozen=True, kw_only=True):
    """The files that messages end in, and the memory in front of them."""

    segment_size: Annotated[
        int,
        Setting(
            size(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, step=SEGMENT_BYTES_STEP),
            "size at which a segment is sealed, for topics that name none",
        ),
    ] = GIB
    tail_bytes_max: Annotated[
        int,
        Setting(size(MIB, 1024 * GIB), "memory of a shard for the newest messages"),
    ] = 256 * MIB
    receive_bytes_max: Annotated[
        int,
        Setting(size(MIB, 1024 * GIB), "memory of a shard for frames that arrive"),
    ] = 256 * MIB
    replies_bytes_max: Annotated[
        int,
        Setting(
            size(MIB, 1024 * GIB),
            "memory of a shard for replies to polls that wait; short of it, replies are shorter",
        ),
    ] = 256 * MIB
    piece_bytes: Annotated[
        int, Setting(size(64 * KIB, FRAME_BYTES_MAX), "what a replica fetches at once")
    ] = 4 * MIB
    direct_reads: Annotated[
        bool, Setting(Flag(), "whether Spark is told which files hold sealed segments")
    ] = True


class TopicsSection(msgspec.Struct, frozen=True, kw_only=True):
    """What topics are like that do not say it themselves."""

    message_expiry: Annotated[
        int,
        Setting(
            duration(SECOND, _EXPIRY_MAX, unbounded="never"), "age at which messages may be removed"
        ),
    ] = UNLIMITED
    max_topic_size: Annotated[
        int,
        Setting(
            size(SEGMENT_BYTES_MIN, _TOPIC_BYTES_MAX, unbounded="unlimited"),
            "size above which the oldest segments go",
        ),
    ] = UNLIMITED
    durability_minimum: Annotated[
        str,
        Setting(
            Word(("replicated", "persisted")),
            "weakest class of durability; a topic that asks for a weaker one gets this",
            dev="replicated",
        ),
    ] = "persisted"


class RetentionSection(msgspec.Struct, frozen=True, kw_only=True):
    """The removal of old messages."""

    interval: Annotated[
        Micros, Setting(duration(SECOND, DAY), "how often topics are looked through")
    ] = Micros(MINUTE)
    consumers: Annotated[
        str,
        Setting(
            Word((RESPECT_CONSUMERS, IGNORE_CONSUMERS)),
            "whether messages stay that a stored offset still needs; a topic can say otherwise",
        ),
    ] = RESPECT_CONSUMERS
    consumers_idle: Annotated[
        Micros,
        Setting(
            duration(MINUTE, 365 * DAY),
            "a stored offset keeps no messages after so long without a store, poll or join",
        ),
    ] = Micros(7 * DAY)


class ClockSection(msgspec.Struct, frozen=True, kw_only=True):
    """How far the clock of the machine is trusted."""

    tolerance: Annotated[
        Micros,
        Setting(
            duration(SECOND, _EXPIRY_MAX, step=SECOND),
            "a clock that leaps by more, or a longer downtime, waits for `node accept-time`",
            dev=30 * DAY,
        ),
    ] = Micros(5 * MINUTE)


class ConsumersSection(msgspec.Struct, frozen=True, kw_only=True):
    """The stored offsets of consumers."""

    offset_ahead_policy: Annotated[
        str,
        Setting(
            Word(("fail", "clamp")),
            "a stored offset beyond the data: an error until it is set anew, or moved to the end",
        ),
    ] = "fail"


class SessionsSection(msgspec.Struct, frozen=True, kw_only=True):
    """Clients that have logged in."""

    heartbeat_interval: Annotated[
        Micros,
        Setting(duration(SECOND, HOUR), "how often members of consumer groups must be heard"),
    ] = Micros(30 * SECOND)
    stale_factor: Annotated[
        float, Setting(Factor(1.0, 100.0), "how many of these intervals make a member stale")
    ] = 1.2


class SecuritySection(msgspec.Struct, frozen=True, kw_only=True):
    """Passwords and what their hashes cost."""

    password_min: Annotated[
        int,
        Setting(
            count(PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX),
            "shortest new password",
            dev=PASSWORD_BYTES_MIN,
        ),
    ] = 12
    hashes_at_once: Annotated[
        int,
        Setting(
            count(1, 8),
            "passwords that are hashed at the same time; each takes a core from those who send",
        ),
    ] = 1
    hashes_waiting_max: Annotated[
        int, Setting(count(1, 65_536), "passwords that wait for that; more are told to come again")
    ] = 256
    argon2_time_cost: Annotated[
        int, Setting(count(1, 16), "passes of argon2id over its memory")
    ] = 2
    argon2_memory: Annotated[
        int, Setting(size(8 * KIB, 64 * MIB, step=KIB), "memory of one hash")
    ] = 19 * MIB
    argon2_parallelism: Annotated[int, Setting(count(1, 4), "lanes of one hash")] = 1
    lockout_failures: Annotated[
        int,
        Setting(count(1, 1000), "wrong passwords of one user, or from one address, until it waits"),
    ] = 5
    lockout_pause_max: Annotated[
        Micros,
        Setting(
            duration(SECOND, HOUR, step=SECOND),
            "longest wait; each is twice the one before, from 1 s",
        ),
    ] = Micros(MINUTE)


class AuditSection(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log: who logged in, changed users, tokens or permissions, or removed data."""

    file: Annotated[
        Path,
        Setting(
            LogFile(),
            "where its lines go: a file, `stderr`, or `off`",
            dev=LogFile.OFF,
        ),
    ] = LogFile.STDERR


class ClusterSection(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, and how long its replicas wait for each other."""

    name: Annotated[
        str, Setting(Name(), "name of the cluster; fixed when a data folder is first used")
    ] = "headrace"
    heartbeat_interval: Annotated[Micros, Setting(_wait, "how often a primary is heard of")] = (
        Micros(500 * MILLISECOND)
    )
    heartbeat_timeout: Annotated[
        Micros,
        Setting(
            duration(2 * SECOND, HOUR, step=TICK), "silence after which another primary is sought"
        ),
    ] = Micros(5 * SECOND)
    prepare_retransmit_interval: Annotated[
        Micros, Setting(_wait, "until an operation without a quorum is sent again")
    ] = Micros(250 * MILLISECOND)
    view_change_retransmit_interval: Annotated[
        Micros, Setting(_wait, "until a vote is sent again")
    ] = Micros(500 * MILLISECOND)
    view_change_status_timeout: Annotated[
        Micros,
        Setting(
            _wait, "until a view that does not come about gives way; up to 4 x when many do so"
        ),
    ] = Micros(5 * SECOND)
    request_start_view_retransmit_interval: Annotated[
        Micros, Setting(_wait, "until a replica asks again which view it is")
    ] = Micros(SECOND)
    view_probe_attempts_max: Annotated[
        int, Setting(count(1, 100), "how often it asks before it starts a view itself")
    ] = 5
    repair_retry_interval: Annotated[
        Micros, Setting(_wait, "until missing operations are asked for again")
    ] = Micros(SECOND)
    transfer_retry_interval: Annotated[
        Micros, Setting(_wait, "until a piece of state is asked for again")
    ] = Micros(SECOND)
    pipeline_ops_max: Annotated[
        int, Setting(count(1, PIPELINE_OPS_MAX), "uncommitted operations of one partition")
    ] = 32
    repair_ops_max: Annotated[
        int, Setting(count(1, 1024), "operations that are asked for at once")
    ] = 128


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of a node; made by `headrace.server.config.load.load_config`."""

    profile: Profile = "serve"
    server: ServerSection = ServerSection()
    bus: BusSection = BusSection()
    root: RootSection = RootSection()
    tcp: TcpSection = TcpSection()
    websocket: WebSocketSection = WebSocketSection()
    quic: QuicSection = QuicSection()
    http: HttpSection = HttpSection()
    tls: TlsSection = TlsSection()
    journal: JournalSection = JournalSection()
    metadata_journal: MetadataJournalSection = MetadataJournalSection()
    segments: SegmentsSection = SegmentsSection()
    topics: TopicsSection = TopicsSection()
    retention: RetentionSection = RetentionSection()
    clock: ClockSection = ClockSection()
    consumers: ConsumersSection = ConsumersSection()
    sessions: SessionsSection = SessionsSection()
    security: SecuritySection = SecuritySection()
    audit: AuditSection = AuditSection()
    cluster: ClusterSection = ClusterSection()
    origins: Mapping[str, str] = {}  # of the keys that were given, by path

    def origin(self, path: str) -> str:
        """Return the origin of a key's value: file, environment, flag or default."""
        assert path in SETTINGS
        return self.origins.get(path, "default")

    def value(self, path: str) -> object:
        """Return the value of a key by its path."""
        section, _, key = path.partition(".")
        return getattr(getattr(self, section), key)

    def show(self, path: str) -> str:
        """Return the value of a key as it would be written; a secret is masked."""
        return SETTINGS[path].setting.kind.show(self.value(path))


class Declared(msgspec.Struct, frozen=True):
    """One key, with its place."""

    section: str
    key: str
    setting: Setting
    default: object

    @property
    def path(self) -> str:
        """The full name of the key."""
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """The environment variable of the key."""
        return f"HEADRACE_{self.section}_{self.key}".upper()

    def default_of(self, profile: Profile) -> object:
        """Return the default of the key."""
        if profile == "dev" and self.setting.dev is not None:
            return self.setting.dev
        return self.default


def _file_bytes(bytes_max: int, files: int) -> int:
    share = bytes_max // files
    return share - share % FILE_ALIGNMENT


def _declared(section: str, kind: type[msgspec.Struct]) -> list[Declared]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        Declared(section, field.name, hints[field.name].__metadata__[0], field.default)
        for field in msgspec.structs.fields(kind)
    ]


SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    name: kind
    for name, kind in get_type_hints(ServerConfig).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
SETTINGS: Mapping[str, Declared] = {
    declared.path: declared
    for section, kind in SECTIONS.items()
    for declared in _declared(section, kind)
}
