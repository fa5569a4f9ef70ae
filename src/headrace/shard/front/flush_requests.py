"""Writes what a partition has in memory when a client asks for it, and answers once it is synced.

Flow: route, store, reply.
"""

from headrace.metadata.access import reach
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands import topics
from headrace.wire.errors import Code, RefusedError
from headrace.wire.requests import RequestHeader


class FlushRequests:
    """Those that wait for the disk."""

    def __init__(self, metadata: Metadata, partitions: Partitions, answers: Answers) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._answers = answers
        self._flushes: list[tuple[int, int, int]] = []  # tickets, partitions, tokens of those
        self.is_awake = False  # whether the end of the turn has work here

    def flush(
        self, connection: Connection, header: RequestHeader, request: topics.FlushUnsavedBuffer
    ) -> None:
        """Write what a partition has in memory, and answer when it is synced if that is wanted."""
        code = topics.FLUSH_UNSAVED_BUFFER.code
        topic = reach(self._metadata.state, connection.user_id, code, request.stream, request.topic)
        if request.partition_id >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=request.partition_id)
        namespace = topic.namespace(request.partition_id)
        machine = self._partitions.find(topic, request.partition_id).machine
        machine.store()
        self._partitions.storing.is_awake = True
        token = machine.flush() if request.fsync else None
        answers = self._answers
        if token is None:
            answers.reply(connection.number, header)
        else:
            late = Code.TRANSIENT_NOT_COMMITTED  # It goes on, and may yet be done.
            ticket = answers.wait(connection.number, header, late)
            assert not self._flushes or self._flushes[-1][0] < ticket, "flushes wait in their order"
            self._flushes.append((ticket, namespace, token))
            self.is_awake = True

    def after_turn(self) -> None:
        """Answer the flushes that are durable now, or never will be."""
        self._flushes = [each for each in self._flushes if not self._is_over(*each)]
        self.is_awake = bool(self._flushes)

    def check(self) -> None:
        """Assert that a flush which waits is looked at, in the order of requests."""
        assert self.is_awake == bool(self._flushes), "a flush that waits is looked at"
        tickets = [ticket for ticket, _, _ in self._flushes]
        assert tickets == sorted(tickets), "tickets are given out in order"
        assert len(dict.fromkeys(tickets)) == len(tickets), "a request waits for one flush"
        newest: dict[int, int] = {}
        for ticket, namespace, token in self._flushes:
            assert ticket > 0, "who waits has a ticket"
            assert newest.get(namespace, 0) <= token, "what was flushed first is synced first"
            newest[namespace] = token

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here."""
        return [ticket for ticket, _, _ in self._flushes]

    def _is_over(self, ticket: int, namespace: int, token: int) -> bool:
        """Whether nobody waits for a flush any more; if it is over, that is answered."""
        answers = self._answers
        local = self._partitions.locals.get(namespace)
        assert local is None or local.target.group == namespace, "a flush is of its partition"
        if local is None or local.fence is not None:
            code = Code.CANNOT_SYNC_FILE
        elif local.machine.is_flushed(token):
            code = None
        else:
            return not answers.is_waiting(ticket)
        waiting = answers.end(ticket)
        if waiting is not None and code is None:
            answers.reply(waiting.connection, waiting.header)
        elif waiting is not None and code is not None:
            answers.refuse(waiting.connection, waiting.header, code)
        return True
