"""How a consumer reads: positions, polls, commits and membership of a group. No I/O.

```
begin ─► (join) ─► assign ─► load positions ─► poll in turn ─► buffer ─► take ─► done ─► store
            ▲         ▲                           │ the word to sync, 5009
            └─ no member any more ◄── sync ◄──────┘ every few seconds too
```

A consumer keeps its own positions and polls by offset, so it sees when the server skips (D12). A
message counts as done when the next one is asked for; only what is done is ever stored.

Invariants: a position moves only past what was buffered, or past a range that was reported lost;
            nothing that was not handed out is stored.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto

from headrace.client.call import Call, Flow, ask, pause
from headrace.client.calls.groups import (
    create_group,
    get_offset,
    join_group,
    leave_group,
    store_offset,
    sync_group,
)
from headrace.client.calls.messages import make_strategy, poll_from
from headrace.client.calls.names import (
    ANONYMOUS,
    TopicName,
    join_topic,
)
from headrace.client.calls.streams import get_topic
from headrace.client.consumer_options import ConsumerSettings
from headrace.client.errors import (
    AlreadyExists,
    DataLost,
    NotFound,
    NotOwned,
    OffsetsReset,
    RefusedByServer,
    Unavailable,
)
from headrace.client.messages import Message, Messages
from headrace.wire.commands.messages import RESYNC_PARTITION
from headrace.wire.errors import Code
from headrace.wire.identifiers import FromOffset, Last, Strategy

ASSIGNMENT_SECONDS = 5.0  # how old the list of partitions may get
RESET_SECONDS = 5.0  # a replica that lags ends early too, but not for long
IDLE_SECONDS_MIN = 0.001
JOINS_MAX = 5


class _Round(Enum):
    """What became of a round of polls."""

    FOUND = auto()  # messages are here
    EMPTY = auto()  # no partition has any
    DEALT = auto()  # the partitions were dealt anew meanwhile: nobody knows


class Reader:
    """One consumer of one topic; a face drives its flows and hands out what they buffered."""

    def __init__(
        self,
        topic: TopicName,
        settings: ConsumerSettings,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.lost_count = 0
        self._topic = topic
        self._now = now
        self._positions: dict[int, int | Strategy] = {}  # what to poll next, by partition
        self._turn: list[int] = []  # partitions, the next to poll first
        self._begun = False
        self._assigned = now()  # when the partitions were last asked for
        self._must_assign = False  # they have changed since
        self._generation = -1  # of the group when it was last asked
        self._has_moved = False  # whether it was another one then
        self._committed = 0.0  # when offsets were last stored
        self._short_since: dict[int, float] = {}  # partitions that end too early, since when
        self._done: dict[int, int] = {}  # last offset done with, by partition, not stored yet
        self._buffer: Messages | None = None
        self._made: list[Message] | None = None  # its messages, once somebody wants them singly
        self._index = 0  # of the next message to hand out
        self._handed: Message | None = None  # the one that its user works on

    # Handing out: no I/O.

    def take(self) -> Message | None:
        """Give the next message if it is here and nothing must be stored first."""
        self.finish_handed()
        buffer = self._buffer
        if buffer is None or self._is_commit_due():
            return None
        if self._made is None:
            self._made = list(buffer)  # all at once: much cheaper than one by one
        message = self._handed = self._made[self._index]
        self._index += 1
        if self._index == len(buffer):
            self._buffer = None
        return message

    def take_batch(self) -> Messages | None:
        """Give all that is here at once; it counts as done with the next call."""
        self.finish_handed()
        buffer = self._buffer
        if buffer is None or self._is_commit_due():
            return None
        if self._index:
            raise ValueError("take messages one by one or in batches, not both from one poll")
        self._handed = buffer[len(buffer) - 1]
        self._buffer = None
        return buffer

    def finish_handed(self) -> None:
        """Count the message that was handed out last as done."""
        handed, self._handed = self._handed, None
        if handed is not None:
            self._done[handed.partition] = handed.offset

    def _is_commit_due(self) -> bool:
        if not self._done or self.settings.commit == "manual":
            return False
        is_each = self.settings.commit == "each"
        return is_each or self._now() - self._committed >= self.settings.commit_seconds

    # Flows.

    def work(self) -> Flow[bool]:
        """Do whatever `take` waits for; give False when nothing came in time."""
        if not self._begun:
            yield from self._begin()
        if self._is_commit_due():
            yield from self.store()
        deadline = None
        if self.settings.wait_seconds is not None:
            deadline = self._now() + self.settings.wait_seconds
        idle = IDLE_SECONDS_MIN
        while self._buffer is None:
            outcome = yield from self._poll_round()
            if outcome == _Round.FOUND:
                break
            if outcome == _Round.DEALT:
                idle = IDLE_SECONDS_MIN
            elif deadline is not None and self._now() + idle > deadline:
                return False
            yield from pause(idle)
            idle = min(2 * idle, self.settings.idle_seconds_max)
            if self._is_commit_due():
                yield from self.store()
        return True

    def store(self, message: Message | None = None) -> Flow[None]:
        """Store what is done; with a message, up to that one instead.

        Raises:
            NotOwned: By hand only: the partition was dealt to another member.
        """
        if self.settings.who is ANONYMOUS:
            raise ValueError("commit: this consumer has neither name nor group to store for")
        marks = dict(self._done) if message is None else {message.partition: message.offset}
        for partition, offset in marks.items():
            yield from self._store_mark(partition, offset)
        self._committed = self._now()

    def _store_mark(self, partition: int, offset: int) -> Flow[None]:
        """Store an offset, unless others have stored as much or more.

        Who lost its connection was taken for gone: it joins again and may own the partition again.
        Who does not own it any more leaves it to its owner, who reads on from what was stored last:
        messages come twice, none is left out.
        """
        refused: NotOwned | None = None
        for _ in range(JOINS_MAX):
            try:
                yield from self._store_one(partition, offset)
            except NotOwned as error:
                refused = error
                self._forget(partition)
                yield from self._assign()
            else:
                return
            position = self._positions.get(partition)
            if position is None:
                break
            if isinstance(position, int) and position > offset + 1:
                return
        self._done.pop(partition, None)
        self._forget(partition)
        if self.settings.commit == "manual":
            assert refused is not None
            raise refused

    def _store_one(self, partition: int, offset: int) -> Flow[None]:
        settings = self.settings
        call = store_offset(
            self._topic, partition, offset, consumer=settings.name, group=settings.group
        )
        try:
            yield from ask(call)
        except NotOwned:
            raise
        except RefusedByServer:
            self._done.pop(partition, None)  # Asking again would only get the same answer.
            raise
        if self._done.get(partition, offset + 1) <= offset:
            del self._done[partition]

    def end(self, *, is_clean: bool) -> Flow[None]:
        """Store what is done, unless that is done by hand, and leave the group.

        When it ended by an error (`is_clean` is False), the message handed out last is not done.
        """
        if is_clean:
            self.finish_handed()
        if not self._begun:
            return
        if self.settings.commit != "manual" and self._done:
            yield from self.store()
        if self.settings.group is not None:
            with suppress(NotFound):  # A lost connection, or who deleted the group, was faster.
                yield from ask(leave_group(self._topic, self.settings.group))

    # Partitions.

    def _begin(self) -> Flow[None]:
        if self.settings.group is not None:
            yield from self._join()
        yield from self._assign()
        self._committed = self._now()
        self._begun = True

    def _join(self) -> Flow[None]:
        """Become a member; a group that does not exist is made."""
        group = self.settings.group
        assert group is not None
        try:
            yield from ask(join_group(self._topic, group))
        except NotFound as error:
            if error.code != Code.CONSUMER_GROUP_ID_NOT_FOUND or not isinstance(group, str):
                raise
            with suppress(AlreadyExists):  # Another member was faster.
                yield from ask(create_group(self._topic, group))
            yield from ask(join_group(self._topic, group))

    def _assign(self) -> Flow[None]:
        """Ask which partitions are to be read, and where each begins."""
        wanted = yield from self._ask_partitions()
        for partition in [each for each in self._positions if each not in wanted]:
            if partition in self._done and self.settings.commit != "manual":
                # The next owner waits for it, if this member still owns the partition.
                with suppress(NotOwned):
                    yield from self._store_one(partition, self._done[partition])
                self._done.pop(partition, None)
            self._forget(partition)
        is_first = not self._begun
        for partition in wanted:
            if partition in self._positions:
                if self._has_moved:
                    yield from self._catch_up(partition)
            else:
                position = yield from self._find_position(partition, is_first=is_first)
                self._positions[partition] = position
        self._turn = [each for each in self._turn if each in self._positions]
        self._turn += [each for each in wanted if each not in self._turn]
        self._assigned = self._now()
        self._must_assign = False

    def _ask_partitions(self) -> Flow[tuple[int, ...]]:
        settings = self.settings
        if settings.partition is not None:
            return (settings.partition,)
        if settings.group is None:
            details = yield from ask(get_topic(self._topic))
            return tuple(partition.id for partition in details.partitions)
        for _ in range(JOINS_MAX):
            assignment = yield from ask(sync_group(self._topic, settings.group))
            if assignment is not None:
                self._has_moved = assignment.generation != self._generation
                self._generation = assignment.generation
                return assignment.partitions
            # A lost connection ended the membership, and others may have read on since then.
            self._positions.clear()
            self._buffer = None
            yield from self._join()
        raise Unavailable(f"the membership of group {settings.group!r} does not last")

    def _forget(self, partition: int) -> None:
        self._positions.pop(partition, None)
        self._short_since.pop(partition, None)
        self._must_assign = True
        if self._buffer is not None and self._buffer.partition == partition:
            self._buffer = None

    def _find_position(self, partition: int, *, is_first: bool) -> Flow[int | Strategy]:
        """Give where to begin with a partition: after what is stored, else where told."""
        settings = self.settings
        if settings.who is not ANONYMOUS:
            stored = yield from ask(
                get_offset(self._topic, partition, consumer=settings.name, group=settings.group)
            )
            done = self._done.get(partition, -1)
            last = -1 if stored is None else stored.stored_offset
            if done <= last:
                self._done.pop(partition, None)  # Never store less than others have.
            if max(done, last) >= 0:
                return max(done, last) + 1
        if settings.group is None and not is_first:
            return 0  # A partition that was made since: all of it is new.
        if settings.start == "latest":
            polled = yield from ask(self._poll(partition, Last(), count=1))
            is_new = not len(polled) and not polled.current_offset
            return 0 if is_new else polled.current_offset + 1
        if isinstance(settings.start, int):
            return settings.start
        return make_strategy(settings.start)

    def _catch_up(self, partition: int) -> Flow[None]:
        """Leave out what others have done if they had the partition for a while."""
        settings = self.settings
        stored = yield from ask(
            get_offset(self._topic, partition, consumer=settings.name, group=settings.group)
        )
        upcoming = self._positions[partition]
        if self._buffer is not None and self._buffer.partition == partition:
            upcoming = self._buffer[self._index].offset
        if stored is None or (isinstance(upcoming, int) and stored.stored_offset < upcoming):
            return
        self._forget(partition)
        self._done.pop(partition, None)
        self._positions[partition] = stored.stored_offset + 1

    # Polling.

    def _poll_round(self) -> Flow["_Round"]:
        """Poll partitions in turn until one has messages."""
        is_old = self._now() - self._assigned >= ASSIGNMENT_SECONDS
        if self._must_assign or (is_old and self.settings.partition is None):
            yield from self._assign()
        for _ in range(len(self._turn)):
            partition = self._turn.pop(0)
            self._turn.append(partition)
            if (yield from self._poll_one(partition)):
                return _Round.FOUND
        return _Round.DEALT if self._must_assign else _Round.EMPTY

    def _poll_one(self, partition: int) -> Flow[bool]:
        position = self._positions[partition]
        strategy = FromOffset(position) if isinstance(position, int) else position
        try:
            polled = yield from ask(self._poll(partition, strategy, count=self.settings.count))
        except NotOwned:
            self._must_assign = True
            return False
        if polled.partition == RESYNC_PARTITION:
            self._must_assign = True
            return False
        if not len(polled):
            self._check_end(partition, position, polled.current_offset)
            return False
        self._short_since.pop(partition, None)
        messages = self._read(partition, position, polled)
        self._buffer, self._made, self._index = messages, None, 0
        self._positions[partition] = messages.last_offset + 1
        return True

    def _read(self, partition: int, position: int | Strategy, polled: Messages) -> Messages:
        """Give what was polled, up to the first gap; a gap before it is a loss."""
        first = polled.first_offset
        if isinstance(position, int) and first > position:
            self._positions[partition] = first
            self._lose(partition, first=position, end=first)
        return polled.first(polled.run_length())

    def _lose(self, partition: int, *, first: int, end: int) -> None:
        self.lost_count += end - first
        if self.settings.on_loss == "raise":
            topic = join_topic(self._topic)
            raise DataLost(topic, partition, first=first, end=end, resume=end)

    def _check_end(self, partition: int, position: int | Strategy, last: int) -> None:
        """Notice a partition that ends before where this consumer stands."""
        if not isinstance(position, int) or position <= last + 1:
            self._short_since.pop(partition, None)
            return
        since = self._short_since.setdefault(partition, self._now())
        if self._now() - since < RESET_SECONDS:
            return
        del self._short_since[partition]
        self._positions[partition] = 0
        self._done.pop(partition, None)
        if self.settings.on_loss == "raise":
            topic = join_topic(self._topic)
            raise OffsetsReset(topic, partition, position=position, last=last)

    def _poll(self, partition: int, strategy: Strategy, *, count: int) -> Call[Messages]:
        return poll_from(
            self._topic,
            partition,
            strategy,
            who=self.settings.who,
            count=count,
            offset_min=strategy.offset if isinstance(strategy, FromOffset) else 0,
        )
