"""Serves polls: which messages, who may have them, and the offsets that they store.

```
poll -> partition, consumer -> tail: answered now | segments: answered when read
                            -> no room for replies: answered when there is some
     -> auto commit: an op of the partition; what follows waits until it is applied (O3.6)
```

Flow: route, reply.
"""

import struct
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from headrace.base.ids import unpack_namespace
from headrace.metadata.access import reach
from headrace.metadata.target import target_of
from headrace.partitions import gather
from headrace.partitions.gather import Polled, PollStart
from headrace.ports.network import RepliesWritten
from headrace.ports.recovered import Finding
from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.front.auto_commits import AutoCommits, OffsetKey
from headrace.shard.front.connections import Connection
from headrace.shard.front.consumers import consumer_key, may_poll_partition
from headrace.shard.metadata import Metadata
from headrace.shard.owned.local import Local
from headrace.shard.owned.partitions import Partitions
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.wire.commands.messages import POLL_MESSAGES, RESYNC_PARTITION, PollMessages
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import First, FromOffset, FromTimestamp, Next
from headrace.wire.numbers import ConsumerKind
from headrace.wire.requests import RequestHeader

_PREFIX = struct.Struct("<IQI")
_DAMAGES_MAX = 1024


class _Poll(NamedTuple):
    """A poll that is not answered yet."""

    connection: int
    header: RequestHeader
    request: PollMessages
    partition: int
    epoch: int  # of the partition, when the poll came (SH-27)
    key: OffsetKey
    ticket: int = 0  # once it waits


