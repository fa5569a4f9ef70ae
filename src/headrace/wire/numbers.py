"""The numbers that name things on the wire: frame kinds, operations, enumerations.

Python 3.11 takes longer to find a member of an enumeration than to call a function. So modules that
every request passes compare with a constant of their own, such as `_SEND` (decision 0029).
"""

from enum import IntEnum


class FrameKind(IntEnum):
    """What a frame is; the byte `command` of every header. Other numbers are not used."""

    REQUEST = 5
    PREPARE = 6
    PREPARE_OK = 7
    REPLY = 8
    START_VIEW_CHANGE = 10
    DO_VIEW_CHANGE = 11
    START_VIEW = 12
    EVICTION = 13
    REPLICA_HELLO = 14
    REPLICA_CHALLENGE = 15
    REPLICA_FINISH = 16
    REQUEST_START_VIEW = 17
    REQUEST_PREPARES = 18
    REPAIR_PREPARE = 19
    RANGE_EVICTED = 21
    REQUEST_STATE_TRANSFER = 22
    STATE_TRANSFER_TARGET = 23
    REQUEST_STATE_CHUNK = 24
    STATE_CHUNK = 25
    FORWARD_REGISTER = 26
    FORWARD_REGISTER_RESULT = 27
    FORWARD_LOGOUT = 28
    FORWARD_LOGOUT_RESULT = 29
    # Ours alone, between replicas.
    NODE_HEARTBEAT = 30
    RECOVERY_REPORT = 31
    # Ours alone, between the shards of a node: `docs/formats/bus.md`.
    FORWARDED_REQUEST = 32
    FORWARDED_REPLY = 33
    CONNECTION_SETUP = 40
    REPLICA_INBOUND_SETUP = 41
    REPLICA_INBOUND_DONE = 42
    FORWARD_REPLICA_SEND = 43
    CONNECTION_ORDER = 44
    CONNECTION_GONE = 45
    FEED_OP = 46
    FEED_IMAGE = 47
    FEED_ASK = 48
    FEED_POINT = 49
    GATHER = 50
    GATHERED = 51


class Operation(IntEnum):
    """What a request or a prepare asks for; it decides the plane and the framing of the reply."""

    RESERVED = 0
    REGISTER = 1
    NON_REPLICATED = 2
    LOGOUT = 3
    # Only the server itself proposes these.
    CREATE_TOPIC_WITH_ASSIGNMENTS = 64
    CREATE_PARTITIONS_WITH_ASSIGNMENTS = 65
    REMOVE_CONSUMER_GROUP_MEMBER = 66
    COMPLETE_CONSUMER_GROUP_REVOCATION = 67
    TRUNCATE_PARTITION = 68
    # Metadata.
    CREATE_STREAM = 128
    UPDATE_STREAM = 129
    DELETE_STREAM = 130
    PURGE_STREAM = 131
    CREATE_TOPIC = 132
    UPDATE_TOPIC = 133
    DELETE_TOPIC = 134
    PURGE_TOPIC = 135
    CREATE_PARTITIONS = 136
    DELETE_PARTITIONS = 137
    DELETE_SEGMENTS = 138
    CREATE_CONSUMER_GROUP = 139
    DELETE_CONSUMER_GROUP = 140
    CREATE_USER = 141
    UPDATE_USER = 142
    DELETE_USER = 143
    CHANGE_PASSWORD = 144
    UPDATE_PERMISSIONS = 145
    CREATE_PERSONAL_ACCESS_TOKEN = 146
    DELETE_PERSONAL_ACCESS_TOKEN = 147
    JOIN_CONSUMER_GROUP = 148
    LEAVE_CONSUMER_GROUP = 149
    # Partitions.
    SEND_MESSAGES = 160
    STORE_CONSUMER_OFFSET = 161
    DELETE_CONSUMER_OFFSET = 162
    # Ours, proposed by the server itself (O8).
    DISCONNECT = 224  # a client's connection is gone, its table entry stays
    AUTO_COMMIT_OFFSET = 225  # a poll stores what it served; never moves backwards
    PURGE_PARTITION = 226  # begins a new history at offset 0
    RETAIN = 227  # drops sealed segments that are too old or too many
    LOST_RANGE = 228  # offsets that a power failure may have lost: never assigned again
    FORGET_GROUP_OFFSETS = 229  # of a consumer group that was deleted
    NOTE_TIME = 230  # carries the time in its stamp alone
    # Ours, and open to clients.
    ACCEPT_TIME = 231  # the time of the clock holds from now on


