"""The partitions of a consumer: where it starts in each, and which offsets it stores. No I/O.

Invariants: an offset is stored only after its message was processed.
"""

from collections.abc import Callable
from contextlib import suppress

from headrace.client.calls.groups import get_offset, store_offset
from headrace.client.calls.messages import make_strategy, poll_from
from headrace.client.calls.names import ANONYMOUS, TopicName
from headrace.client.consume.buffer import PollBuffer
from headrace.client.consume.membership import JOINS_MAX, Membership
from headrace.client.consume.options import ConsumerSettings
from headrace.client.consume.positions import Positions
from headrace.client.errors import NotOwned, RefusedByServer
from headrace.client.session.call import Flow, ask
from headrace.wire.commands.messages import StoredOffset
from headrace.wire.identifiers import Last, Strategy

ASSIGNMENT_SECONDS = 5.0  # how old the list of partitions may get


class Assignment:
    """Updates positions when the partitions change, and stores offsets of partitions it owns."""

    def __init__(
        self,
        topic: TopicName,
        settings: ConsumerSettings,
        positions: Positions,
        buffer: PollBuffer,
        now: Callable[[], float],
    ) -> None:
        self.has_begun = False
        self.must_renew = False  # the partitions have changed since they were requested
        self.turn: list[int] = []  # partitions, the next to poll first
        self._topic = topic
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._membership = Membership(topic, settings, self._start_over)
        self._now = now
        self._renewed = now()  # when the partitions were last requested

    @property
    def is_due(self) -> bool:
        """Whether the partitions must be requested again."""
        is_old = self._now() - self._renewed >= ASSIGNMENT_SECONDS
        return self.must_renew or (is_old and self._settings.partition is None)

    def begin(self) -> Flow[None]:
        """Join the group, if there is one, and request the partitions."""
        yield from self._membership.join()
        yield from self.renew()
        self.has_begun = True

    def end(self) -> Flow[None]:
        """Leave the group, if there is one."""
        yield from self._membership.leave()

    def renew(self) -> Flow[None]:
        """Request the partitions to read, and the start position in each."""
        wanted = yield from self._membership.ask_partitions()
        upcoming = self._positions.upcoming
        for partition in [each for each in upcoming if each not in wanted]:
            yield from self._let_go(partition)
        is_first = not self.has_begun
        for partition in wanted:
            if partition in upcoming:
                if self._membership.has_moved:
                    yield from self._catch_up(partition)
            else:
                position = yield from self._find_position(partition, is_first=is_first)
                upcoming[partition] = position
        self.turn = [each for each in self.turn if each in upcoming]
        self.turn += [each for each in wanted if each not in self.turn]
        self._renewed = self._now()
        self.must_renew = False

    def store(self, partition: int, offset: int) -> Flow[None]:
        """Store an offset, unless other members have stored the same or a higher one.

        A member that lost its connection was removed from the group: it joins again and may own the
        partition again. A member that no longer owns the partition leaves it to the new owner, who
        continues after the last stored offset: messages may be delivered twice, none is skipped.

        Raises:
            NotOwned: The partition was assigned to another member; with manual commits only.
        """
        refused: NotOwned | None = None
        for _ in range(JOINS_MAX):
            try:
                yield from self._store_once(partition, offset)
            except NotOwned as error:
                refused = error
                self._forget(partition)
                yield from self.renew()
            else:
                return
            position = self._positions.upcoming.get(partition)
            if position is None:
                break
            if isinstance(position, int) and position > offset + 1:
                return
        self._positions.done.pop(partition, None)
        self._forget(partition)
        if self._settings.commit == "manual":
            assert refused is not None
            raise refused

    def _store_once(self, partition: int, offset: int) -> Flow[None]:
        settings, done = self._settings, self._positions.done
        call = store_offset(
            self._topic, partition, offset, consumer=settings.name, group=settings.group
        )
        try:
            yield from ask(call)
        except NotOwned:
            raise
        except RefusedByServer:
            done.pop(partition, None)  # A retry would get the same answer.
            raise
        if done.get(partition, offset + 1) <= offset:
            del done[partition]

    def _let_go(self, partition: int) -> Flow[None]:
        done = self._positions.done
        if partition in done and self._settings.commit != "manual":
            # The next owner waits for this offset, if this member still owns the partition.
            with suppress(NotOwned):
                yield from self._store_once(partition, done[partition])
            done.pop(partition, None)
        self._forget(partition)

    def _forget(self, partition: int) -> None:
        self._positions.forget(partition)
        self._buffer.drop(partition)
        self.must_renew = True

    def _start_over(self) -> None:
        self._positions.upcoming.clear()
        self._buffer.drop()

    def _find_position(self, partition: int, *, is_first: bool) -> Flow[int | Strategy]:
        """Return where to start in a partition: after the stored offset, else as configured."""
        settings = self._settings
        if settings.who is not ANONYMOUS:
            stored = yield from self._ask_stored(partition)
            position = self._positions.resume(
                partition, None if stored is None else stored.stored_offset
            )
            if position is not None:
                return position
        if settings.group is None and not is_first:
            return 0  # The partition was created since: all of it is new.
        if settings.start == "latest":
            call = poll_from(self._topic, partition, Last(), who=settings.who, count=1)
            polled = yield from ask(call)
            is_new = not len(polled) and not polled.current_offset
            return 0 if is_new else polled.current_offset + 1
        if isinstance(settings.start, int):
            return settings.start
        return make_strategy(settings.start)

    def _catch_up(self, partition: int) -> Flow[None]:
        """Skip what other members have processed while they owned the partition."""
        stored = yield from self._ask_stored(partition)
        handed_next = self._buffer.find_next(partition)
        upcoming = self._positions.upcoming[partition] if handed_next is None else handed_next
        if stored is None or (isinstance(upcoming, int) and stored.stored_offset < upcoming):
            return
        self._forget(partition)
        self._positions.done.pop(partition, None)
        self._positions.upcoming[partition] = stored.stored_offset + 1

    def _ask_stored(self, partition: int) -> Flow[StoredOffset | None]:
        settings = self._settings
        call = get_offset(self._topic, partition, consumer=settings.name, group=settings.group)
        return (yield from ask(call))
