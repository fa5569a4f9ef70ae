"""How a consumer reads: polls in turn, hands out messages, stores offsets. No I/O.

```
begin ─► (join) ─► assign ─► load positions ─► poll in turn ─► buffer ─► take ─► done ─► store
            ▲         ▲                           │ a request to sync, 5009
            └─ not a member ◄─────── sync ◄──────┘ and every few seconds

membership: which partitions      assignment: start positions, stored offsets
positions:  the next offsets      buffer:     polled messages not taken yet
```

A consumer keeps its own positions and polls by offset, so it notices when the server skips messages
(D12). A message counts as processed ("done") when the next one is requested; only offsets of
processed messages are stored.
"""

import time
from collections.abc import Callable
from enum import Enum, auto

from headrace.client.calls.messages import poll_apart, poll_from
from headrace.client.calls.names import ANONYMOUS, TopicName
from headrace.client.consume.assignment import Assignment
from headrace.client.consume.buffer import PollBuffer
from headrace.client.consume.damage import find_unreadable
from headrace.client.consume.options import ConsumerSettings
from headrace.client.consume.positions import Positions
from headrace.client.errors import NotOwned, RefusedByServer, Unreadable
from headrace.client.messages import Message, Messages
from headrace.client.session.call import Ahead, Call, Flow, pause
from headrace.wire.commands.messages import RESYNC_PARTITION
from headrace.wire.errors import Code
from headrace.wire.identifiers import FromOffset, Strategy

IDLE_SECONDS_MIN = 0.001
AHEAD_COUNT_MIN = 100  # messages of a poll: fewer are processed while a request is written
AHEAD_POLLS_PAUSE = 64  # after one that was discarded: other calls use the connection too


class _Round(Enum):
    """The outcome of a round of polls."""

    FOUND = auto()  # there are messages
    EMPTY = auto()  # no partition has messages
    REASSIGNED = auto()  # the partitions were reassigned meanwhile: unknown