# Operations and command codes of our own lie in these ranges (O8).
OWN_OPERATIONS = range(224, 240)
OWN_CODE_MIN = 90_001

_OPERATIONS = {int(operation): operation for operation in Operation}
_INTERNAL = range(64, 69)
_METADATA = range(128, 150)
_PARTITION = range(160, 163)
_OWN_METADATA = (Operation.NOTE_TIME, Operation.ACCEPT_TIME)
_OWN_OF_CLIENTS = (Operation.ACCEPT_TIME,)


def find_operation(number: int) -> Operation | None:
    """Return the operation of a number from the wire, or nothing if there is none."""
    return _OPERATIONS.get(number)


def is_internal(operation: Operation) -> bool:
    """Whether only a server may propose it."""
    return operation in _INTERNAL


def is_unavailable(number: int) -> bool:
    """Whether a number is one of ours that this server does not accept from a client (O8)."""
    return number in OWN_OPERATIONS and number not in _OWN_OF_CLIENTS


def is_metadata(operation: Operation) -> bool:
    """Whether the metadata group orders it."""
    if is_partition(operation):
        return False
    return operation in _METADATA or operation in _INTERNAL or operation in _OWN_METADATA


def is_partition(operation: Operation) -> bool:
    """Whether a partition's own group orders it; DeleteSegments is one, despite its number."""
    return operation in _PARTITION or operation == Operation.DELETE_SEGMENTS


def is_stamped(operation: Operation) -> bool:
    """Whether a client's request carries the checksum of its body."""
    return (
        operation in (Operation.REGISTER, Operation.LOGOUT)
        or operation in _METADATA
        or operation in _OWN_OF_CLIENTS
    )


def is_result_framed(operation: Operation) -> bool:
    """Whether the body of a reply begins with a result section.

    A Register reply does so only when it has a body at all: an empty one is a terminal failure.
    """
    if operation in (Operation.DELETE_SEGMENTS, Operation.SEND_MESSAGES):
        return False
    return operation == Operation.REGISTER or is_metadata(operation) or is_partition(operation)


class UserStatus(IntEnum):
    """Whether a user may log in."""

    ACTIVE = 1
    INACTIVE = 2


class Compression(IntEnum):
    """How a topic's clients compress payloads; the server only carries it."""

    NONE = 1
    GZIP = 2


class Transport(IntEnum):
    """How a client is connected; TLS over TCP counts as TCP."""

    TCP = 1
    QUIC = 2
    HTTP = 3
    WEBSOCKET = 4


class Role(IntEnum):
    """The role of a node in its cluster."""

    LEADER = 0
    FOLLOWER = 1


class NodeStatus(IntEnum):
    """The status of a node."""

    HEALTHY = 0
    STARTING = 1
    STOPPING = 2
    UNREACHABLE = 3
    MAINTENANCE = 4
    UNKNOWN = 5


class SnapshotCompression(IntEnum):
    """How the archive of a diagnostic snapshot is packed."""

    STORED = 1
    DEFLATED = 2
    BZIP2 = 3
    ZSTD = 4
    LZMA = 5
    XZ = 6


class SnapshotType(IntEnum):
    """What a diagnostic snapshot holds."""

    FILESYSTEM_OVERVIEW = 1
    PROCESS_LIST = 2
    RESOURCE_USAGE = 3
    TEST = 4
    SERVER_LOGS = 5
    SERVER_CONFIG = 6
    ALL = 100


class OptionsScope(IntEnum):
    """What kind of object an options block belongs to."""

    TOPIC = 1
    STREAM = 2
    USER = 3


class ConsumerKind(IntEnum):
    """Whether a consumer polls alone or as a member of a group."""

    CONSUMER = 1
    GROUP = 2


class Acknowledgement(IntEnum):
    """How far an offset write must go before it is answered."""

    LEADER = 0
    QUORUM = 1


class RegisterOutcome(IntEnum):
    """The outcome of a login that a backup forwarded."""

    OK = 0
    NOT_PRIMARY = 1
    NOT_CAUGHT_UP = 2
    PIPELINE_FULL = 3
    IN_PROGRESS = 4
    CANCELED = 5
    OTHER_USER = 6


class LogoutOutcome(IntEnum):
    """The outcome of a logout that a backup forwarded."""

    OK = 0
    NOT_PRIMARY = 1
    PIPELINE_FULL = 2
    IN_PROGRESS = 3
    CANCELED = 4
