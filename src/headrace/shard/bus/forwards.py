"""Requests of this shard's clients that another shard serves.

```
forward -> the request waits here, and here alone (O4.3)  -> reply: sent to the client
                                                          -> refused by the lane: 58
                                                          -> deadline: 57, by `Answers`
```

A reply that tells of the metadata is held until the image here has what it tells of, so that a
client finds what it has just made (O5.2).

Flow: route, reply.
"""

from typing import TYPE_CHECKING

from headrace.base.connection_numbers import home_of
from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import METADATA_SHARD
from headrace.ports.bus import BusRefused, ReleaseReply, SendToMember
from headrace.ports.network import Buffer
from headrace.shard.consensus.believed_time import TICK_MICROS
from headrace.shard.front.answers import DEADLINE_TICKS, Answers
from headrace.shard.front.connections import Connection
from headrace.shard.metadata import Metadata
from headrace.shard.owned.elsewhere import ElsewhereError
from headrace.shard.turn import Turn
from headrace.wire.bus.forwarded import (
    FORWARDED_REQUEST,
    ForwardedReplyHeader,
    ForwardedRequestHeader,
)
from headrace.wire.errors import Code
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation, find_operation, is_partition
from headrace.wire.requests import RequestHeader, without_marks

if TYPE_CHECKING:
    from collections.abc import Callable

_OF_SESSIONS = (Operation.REGISTER, Operation.LOGOUT)