class Polls:
    """All polls of a shard, and the offsets that they store by themselves."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        plane: Plane,
        partitions: Partitions,
        answers: Answers,
        turn: Turn,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._plane = plane
        self._partitions = partitions
        self._answers = answers
        self._new_token = turn.new_token
        self._reading: dict[int, _Poll] = {}  # by ticket: segments are read for them
        self.commits = AutoCommits(plane, partitions, answers)
        self._room = partitions.shared.replies
        self._short: list[_Poll] = []  # wait until there is room for their replies
        self._sent: dict[int, int] = {}  # bytes of replies in this turn, by connection
        self._damages: dict[tuple[str, str], None] = {}  # what was logged already
        self.is_awake = False  # whether the end of the turn has work here

    def poll(self, connection: Connection, header: RequestHeader, request: PollMessages) -> None:
        """Answer a poll, or begin to.

        Raises:
            RefusedError: It is refused.
        """
        topic = reach(
            self._metadata.state,
            connection.user_id,
            POLL_MESSAGES.code,
            request.stream,
            request.topic,
        )
        kind = request.consumer.kind
        partition = request.partition_id
        if kind == ConsumerKind.GROUP:
            if partition is None:
                self._send(connection.number, header, 0, 0, None)
                return
            if not may_poll_partition(topic, request.consumer.id, header.client, partition):
                self._resync(connection.number, header)
                return
        partition = partition or 0
        if partition >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=partition)
        key = OffsetKey(topic.namespace(partition), kind, consumer_key(topic, request.consumer))
        epoch = topic.partitions[partition].created_revision
        self._begin(_Poll(connection.number, header, request, partition, epoch, key))

    def _resync(self, connection: int, header: RequestHeader) -> None:
        """Answer a member that the partition is not assigned to it (CG-14)."""
        self._send(connection, header, RESYNC_PARTITION, 0, None)

    def _begin(self, poll: _Poll) -> bool:
        """Answer a poll or have it wait; whether it is answered.

        Raises:
            RefusedError: It is refused.
        """
        local = self._partitions.locals.get(poll.key.group)
        if local is None or local.target.created_revision != poll.epoch:
            local = self._partitions.find_epoch(poll.key.group, poll.epoch)
        if local.fence is not None:
            raise RefusedError(Code.CANNOT_READ_MESSAGE, why=local.fence)
        assert poll.key.group == local.target.group, "a partition is found by its number"
        is_group = poll.request.consumer.kind == ConsumerKind.GROUP
        if is_group and not self._plane.is_current(local.replica):
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)  # O6.2
        self._partitions.retention.touch(*poll.key)
        if isinstance(poll.request.strategy, Next) and self.commits.is_pending(poll.key):
            parked = self._waiting(poll)
            self.commits.park(poll.key, parked.ticket, partial(self._go_on, parked))
            return False
        if self._room.is_short:
            self._short.append(self._waiting(poll))
            return False
        if len(self._reading) >= self._settings.disk_polls_max:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)
        ticket = self._new_token()
        polled = local.machine.poll(
            ticket,
            self._start_of(local, poll),
            count=poll.request.count,
            bytes_max=self._room.share(self._bytes_max_of(poll.connection)),
        )
        if polled is None:
            assert ticket not in self._reading, "a token is given once"
            self._reading[ticket] = self._waiting(poll)
            self._partitions.storing.is_awake = True
            self._room.hold(ticket)
            return False
        self._answer(local, poll, polled)
        return True

    def _bytes_max_of(self, number: int) -> int:
        """Return how large a reply on a connection may be; those of one turn share that."""
        settings = self._settings
        connection = self._answers.connections.get(number)
        bytes_max = settings.poll_bytes_max
        if connection is not None:
            bytes_max = settings.poll_bytes_max_of.get(connection.transport, bytes_max)
        return bytes_max - self._sent.get(number, 0)

    def _waiting(self, poll: _Poll) -> _Poll:
        """Return a poll with the ticket that it waits by."""
        if poll.ticket:
            assert self._answers.is_waiting(poll.ticket), "who goes on has waited until now"
            return poll
        return poll._replace(ticket=self._answers.wait(poll.connection, poll.header))

    def _start_of(self, local: Local, poll: _Poll) -> PollStart:
        strategy = poll.request.strategy
        if isinstance(strategy, FromOffset):
            return gather.FromOffset(strategy.offset)
        if isinstance(strategy, FromTimestamp):
            return gather.FromTimestamp(strategy.timestamp)
        if isinstance(strategy, Next):
            return gather.NextAfter(local.machine.stored_offset(poll.key.kind, poll.key.id))
        return gather.First() if isinstance(strategy, First) else gather.Last()

    def _answer(self, local: Local, poll: _Poll, polled: Polled) -> None:
        current = local.machine.current_offset
        assert not polled.messages_count or polled.last_offset <= current, "it is committed"
        assert polled.messages_count <= poll.request.count, "nobody gets more than was asked for"
        self._send(poll.connection, poll.header, poll.partition, current, polled)
        if poll.request.auto_commit and polled.messages_count:
            self.commits.commit(local, poll.key, polled.last_offset)

    def _send(
        self,
        connection: int,
        header: RequestHeader,
        partition: int,
        current: int,
        polled: Polled | None,
    ) -> None:
        answers = self._answers
        if polled is None or not polled.messages_count:
            answers.reply(connection, header, _PREFIX.pack(partition, current, 0))
            return
        assert polled.first_offset <= polled.last_offset, "an answer has a message"
        span = polled.last_offset - polled.first_offset + 1
        assert polled.messages_count <= span, "each message has its own offset"
        prefix = _PREFIX.pack(partition, current, polled.messages_count)
        size = len(prefix) + sum(len(part) for part in polled.parts)
        answers.reply_parts(connection, header, (prefix, *polled.parts), size)
        self._room.send(size)
        self._sent[connection] = self._sent.get(connection, 0) + size
        self.is_awake = True

    def on_written(self, event: RepliesWritten) -> None:
        """Take the transport's report of what was written and what waits."""
        self.is_awake = True
        assert event.written_bytes >= 0, "the transport counts up"
        assert event.waiting_bytes >= 0, "the transport counts what waits"
        self._room.report(written_bytes=event.written_bytes, waiting_bytes=event.waiting_bytes)

    def after_turn(self) -> None:
        """Answer what was read, and the polls that waited for an offset to be stored."""
        removed, polled = self._partitions.removed, self._partitions.polled
        if removed:
            self._forget_partitions({group: self._code_of(group) for group in removed})
            removed.clear()
        for group, ticket, result in polled:
            local = self._partitions.locals.get(group)
            if local is not None:
                self._finish(local, ticket, result)
        polled.clear()
        if self.commits.pending:
            self.commits.settle()
        if self._short:
            self._resume_short()
        self._sent.clear()
        self.is_awake = False

    def _finish(self, local: Local, ticket: int, result: Polled | RefusedError) -> None:
        poll = self._reading.pop(ticket, None)
        self._room.release(ticket)
        assert poll is None or poll.key.group == local.target.group, "a read is of its partition"
        if poll is None or self._answers.end(poll.ticket) is None:
            return
        try:
            if isinstance(result, RefusedError):
                raise result
            if self._may_go_on(poll):
                self._answer(local, poll, result)
        except RefusedError as error:
            self._note_damage(local, error)
            self._refuse(poll, error.code)

    def _note_damage(self, local: Local, error: RefusedError) -> None:
        """Have a range that cannot be read logged, once."""
        first, last = error.facts.get("first_offset"), error.facts.get("last_offset")
        if first is None:
            return
        text = f"offsets {first} to {last} cannot be read: {error.facts['what']}"
        if (local.name, text) not in self._damages:
            if len(self._damages) >= _DAMAGES_MAX:
                self._damages.clear()
            self._damages[local.name, text] = None
            self._partitions.findings.append(Finding("damaged", local.name, 0, text))
        assert len(self._damages) <= _DAMAGES_MAX, "what was logged is remembered within bounds"

    def _go_on(self, poll: _Poll) -> bool:
        """Go on with a poll that waited for an offset; return whether it is answered."""
        assert poll.ticket > 0, "a poll that goes on has waited"
        return not self._may_go_on(poll) or self._begin(poll)

    def _may_go_on(self, poll: _Poll) -> bool:
        """Whether the partition is still dealt to the member: much can change while a poll waits.

        If not, it is told so.

        Raises:
            RefusedError: The user may not poll any more (SE-4), or the session is over.
        """
        connection = self._answers.connections.bound(poll.connection)
        asked, state = poll.request, self._metadata.state
        topic = reach(state, connection.user_id, POLL_MESSAGES.code, asked.stream, asked.topic)
        client, key = poll.header.client, poll.key
        assert connection.number == poll.connection, "a poll is answered where it was asked"
        is_dealt = key.kind != ConsumerKind.GROUP or may_poll_partition(
            topic, key.id, client, poll.partition
        )
        if not is_dealt:
            self._resync(poll.connection, poll.header)
        return is_dealt

    def _refuse(self, poll: _Poll, code: Code) -> None:
        """Refuse a poll that waits, or that has just ended its wait."""
        self._answers.end(poll.ticket)
        self._answers.refuse(poll.connection, poll.header, self._answers.refusal(code))

    def tick(self) -> None:
        """Let time pass, and forget the polls for which nobody waits."""
        self.is_awake = True
        self.commits.tick()
        self._room.settle()
        is_waiting = self._answers.is_waiting
        self._short = [poll for poll in self._short if is_waiting(poll.ticket)]

    def check(self) -> None:
        """Assert that polls which read hold room for their replies, and `check_awake`."""
        self.check_awake()
        known = dict.fromkeys([*self._partitions.locals, *self._partitions.removed])
        assert all(poll.key.group in known for poll in self._reading.values()), "it will be read"
        assert all(size > 0 for size in self._sent.values()), "a reply that is counted has bytes"
        assert len(self._reading) <= self._settings.disk_polls_max, "polls of the disk are bounded"
        assert self._reading.keys() == self._room.holders(), "who reads holds room for a reply"
        for poll in [*self._reading.values(), *self._short]:
            assert poll.ticket > 0, "a poll that waits has its ticket"
            _, _, partition = unpack_namespace(poll.key.group)
            assert poll.partition == partition, "a poll names the partition that it reads"
            assert poll.key.kind == poll.request.consumer.kind, "a poll is of its consumer"
        tokens = list(self._reading)
        assert tokens == sorted(tokens), "polls begin to read in their order"
        assert len(self._damages) <= _DAMAGES_MAX, "what was logged is remembered within bounds"
        self.commits.check()
        tickets = self.tickets()
        assert len(dict.fromkeys(tickets)) == len(tickets), "a poll waits in one place"

    def check_awake(self) -> None:
        """Assert, between turns, that what the partitions have for polls is taken."""
        if self._sent or self._partitions.polled or self._partitions.removed:
            assert self.is_awake, "what was read is answered"
        if self._short and not self.is_awake:
            assert self._room.is_short, "where there is room nobody waits for it"

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here, those for stored offsets too."""
        polls = [*self._reading.values(), *self._short]
        return [*[poll.ticket for poll in polls], *self.commits.tickets()]

    def _resume_short(self) -> None:
        """Go on with the polls that wait for room, in their order, as far as there is some."""
        while self._short and not self._room.is_short:
            poll = self._short.pop(0)
            self._answers.resume(poll.ticket, partial(self._go_on, poll))

    def _code_of(self, group: int) -> Code:
        """Return what is told of a partition that is gone; of one that is made again: later."""
        is_made_again = target_of(self._metadata.state, group) is not None
        return Code.TRANSIENT_NOT_ACCEPTED if is_made_again else Code.PARTITION_NOT_FOUND

    def _forget_partitions(self, removed: Mapping[int, Code]) -> None:
        """Refuse the polls of partitions that are gone, or are others now."""
        self.commits.forget_partitions(removed)
        found = [ticket for ticket, poll in self._reading.items() if poll.key.group in removed]
        gone = [self._reading.pop(ticket) for ticket in found]
        for ticket in found:
            self._room.release(ticket)
        for poll in gone:
            if self._answers.is_waiting(poll.ticket):
                self._refuse(poll, removed[poll.key.group])
        assert not any(each.key.group in removed for each in self._reading.values()), "all are told"
        assert self._reading.keys() == self._room.holders(), "who reads holds room for a reply"
