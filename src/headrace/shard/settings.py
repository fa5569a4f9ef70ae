"""What a shard is told of the node when it starts."""

from collections.abc import Mapping

import msgspec

from headrace.base.limits import SEGMENT_BYTES_MAX
from headrace.base.placement import Placement
from headrace.metadata.admission import TopicDefaults
from headrace.partitions.index import INDEX_STEP_BYTES
from headrace.partitions.options import AheadPolicy
from headrace.partitions.reply_room import REPLIES_BYTES_MAX
from headrace.partitions.shared import INDEXES_MAX
from headrace.shard.config import PlaneConfig
from headrace.wire.numbers import Transport

BYTES_RETAINED_MAX = (1 << 64) - 1
SECOND_TICKS = 100


class LockoutSettings(msgspec.Struct, frozen=True):
    """How many failures are free, and the longest pause."""

    failures_free: int = 5
    pause_ticks_max: int = 60 * SECOND_TICKS


class ShardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The planes, and what the server decides for those who do not say; durations in ticks."""

    metadata: PlaneConfig
    data: PlaneConfig
    placement: Placement = Placement()
    topic_defaults: TopicDefaults
    profile: str = "serve"  # how the node was started, for those who ask
    server_version: str
    server_semver: int
    root_username: str
    root_password_hash: str
    password_bytes_min: int
    offsets_ahead: AheadPolicy = AheadPolicy.FAIL
    piece_bytes: int
    index_step_bytes: int = INDEX_STEP_BYTES
    indexes_max: int = INDEXES_MAX  # of sealed segments, in memory
    tail_bytes_max: int
    poll_bytes_max: int  # of one reply, over transports that have no bound of their own
    poll_bytes_max_of: Mapping[Transport, int] = {}
    replies_bytes_max: int = REPLIES_BYTES_MAX  # of all that wait
    # Where the segments of partitions lie, for readers of the same host; empty: nobody is told.
    segments_folder: str = ""
    # Bounds on every partition, whatever its topic says; replicas must have them alike.
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    retained_bytes_max: int = BYTES_RETAINED_MAX  # where a topic has a bound at all
    store_bytes: int = 64 << 10  # so much of one partition goes to its segment at once,
    store_ticks: int = 5  # or what has waited so long
    retention_ticks: int = 6000
    reconcile_ticks: int = SECOND_TICKS  # at least so often partitions are compared (RC-2)
    # Whether retention waits for consumers if a topic does not say, and how long for silent ones.
    is_waiting_for_consumers: bool = True
    consumers_idle_ticks: int = 7 * 24 * 3600 * 100
    stale_ticks: int = 3600
    clock_tolerance: int = 300_000_000  # microseconds; a clock that is further off is not believed
    supported_time: int = 0  # what the monotonic clock says of the time of the start, if anything
    lockout: LockoutSettings = LockoutSettings()
    disk_polls_max: int = 256