class Forwards:
    """What waits for the answer of another shard."""

    def __init__(self, shard: int, metadata: Metadata, answers: Answers, turn: Turn) -> None:
        self._shard = shard
        self._metadata = metadata
        self._answers = answers
        self._turn = turn
        self._owners: dict[int, int] = {}  # where requests are served, by the tickets they wait by
        # Logins and logouts under way, by connection: shard 0 answers them by orders about it.
        self._sessions: dict[int, int] = {}
        self._held: list[tuple[int, int, Buffer]] = []  # commit, ticket, reply: until that is here
        # Takes the session from a connection; whoever has the sessions sets it.
        self.release: Callable[[Connection], None] = answers.connections.unbind

    def forward(
        self,
        elsewhere: ElsewhereError,
        connection: Connection,
        header: RequestHeader,
        frame: Buffer,
    ) -> int:
        """Have another shard serve a request; return the ticket by which it waits here."""
        owner = elsewhere.owner
        assert owner != self._shard, "what is served here is not forwarded"
        assert connection.home == self._shard, "what is forwarded was asked here"
        assert connection.number not in self._answers.connections.guests, "one hop is enough (O5.6)"
        late = Code.TRANSIENT_NOT_COMMITTED
        # No group here will answer it: it waits without marks.
        ticket = self._answers.wait(connection.number, without_marks(header), late)
        self._owners[ticket] = owner
        envelope = ForwardedRequestHeader(
            size=HEADER_BYTES + len(frame),
            origin=elsewhere.epoch,
            client=header.client,
            ticket=ticket,
            timeout=DEADLINE_TICKS * TICK_MICROS,
            commit=self._metadata.commit,
            request=header.request,
            operation=header.operation,
            is_anew=int(_is_anew(connection, header)),
            home=self._shard,
            transport=connection.transport,
            session=connection.session,
            user_id=max(connection.user_id, 0),
            code=header.code,
            connection=connection.number,
            group=elsewhere.group,
        )
        if header.operation in _OF_SESSIONS:
            assert elsewhere.group == METADATA_GROUP, "sessions are those of the metadata group"
            assert not self.is_of_session(connection), "one login or logout at a time"
            self._sessions[connection.number] = ticket
        self._turn.probes.hit("requests.forwarded")
        parts = (FORWARDED_REQUEST.encode(envelope), frame)
        self._turn.out.append(SendToMember(owner, parts))
        return ticket

    def on_refused(self, event: BusRefused) -> None:
        """Answer that a request was not taken: its lane is full, or its owner is gone."""
        owner = self._owners.pop(event.ticket, None)
        if owner is not None:
            assert owner == event.member, "a request was sent to its owner"
            self._answers.refuse_waiting(event.ticket, Code.TRANSIENT_NOT_ACCEPTED)
            assert not self._answers.is_waiting(event.ticket), "who is refused does not wait"

    def on_reply(self, sender: int, header: ForwardedReplyHeader, frame: Buffer) -> None:
        """Take the answer of another shard; it may come too late."""
        if self._owners.get(header.ticket) != sender:
            self._turn.probes.hit("forwards.late")
            return
        if header.commit > self._metadata.commit:
            assert len(frame) >= HEADER_BYTES, "a reply is a whole frame"
            self._held.append((header.commit, header.ticket, frame))
            assert len(self._held) <= len(self._owners), "a request has one answer"
        else:
            self._deliver(header.ticket, frame)

    def after_feed(self) -> None:
        """Send the replies that waited for the image."""
        commit = self._metadata.commit
        ready = [each for each in self._held if each[0] <= commit]
        if ready:
            held_count = len(self._held)
            self._held = [each for each in self._held if each[0] > commit]
            assert len(ready) + len(self._held) == held_count, "no reply is forgotten"
            for _, ticket, frame in ready:
                self._deliver(ticket, frame)

    def _deliver(self, ticket: int, frame: Buffer) -> None:
        self._owners.pop(ticket, None)
        answers = self._answers
        waiting = answers.end(ticket)
        assert not answers.is_waiting(ticket), "a request is answered once"
        connection = None if waiting is None else answers.connections.get(waiting.connection)
        if waiting is None or connection is None:
            return
        assert waiting.late == Code.TRANSIENT_NOT_COMMITTED, "another shard may have done it"
        operation = find_operation(waiting.header.operation)
        if frame[KIND_OFFSET] == FrameKind.EVICTION:
            answers.send(connection.number, frame)
            if connection.is_bound and connection.client == waiting.header.client:
                self.release(connection)  # It must log in again.
        elif operation is not None and is_partition(operation):
            answers.send_settled(connection, waiting.header, frame)
        else:
            answers.pass_on(connection, frame)

    def forget(self, connection: int) -> None:
        """Let nobody wait on a connection of another shard that is gone: a login may."""
        assert home_of(connection) != self._shard, "what lives here closes by itself"
        self._answers.forget(connection)
        assert not self._answers.is_awaited(connection), "who is gone waits for nothing"

    def is_of_session(self, connection: Connection) -> bool:
        """Whether a login or a logout of a connection is under way."""
        return self._answers.is_waiting(self._sessions.get(connection.number, 0))

    def settle(self, connection: Connection) -> None:
        """End the wait of a login or a logout: shard 0 has answered it by an order."""
        ticket = self._sessions.pop(connection.number, 0)
        owner = self._owners.pop(ticket, None)
        if owner is not None:
            self._answers.end(ticket)
            self._turn.out.append(ReleaseReply(owner, ticket))
        assert not self._answers.is_waiting(ticket), "it was answered"

    def tick(self) -> None:
        """Give up the places of replies that nobody waits for any more."""
        gone = [ticket for ticket in self._owners if not self._answers.is_waiting(ticket)]
        for ticket in gone:
            self._turn.out.append(ReleaseReply(self._owners.pop(ticket), ticket))
        is_waiting = self._answers.is_waiting
        self._held = [each for each in self._held if is_waiting(each[1])]
        ended = [each for each, ticket in self._sessions.items() if not is_waiting(ticket)]
        for connection in ended:
            del self._sessions[connection]
        assert len(self.tickets()) == len(self._owners), "all that is left is waited for"
        assert len(self._sessions) <= len(self._owners), "a login that waits is forwarded"

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait for another shard."""
        return [ticket for ticket in self._owners if self._answers.is_waiting(ticket)]

    def check(self) -> None:
        """Assert that what waits is served elsewhere, and what is held is ahead of the image."""
        assert all(owner != self._shard for owner in self._owners.values()), "all are elsewhere"
        assert list(self._owners) == sorted(self._owners), "tickets are given out in order"
        for ticket in self._owners:
            waiting = self._answers.get(ticket)
            if waiting is not None:
                assert home_of(waiting.connection) == self._shard, "who asked lives here"
                assert waiting.late == Code.TRANSIENT_NOT_COMMITTED, "its owner may have done it"
                assert waiting.header.ticket == 0, "no group here answers it"
        commit = self._metadata.commit
        assert all(each[0] > commit for each in self._held), "what the image has is not held back"
        held = {ticket: None for _, ticket, _ in self._held}
        assert len(held) == len(self._held), "a request has one answer"
        assert held.keys() <= self._owners.keys(), "a reply is held for who waits"
        sessions = dict.fromkeys(self._sessions.values())
        assert len(sessions) == len(self._sessions), "a login is of one connection"
        for number, ticket in self._sessions.items():
            waiting = self._answers.get(ticket)
            if waiting is not None:
                assert waiting.connection == number, "it waits on its connection"
                assert self._owners.get(ticket) == METADATA_SHARD, "shard 0 has the sessions"
                assert waiting.header.operation in _OF_SESSIONS, "it is a login or a logout"


def _is_anew(connection: Connection, header: RequestHeader) -> bool:
    """Whether a request is new though its number may be used; its home decides (O4.2)."""
    operation = find_operation(header.operation)
    is_numbered = operation is not None and is_partition(operation)
    return is_numbered and header.request in connection.spent
