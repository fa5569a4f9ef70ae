"""Headers of the metadata feed, and of questions to all shards."""

from enum import IntEnum

from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind


class Subject(IntEnum):
    """What a question to other shards is about; shard 0 knows all clients and asks for none."""

    SIZES = 2
    COUNTERS = 3
    RECONCILER = 4
    SHARD = 5
    HOLDERS = 6
    SNAPSHOT = 7


class FeedOpHeader(Header, frozen=True):
    """One committed metadata op; the body is its prepare, as a whole frame."""

    op: int = 0
    previous: int = 0  # the op that was fed before it


class FeedImageHeader(Header, frozen=True):
    """A piece of the metadata after `op`."""

    op: int = 0
    commit: int = 0  # of shard 0
    offset: int = 0
    total: int = 0


class FeedAskHeader(Header, frozen=True):
    """How far a shard is, and what it asks for: what follows, or only shard 0's commit."""

    op: int = 0  # the last op that it was fed
    commit: int = 0
    number: int = 0  # of the question for shard 0's commit; 0 if it asks none
    settled: int = 0  # one above the revision at which its partitions are as metadata says
    orders: int = 0  # the last order taken
    has_image: int = 0
    is_lacking: int = 0  # whether it wants what follows `op`


class FeedPointHeader(Header, frozen=True):
    """How far shard 0's commit is, read after it took the question of this number."""

    op: int = 0  # the last op that was fed
    commit: int = 0
    number: int = 0
    departures: int = 0  # the last departure taken
    is_current: int = 0  # whether nobody can have decided more by then (O6.2)


class GatherHeader(Header, frozen=True):
    """A question to a shard, or its answer under the same number."""

    number: int = 0
    subject: int = 0
    commit: int = 0  # of the metadata that the answer must know; in an answer: that it knows


FEED_OP = Layout(
    FrameKind.FEED_OP, FeedOpHeader, reserved_zero=True, op=(128, 8), previous=(136, 8)
)
FEED_IMAGE = Layout(
    FrameKind.FEED_IMAGE,
    FeedImageHeader,
    reserved_zero=True,
    op=(128, 8),
    offset=(136, 8),
    total=(144, 8),
    commit=(152, 8),
)
FEED_ASK = Layout(
    FrameKind.FEED_ASK,
    FeedAskHeader,
    reserved_zero=True,
    commit=(128, 8),
    number=(136, 8),
    op=(144, 8),
    settled=(152, 8),
    orders=(160, 8),
    has_image=(168, 1),
    is_lacking=(169, 1),
)
FEED_POINT = Layout(
    FrameKind.FEED_POINT,
    FeedPointHeader,
    reserved_zero=True,
    commit=(128, 8),
    number=(136, 8),
    departures=(144, 8),
    op=(152, 8),
    is_current=(160, 1),
)
GATHER = Layout(
    FrameKind.GATHER,
    GatherHeader,
    reserved_zero=True,
    number=(128, 8),
    subject=(136, 1),
    commit=(144, 8),
)
GATHERED = Layout(
    FrameKind.GATHERED,
    GatherHeader,
    reserved_zero=True,
    number=(128, 8),
    subject=(136, 1),
    commit=(144, 8),
)
