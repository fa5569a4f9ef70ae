"""Evicts members of consumer groups that have gone silent: their partitions are wanted.

Every shard listens to the connections that live on it.

Flow: reply.
"""

from collections.abc import Callable

from headrace.base.ids import ShardId
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.metadata import Metadata
from headrace.shard.turn import Turn
from headrace.wire.evictions import EvictionReason


class Stale:
    """The members of one shard; `release` takes the session from a connection."""

    def __init__(
        self,
        shard: ShardId,
        metadata: Metadata,
        answers: Answers,
        turn: Turn,
        stale_ticks: int,
        release: Callable[[Connection], None],
    ) -> None:
        assert stale_ticks > 0, "nobody is stale at once"
        self._shard = shard
        self._metadata = metadata
        self._answers = answers
        self._turn = turn
        self._stale_ticks = stale_ticks
        self._release = release

    def evict(self) -> None:
        """Evict who was not heard for too long."""
        oldest = self._turn.clock.now - self._stale_ticks
        memberships = self._metadata.state.memberships
        for connection in list(self._answers.connections.all()):
            is_silent = connection.is_bound and connection.heard < oldest
            if not is_silent or connection.home != self._shard:
                continue
            if memberships.get(connection.client):
                assert connection.session > 0, "only a session goes stale"
                self._turn.probes.hit("sessions.stale")
                reason = EvictionReason.STALE_CLIENT
                self._answers.evict(connection.number, connection.client, reason)
                self._release(connection)
