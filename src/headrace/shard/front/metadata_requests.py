"""Hands requests of clients to the metadata group.

Flow: replicate.
"""

import msgspec

from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.metadata import Metadata
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.requests import RequestHeader


class MetadataRequests:
    """The way of a request to the group, and of its answer back."""

    def __init__(self, metadata: Metadata, answers: Answers) -> None:
        self._metadata = metadata
        self._answers = answers

    def is_answered_again(self, connection: Connection, header: RequestHeader) -> bool:
        """Whether a request was applied before, and is answered by that.

        What is asked before consensus may have another answer by now, through that very request: a
        password that it changed is not the current one any more.

        Raises:
            RefusedError: Another node leads: nothing that is looked up here would be worth a word.
        """
        if not self._metadata.is_serving:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, group="metadata")
        assert header.session == connection.session, "the session was checked"
        assert header.user_id == connection.user_id, "a request is stamped with its user"
        is_applied = self._metadata.answer_again(header, b"")
        if is_applied:
            self._answers.expect(connection, header)
        return is_applied

    def submit(
        self,
        connection: Connection,
        header: RequestHeader,
        body: bytes | memoryview,
        operation: Operation | None = None,
        ticket: int = 0,
    ) -> None:
        """Hand over a request; with its ticket, if it has waited before."""
        # While it waited, another connection may have logged in as its client.
        assert ticket or header.session == connection.session, "the session was checked"
        assert ticket or header.user_id == connection.user_id, "it is stamped with its user"
        assert header.request > 0, "what the group orders has a number"
        assert header.ticket == 0, "metadata is asked for one thing at a time"
        self._answers.expect(connection, header, ticket)
        if operation is not None:
            header = msgspec.structs.replace(header, operation=operation)
        self._metadata.put_request(header, body)
