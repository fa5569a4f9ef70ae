"""What the partitions of a shard share: memory, indexes, tokens, and lists of pending work."""

from collections.abc import Collection, Mapping
from typing import Protocol

from headrace.base.limits import MIB
from headrace.partitions.log import Segment
from headrace.partitions.reply_room import REPLIES_BYTES_MAX, ReplyRoom
from headrace.partitions.tail import TailBudget
from headrace.ports.segments import SegmentEvent

TAIL_BYTES_MAX = 256 * MIB
INDEXES_MAX = 256  # of sealed segments; one of 1 GiB takes 530 KB
_SPACE_RETRY_TICKS = 100


class Owner(Protocol):
    """The requester of effects: a partition."""

    def step(self, event: SegmentEvent) -> None:
        """Take the answer."""

    def retry(self) -> None:
        """Ask again for what found no space."""


class IndexCache:
    """The indexes of sealed segments that were used last."""

    __slots__ = ("_segments", "indexes_max")

    def __init__(self, indexes_max: int) -> None:
        assert indexes_max > 0
        self.indexes_max = indexes_max
        self._segments: dict[Segment, None] = {}  # the longest unused first

    def touch(self, segment: Segment) -> None:
        """Note the use of a sealed segment's index; another's may be dropped for it."""
        assert segment.is_sealed, "the index of an active segment cannot leave"
        assert not segment.is_dropped, "a dropped segment needs no index"
        assert segment.index is not None
        self._segments.pop(segment, None)
        self._segments[segment] = None
        if len(self._segments) > self.indexes_max:
            unused = next(iter(self._segments))
            del self._segments[unused]
            unused.index = None
        assert len(self._segments) <= self.indexes_max, "one leaves for each that is too many"

    def forget(self, segment: Segment) -> None:
        """Drop the index of a segment that is gone."""
        self._segments.pop(segment, None)
        segment.index = None

    def holds(self, segment: Segment) -> bool:
        """Return whether the index of a segment is one of those that are counted."""
        return segment in self._segments

    def check(self) -> None:
        """Assert that the cache is bounded, and holds indexes of segments that are there."""
        assert len(self._segments) <= self.indexes_max, "the longest unused one left"
        for segment in self._segments:
            assert segment.index is not None, "a counted index is in memory"
            assert segment.is_sealed, "the index of an active segment cannot leave"
            assert not segment.is_dropped, "a dropped segment needs no index"


class PartitionsShared:
    """One for a shard; its owner looks here instead of walking all partitions.

    `busy` holds the partitions with effects or finished polls to take; `take_effects` and
    `take_polled` of the machine remove the entry. `fenced` holds those that were fenced, `marked`
    those with the first offset of a consumer group, `sealed` those that sealed a segment; the
    reader removes the entries. Tokens are unique in a shard, so that `step` finds the requester.
    """

    def __init__(
        self,
        tail_bytes_max: int = TAIL_BYTES_MAX,
        indexes_max: int = INDEXES_MAX,
        replies_bytes_max: int = REPLIES_BYTES_MAX,
    ) -> None:
        self.tails = TailBudget(tail_bytes_max)
        self.indexes = IndexCache(indexes_max)
        self.replies = ReplyRoom(replies_bytes_max)
        self.busy: dict[Owner, None] = {}
        self.without_space: dict[Owner, None] = {}
        self.dropping: dict[Owner, None] = {}  # those with files to remove after a checkpoint
        self.fenced: dict[Owner, None] = {}
        self.marked: dict[Owner, None] = {}
        self.sealed: dict[Owner, None] = {}
        self.checkpoints_done = 0
        self._owners: dict[int, Owner] = {}
        self._tokens: dict[Owner, dict[int, None]] = {}  # those that are not answered
        self._token = 0
        self._retry_due = 0
        self._now = 0

    @property
    def is_without_space(self) -> bool:
        """Whether a segment lacks space; also while that is tried again, and a second longer."""
        return bool(self.without_space) or self._now < self._retry_due

    @property
    def tail_bytes(self) -> int:
        """How much memory the tails take; over the limit when too little is stored yet."""
        return self.tails.bytes_held

    @property
    def tail_bytes_max(self) -> int:
        """How much they may take."""
        return self.tails.bytes_max

    def new_token(self, owner: Owner) -> int:
        """Return a token that no effect of this shard had, for an effect with one completion."""
        self._token += 1
        assert self._token not in self._owners, "a token is given out once"
        self._owners[self._token] = owner
        self._tokens.setdefault(owner, {})[self._token] = None
        return self._token

    def step(self, event: SegmentEvent) -> Owner | None:
        """Deliver an event to its requester and return that; drop it if the requester is gone."""
        owner = self._owners.pop(event.token, None)
        if owner is not None:
            assert event.token <= self._token, "an answer has the token of an effect"
            del self._tokens[owner][event.token]
            owner.step(event)
        return owner

    def end_checkpoint(self) -> list[Owner]:
        """Note that the checkpoint is durable; return the partitions that may remove files."""
        self.checkpoints_done += 1
        return list(self.dropping)

    def tick(self, now: int) -> None:
        """Have those without space ask again, once a second (DK4)."""
        assert now >= self._now, "time does not go back"
        self._now = now
        if not self.without_space or now < self._retry_due:
            return
        self._retry_due = now + _SPACE_RETRY_TICKS
        owners = list(self.without_space)
        self.without_space.clear()
        for owner in owners:
            owner.retry()

    def forget(self, owner: Owner) -> None:
        """Forget a removed partition, and drop the answers that it waits for."""
        noted = (self.dropping, self.fenced, self.marked, self.sealed)
        for each in (self.busy, self.without_space, *noted):
            each.pop(owner, None)
        for token in self._tokens.pop(owner, ()):
            del self._owners[token]

    def awaited(self, owner: Owner) -> Collection[int]:
        """Return the tokens of a partition's effects that are not answered."""
        return self._tokens.get(owner, {}).keys()

    def check_owners(self, here: Mapping[Owner, object]) -> None:
        """Assert that only these wait for answers, or have something to do."""
        waiting = [owner for owner, tokens in self._tokens.items() if tokens]
        assert all(owner in here for owner in waiting), "who is gone waits for no answer"
        noted = (
            self.busy,
            self.without_space,
            self.dropping,
            self.fenced,
            self.marked,
            self.sealed,
        )
        for each in noted:
            assert each.keys() <= here.keys(), "what is gone has nothing to do"

    def check(self) -> None:
        """Assert that sums and tokens agree."""
        self.tails.check()
        self.indexes.check()
        self.replies.check()
        assert list(self._owners) == sorted(self._owners), "tokens are given out in order"
        assert len(self._owners) == sum(map(len, self._tokens.values())), "a token has one owner"
        for token, owner in self._owners.items():
            assert token in self._tokens[owner], "an answer finds its way, and back"
            assert 0 < token <= self._token, "tokens are given out in order"
        assert self._retry_due <= self._now + _SPACE_RETRY_TICKS, "a retry is due within a second"
