"""Requests that came before their partition: they wait, and are served when it is made (SH-26).

A request keeps its ticket, and so its one deadline, however long it waits and for whatever it waits
afterwards. A connection that closes takes its requests with it.

Flow: route, reply.
"""

from collections.abc import Callable

from headrace.ports.network import Buffer
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.owned.early import EarlyError
from headrace.shard.owned.parked import ParkedRequest
from headrace.shard.owned.parking import Parking
from headrace.wire.errors import Code
from headrace.wire.requests import RequestHeader, without_marks


class EarlyRequests:
    """What the front does for the frames that wait in `Parking`."""

    def __init__(self, parking: Parking, answers: Answers) -> None:
        self._parking = parking
        self._answers = answers
        self._route: Callable[[Connection, ParkedRequest], None]
        parking.begin(self)

    def begin(self, route: Callable[[Connection, ParkedRequest], None]) -> None:
        """Take who serves a request whose partition is here."""
        self._route = route

    def park(
        self, connection: Connection, header: RequestHeader, frame: Buffer, early: EarlyError
    ) -> None:
        """Have a request wait for its partition; where there is no room it is refused."""
        parking, answers = self._parking, self._answers
        assert early.code == Code.TRANSIENT_NOT_ACCEPTED, "who is refused may come again"
        if not parking.has_room(early.group, frame):
            answers.refuse(connection.number, header, early.code)
            return
        # No group has it yet: it waits without marks, and nothing is done if nobody answers it.
        ticket = answers.wait(connection.number, without_marks(header))
        assert not answers.is_ordered(header, ticket), "no group has it"
        parking.put(ParkedRequest(early.group, early.epoch, ticket, header, frame))

    def go_on(self, request: ParkedRequest) -> None:
        """Serve a request whose partition is here now, unless nobody waits for it any more."""
        waiting = self._answers.get(request.ticket)
        connection = None if waiting is None else self._answers.connections.get(waiting.connection)
        assert connection is None or request.ticket > 0, "who waits has a ticket"
        if connection is not None:
            self._answers.go_on(request.ticket, lambda: self._route(connection, request))

    def refuse(self, request: ParkedRequest) -> None:
        """Answer that a request was not accepted, and may come again."""
        self._answers.refuse_waiting(request.ticket, Code.TRANSIENT_NOT_ACCEPTED)
        assert not self.is_waiting(request.ticket), "who is refused does not wait"

    def is_waiting(self, ticket: int) -> bool:
        """Whether somebody still waits for the answer."""
        return self._answers.is_waiting(ticket)

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait for their partitions."""
        return self._parking.parked.tickets()

    def check(self) -> None:
        """Assert that who waits for a partition waits for nothing else, and for no one who left."""
        for ticket in self.tickets():
            waiting = self._answers.get(ticket)
            if waiting is not None:
                assert waiting.late == Code.TRANSIENT_NOT_ACCEPTED, "nothing is done for it yet"
                assert waiting.header.ticket == 0, "no group has it"
                assert not self._answers.is_ordered(waiting.header, ticket), "no group has it"