class Reader:
    """One consumer of one topic; a client drives its flows and hands out the messages."""

    def __init__(
        self,
        topic: TopicName,
        settings: ConsumerSettings,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._topic = topic
        self._now = now
        self._positions = Positions(topic, settings.on_loss, now)
        self._done = self._positions.done
        self._buffer = PollBuffer(self._done)
        self._assignment = Assignment(topic, settings, self._positions, self._buffer, now)
        self._takes_batches = False
        self._commit_at = 0.0  # when offsets are to be stored next
        self._is_committing = settings.commit != "manual"
        self._is_full: dict[int, bool] = {}  # by partition: whether the last poll was
        self._ahead: tuple[int, FromOffset, Ahead] | None = None
        self._is_ahead_useful = (
            settings.group is None
            and settings.commit != "each"
            and settings.count >= AHEAD_COUNT_MIN
        )
        self._ahead_pause = 0  # for so many polls nothing is sent ahead

    @property
    def lost_count(self) -> int:
        """The number of messages that were gone before they could be read."""
        return self._positions.lost_count

    # Taking messages: no I/O.

    def take(self) -> Message | None:
        """Return the next message if there is one and no offset must be stored first."""
        if self._is_committing and self._now() >= self._commit_at:
            self._buffer.finish()
            if self._done:
                return None
        for message in self._buffer.left:
            return message
        return self._buffer.take()

    def take_batch(self) -> Messages | None:
        """Return all polled messages; they count as processed with the next call."""
        self._takes_batches = True
        self._is_ahead_useful = False  # There is little to process for this client.
        self._buffer.finish()
        if self._is_committing and self._is_commit_due():
            return None
        return self._buffer.take_all()

    @property
    def quick(self) -> PollBuffer | None:
        """Where messages may be taken without `take`: none if it must store offsets in time."""
        return None if self._is_committing else self._buffer

    def finish_handed(self) -> None:
        """Count the message that was handed out last as processed."""
        self._buffer.finish()

    def _is_commit_due(self) -> bool:
        return self._is_committing and bool(self._done) and self._now() >= self._commit_at

    def _note_commit(self) -> None:
        is_each = self.settings.commit == "each"
        self._commit_at = 0.0 if is_each else self._now() + self.settings.commit_seconds

    def skip(self, damaged: Unreadable) -> None:
        """Move the position past messages that the server cannot read."""
        self._positions.upcoming[damaged.partition] = damaged.end

    # Flows.

    def work(self) -> Flow[bool]:
        """Do what `take` waits for; return False if no message came in time."""
        if not self._assignment.has_begun:
            yield from self._assignment.begin()
            self._note_commit()
        if self._is_committing and self._is_commit_due():
            yield from self.store()
        deadline = None
        if self.settings.wait_seconds is not None:
            deadline = self._now() + self.settings.wait_seconds
        idle = IDLE_SECONDS_MIN
        while self._buffer.is_empty:
            outcome = yield from self._poll_round()
            if outcome == _Round.FOUND:
                break
            if outcome == _Round.REASSIGNED:
                idle = IDLE_SECONDS_MIN
            elif deadline is not None and self._now() + idle > deadline:
                return False
            yield from pause(idle)
            idle = min(2 * idle, self.settings.idle_seconds_max)
            if self._is_commit_due():
                yield from self.store()
        if self._is_ahead_useful:
            yield from self._send_ahead()
        return True

    def store(self, message: Message | None = None) -> Flow[None]:
        """Store the offsets of processed messages, or that of the given message.

        Raises:
            NotOwned: The partition was assigned to another member; with manual commits only.
        """
        if self.settings.who is ANONYMOUS:
            raise ValueError("commit: this consumer has neither name nor group to store for")
        self._buffer.count()
        marks = dict(self._done) if message is None else {message.partition: message.offset}
        for partition, offset in marks.items():
            yield from self._assignment.store(partition, offset)
        self._note_commit()

    def end(self, *, is_clean: bool) -> Flow[None]:
        """Store processed offsets, unless commits are manual, and leave the group.

        After an error (`is_clean` is False) the message that was handed out last does not count as
        processed.
        """
        self._buffer.count()
        if is_clean:
            self.finish_handed()
        if not self._assignment.has_begun:
            return
        if self._is_committing and self._done:
            yield from self.store()
        yield from self._assignment.end()

    # Polling.

    def _poll_round(self) -> Flow["_Round"]:
        """Poll partitions in turn until one has messages."""
        assignment = self._assignment
        if assignment.is_due:
            yield from assignment.renew()
        for _ in range(len(assignment.turn)):
            partition = assignment.turn.pop(0)
            assignment.turn.append(partition)
            if (yield from self._poll_one(partition)):
                return _Round.FOUND
        return _Round.REASSIGNED if assignment.must_renew else _Round.EMPTY

    def _poll_one(self, partition: int) -> Flow[bool]:
        position = self._positions.upcoming[partition]
        strategy = FromOffset(position) if isinstance(position, int) else position
        early = None if self._ahead is None else self._take_ahead(partition, strategy)
        try:
            polled: Messages = yield early or self._make_poll(partition, strategy)
        except NotOwned:
            self._assignment.must_renew = True
            return False
        except RefusedByServer as error:
            if error.code != Code.CANNOT_READ_MESSAGE:
                raise
            raise (yield from find_unreadable(self._topic, partition, strategy)) from None
        if polled.partition == RESYNC_PARTITION:
            self._assignment.must_renew = True
            return False
        if not len(polled):
            if early is not None:  # Nothing was there when it was sent; now there may be.
                return (yield from self._poll_one(partition))
            self._positions.meet_end(partition, position, polled.current_offset)
            return False
        if self._is_ahead_useful:
            self._is_full[partition] = len(polled) >= self.settings.count
        self._buffer.fill(self._positions.pass_over(partition, position, polled))
        return True

    def _make_poll(self, partition: int, strategy: Strategy) -> Call[Messages]:
        topic, who, count = self._topic, self.settings.who, self.settings.count
        if not self._takes_batches:
            return poll_apart(topic, partition, strategy, who=who, count=count)
        offset_min = strategy.offset if isinstance(strategy, FromOffset) else 0
        return poll_from(topic, partition, strategy, who=who, count=count, offset_min=offset_min)

    # Polling ahead: the server reads while the user processes.

    def _send_ahead(self) -> Flow[None]:
        """Send the next poll, if it is likely to find messages.

        A member of a group does not: what it has polled it may have to give back. Where each
        message is stored, the store would discard it.
        """
        turn = self._assignment.turn
        if self._ahead is not None or not turn:
            return
        if self._ahead_pause:
            self._ahead_pause -= 1
            return
        position = self._positions.upcoming.get(turn[0])
        if self._is_full.get(turn[0]) and isinstance(position, int):
            strategy = FromOffset(position)
            self._ahead = (turn[0], strategy, Ahead(self._make_poll(turn[0], strategy)))
            yield self._ahead[2]

    def _take_ahead(self, partition: int, strategy: Strategy) -> Call[Messages] | None:
        """Return the call that was sent ahead, if it is this poll."""
        if self._ahead is None:
            return None
        of, begun, ahead = self._ahead
        self._ahead = None
        if ahead.is_discarded:
            self._ahead_pause = AHEAD_POLLS_PAUSE
        return ahead.call if (of, begun) == (partition, strategy) else None
