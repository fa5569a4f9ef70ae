"""The partitions that a consumer reads: one, all of a topic, or those of its group. No I/O."""

from collections.abc import Callable
from contextlib import suppress

from headrace.client.calls.find_topic import find_topic
from headrace.client.calls.groups import create_group, join_group, leave_group, sync_group
from headrace.client.calls.names import TopicName
from headrace.client.consume.options import ConsumerSettings
from headrace.client.errors import AlreadyExists, NotFound, Unavailable
from headrace.client.session.call import Flow, ask
from headrace.wire.errors import Code

JOINS_MAX = 5


class Membership:
    """Requests the partitions; joins the group, rejoins if necessary, and leaves it."""

    def __init__(
        self, topic: TopicName, settings: ConsumerSettings, on_lapse: Callable[[], None]
    ) -> None:
        """Start without a membership; `on_lapse` is called when the server ended it."""
        self.has_moved = False  # whether the group was rebalanced between the last two requests
        self._topic = topic
        self._settings = settings
        self._on_lapse = on_lapse
        self._generation = -1  # of the group at the last request

    def join(self) -> Flow[None]:
        """Join the group, if there is one; create it if it does not exist."""
        group = self._settings.group
        if group is None:
            return
        try:
            yield from ask(join_group(self._topic, group))
        except NotFound as error:
            if error.code != Code.CONSUMER_GROUP_ID_NOT_FOUND or not isinstance(group, str):
                raise
            with suppress(AlreadyExists):  # Another member created it first.
                yield from ask(create_group(self._topic, group))
            yield from ask(join_group(self._topic, group))

    def leave(self) -> Flow[None]:
        """Leave the group, if there is one."""
        if self._settings.group is not None:
            with suppress(NotFound):  # The connection was lost, or the group was deleted.
                yield from ask(leave_group(self._topic, self._settings.group))

    def ask_partitions(self) -> Flow[tuple[int, ...]]:
        """Return the partitions to read now.

        Raises:
            Unavailable: The server ends the membership after every renewal.
        """
        settings = self._settings
        if settings.partition is not None:
            return (settings.partition,)
        if settings.group is None:
            details = yield from find_topic(self._topic)
            return tuple(partition.id for partition in details.partitions)
        for _ in range(JOINS_MAX):
            assignment = yield from ask(sync_group(self._topic, settings.group))
            if assignment is not None:
                self.has_moved = assignment.generation != self._generation
                self._generation = assignment.generation
                return assignment.partitions
            # A lost connection ended the membership; other members may have read on since then.
            self._on_lapse()
            yield from self.join()
        raise Unavailable(
            f"group {settings.group!r}: the server ended the membership after {JOINS_MAX} joins"
        )
