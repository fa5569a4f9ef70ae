"""Every request is answered: at once, or when what it waits for has come, or at its deadline.

```
wait: ticket -> end: the owner answers            secrets, segments, snapshots, flushes, purges
             -> expect: consensus answers         the ticket and its deadline stay the same
             -> expire: answered here
             -> go_on: as if it came now          the ticket and its deadline stay the same
```

Flow:       reply.
Invariants: a request that is not answered at once is in `_waiting` until its answer leaves, and
            nowhere else (O4.3); each has one deadline, however many things it waits for in turn.
"""

from collections.abc import Callable, Sequence

import msgspec

from headrace.base.limits import HEADER_BYTES
from headrace.ports.network import Buffer, CloseConnection, SendReply, SendToConnection
from headrace.shard.front.connections import Connection, Connections
from headrace.shard.front.refusals import Refusals
from headrace.shard.metadata import Metadata
from headrace.shard.turn import Turn
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from headrace.wire.replies import REPLY, ReplyHeader, encode_reply
from headrace.wire.requests import RequestHeader

DEADLINE_TICKS = 1000  # 10 s
_REQUEST = REPLY.span("request")
_STATUS = REPLY.span("status")
_NO_STATUS = bytes(_STATUS.stop - _STATUS.start)
_NOT_COMMITTED = Code.TRANSIENT_NOT_COMMITTED


class Waiting(msgspec.Struct, frozen=True):
    """A request without an answer."""

    connection: int
    header: RequestHeader
    due: int  # the tick at which it is answered here
    late: Code  # the answer then, if consensus does not have it


class Answers:
    """Sends what a client is told, and knows who still waits."""

    def __init__(self, connections: Connections, metadata: Metadata, turn: Turn) -> None:
        self.connections = connections
        self._clock = turn.clock
        self._out = turn.out
        self.refusal = Refusals(metadata, turn.probes).judge
        self.next_ticket = 1  # of the next request that waits
        self._waiting: dict[int, Waiting] = {}  # by ticket, and so in the order of deadlines
        self._ordered: dict[tuple[int, int], int] = {}  # tickets, by client and request
        self.kept = 0  # the ticket of the request that goes on, until it waits again

    @property
    def waiting_count(self) -> int:
        """How many requests wait for their answer."""
        return len(self._waiting)

    def count_own(self) -> int:
        """Return how many requests wait of the clients that live here.

        A guest that was answered in this turn waits no more, and is there until the turn ends.
        """
        guests = self.connections.guests
        own = sum(each.connection not in guests for each in self._waiting.values())
        assert len(self._waiting) - own <= len(guests), "a guest has one request"
        return own

    def send(self, connection: int, *parts: Buffer) -> None:
        """Send the parts of one frame."""
        assert connection in self.connections.by_number, "an answer goes to who is connected"
        self._out.append(SendToConnection(connection, parts))

    def reply(self, connection: int, header: RequestHeader, body: Buffer = b"") -> None:
        """Answer with a body, maybe none."""
        assert connection in self.connections.by_number, "an answer goes to who is connected"
        self._out.append(SendToConnection(connection, (encode_reply(header, body),)))

    def reply_parts(
        self, connection: int, header: RequestHeader, parts: tuple[Buffer, ...], size: int
    ) -> None:
        """Answer with a body of several parts, which are not copied."""
        assert connection in self.connections.by_number, "an answer goes to who is connected"
        assert size > 0, "a body of several parts is not empty"
        reply = ReplyHeader(
            cluster=header.cluster,
            size=HEADER_BYTES + size,
            client=header.client,
            op=header.session,
            timestamp=header.timestamp,
            request=header.request,
            operation=header.operation,
        )
        self._out.append(SendToConnection(connection, (REPLY.encode(reply), *parts)))

    def send_settled(self, connection: Connection, asked: RequestHeader, frame: Buffer) -> None:
        """Answer what was asked of a partition; its number is spent if the outcome is known.

        A rejection that was committed is such an outcome; a status says nothing of earlier tries.
        """
        assert asked.request > 0, "what is asked of a partition has a number"
        if frame[_STATUS] == _NO_STATUS:
            if asked.session == connection.session and asked.client == connection.client:
                connection.spent.note(asked.request)  # as `Connection.spend`
            self._out.append(SendToConnection(connection.number, (frame,)))
        else:
            self.pass_on(connection, frame)

    def refuse(self, connection: int, header: RequestHeader, code: Code) -> None:
        """Answer with a code."""
        asking = self.connections.get(connection)
        if code == Code.TRANSIENT_NOT_COMMITTED and asking is not None:
            asking.is_in_doubt = True
        self.send(connection, encode_reply(header, b"", status=code))

    def close(self, connection: int, reason: str) -> None:
        """Close a connection: no answer can reach its client."""
        assert connection in self.connections.by_number, "who is gone is not closed"
        self._out.append(CloseConnection(connection, reason))

    def evict(self, connection: int, client: int, reason: EvictionReason) -> None:
        """Answer that the session is over."""
        self.send(connection, encode_eviction(reason, client))

    def pass_on(self, connection: Connection, frame: Buffer) -> None:
        """Send what consensus has answered."""
        if int.from_bytes(frame[_STATUS], "little") == Code.TRANSIENT_NOT_COMMITTED:
            connection.is_in_doubt = True
        self.send(connection.number, frame)

    def evict_asking(self, connection: Connection, client: int, reason: EvictionReason) -> None:
        """Answer that a session is over, so that nothing is done twice (SE-9).

        Most reasons have the client log in and send again, under a new name, what it asked for
        last. One that has something on its way, or does not know what became of it, is told that
        it was away for too long: it logs in again, and leaves the rest to its user.
        """
        if connection.is_in_doubt or self.is_awaited(connection.number):
            reason = EvictionReason.STALE_CLIENT
        self.evict(connection.number, client, reason)

    def is_awaited(self, connection: int) -> bool:
        """Whether a connection has asked for something that may yet be done."""
        return any(
            one.connection == connection and self._may_be_done(ticket)
            for ticket, one in self._waiting.items()
        )

    def _may_be_done(self, ticket: int) -> bool:
        """Whether consensus has a request that waits, or something is done for it already."""
        one = self._waiting[ticket]
        return self.is_ordered(one.header, ticket) or one.late == Code.TRANSIENT_NOT_COMMITTED

    def is_ordered(self, header: RequestHeader, ticket: int) -> bool:
        """Whether consensus has a request that waits by this ticket."""
        return self._ordered.get((header.client, header.request)) == ticket

    def refuse_undone(
        self, connection: int, code: Code, withdraw: Callable[[int, int, int], bool]
    ) -> None:
        """Refuse what waits on a connection and is not done, nor will be; the rest waits on."""
        mine = [ticket for ticket, one in self._waiting.items() if one.connection == connection]
        for ticket in mine:
            header = self._waiting[ticket].header
            key = (header.client, header.request)
            if self._ordered.get(key) == ticket and withdraw(*key, header.ticket):
                del self._ordered[key]
            elif self._may_be_done(ticket):
                continue
            del self._waiting[ticket]
            assert self._ordered.get(key) != ticket, "what consensus has is not refused here"
            self.refuse(connection, header, code)
        assert len(self._ordered) <= len(self._waiting), "whatever consensus has waits here"

    def wait(
        self, connection: int, header: RequestHeader, late: Code = Code.TRANSIENT_NOT_ACCEPTED
    ) -> int:
        """Note that a request is answered later, at its deadline with `late`; return its ticket.

        Whoever answers it ends the wait first.
        """
        if self.kept:
            return self._wait_on(connection, header, late)
        ticket = self.next_ticket
        assert ticket not in self._waiting, "a ticket is given once"
        assert connection in self.connections.by_number, "who waits can be answered"
        self.next_ticket = ticket + 1
        self._waiting[ticket] = Waiting(connection, header, self._clock.now + DEADLINE_TICKS, late)
        return ticket

    def _wait_on(self, connection: int, header: RequestHeader, late: Code) -> int:
        """Have the request that goes on wait for something else; return its ticket."""
        ticket, self.kept = self.kept, 0
        before = self._waiting[ticket]
        assert before.connection == connection, "who goes on is answered where it asked"
        assert before.header.request == header.request, "only who goes on waits again"
        self._waiting[ticket] = Waiting(connection, header, before.due, late)
        return ticket

    def go_on(self, ticket: int, serve: Callable[[], None]) -> None:
        """Go on with a request that waits; it keeps its ticket and its deadline.

        `serve` answers it, or has it wait for something else.
        """
        assert self.kept == 0, "one goes on after the other"
        assert ticket in self._waiting, "who goes on has waited until now"
        self.kept = ticket
        serve()
        if self.kept:
            self.kept = 0
            self.end(ticket)

    def is_waiting(self, ticket: int) -> bool:
        """Whether a request still waits; if not, it was answered or its connection is gone."""
        assert ticket < self.next_ticket, "who asks has a ticket that was given"
        return ticket in self._waiting

    def get(self, ticket: int) -> Waiting | None:
        """Return a request that still waits."""
        return self._waiting.get(ticket)

    def asking(self) -> dict[int, None]:
        """Return the connections on which a request waits."""
        return {one.connection: None for one in self._waiting.values()}

    def end(self, ticket: int) -> Waiting | None:
        """End a wait, to answer it; nothing if nobody waits any more."""
        assert ticket < self.next_ticket, "a wait that ends was begun"
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None:
            assert not self.is_ordered(waiting.header, ticket), "consensus ends what it has"
            assert self._clock.now < waiting.due, "whose deadline has come is answered"
        return waiting

    def resume(self, ticket: int, go_on: Callable[[], bool]) -> None:
        """Go on with a request that waited, unless nobody waits for it any more.

        `go_on` answers it or has it wait again, and returns whether it is answered; what it raises
        is the answer.
        """
        if ticket not in self._waiting:
            return
        try:
            if go_on():
                self.end(ticket)
            else:
                assert ticket in self._waiting, "who is not answered waits on"
        except RefusedError as error:
            self.refuse_waiting(ticket, error.code)

    def refuse_waiting(self, ticket: int, code: Code) -> None:
        """Refuse a request that waits, if it still does."""
        waiting = self.end(ticket)
        if waiting is not None:
            self.refuse(waiting.connection, waiting.header, self.refusal(code))

    def expect(self, connection: Connection, header: RequestHeader, ticket: int = 0) -> int:
        """Note that consensus will answer this request; if it does not, we do. Return its ticket.

        With the ticket of a request that has waited for something else, it keeps its deadline.

        Raises:
            RefusedError: A request of this number waits already: an answer could not tell them
                apart, and the one that came first would be left without.
        """
        key = (header.client, header.request)
        if key in self._ordered:
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED, request=header.request)
        late = Code.TRANSIENT_NOT_COMMITTED
        ticket = ticket or self.wait(connection.number, header, late)
        assert ticket in self._waiting, "whom consensus answers waits for that"
        self._ordered[key] = ticket
        return ticket

    def expect_ticketed(self, connection: Connection, header: RequestHeader) -> None:
        """Note that a partition will answer this request: under `next_ticket`, or the kept one.

        There a number may stand for several requests in turn: the answer of one that nobody waits
        for any more must not be taken for that of the next.

        Raises:
            RefusedError: As `expect`.
        """
        key = (header.client, header.request)
        if key in self._ordered:
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED, request=header.request)
        ticket = header.ticket
        assert header.request > 0, "what is asked of a partition has a number"
        if self.kept:
            assert ticket == self.kept, "a request has one ticket"
            self._wait_on(connection.number, header, _NOT_COMMITTED)
        else:
            assert ticket == self.next_ticket, "a ticket is given once"
            self.next_ticket = ticket + 1
            due = self._clock.now + DEADLINE_TICKS
            self._waiting[ticket] = Waiting(connection.number, header, due, _NOT_COMMITTED)
        self._ordered[key] = ticket

    def take_waiting(self, effect: SendReply) -> tuple[Connection, RequestHeader] | None:
        """Return who waits for what consensus answers, if anybody still does."""
        if effect.ticket:
            assert effect.ticket < self.next_ticket, "an answer has a ticket that was given"
            if effect.ticket not in self._waiting:
                return self._evicted(effect)
            waiting = self._waiting[effect.ticket]
            del self._waiting[effect.ticket]
            header = waiting.header
            # A ticket that consensus was given waits for consensus alone.
            assert self._ordered[header.client, header.request] == effect.ticket
            assert self._clock.now < waiting.due, "whose deadline has come is answered"
            del self._ordered[header.client, header.request]
            by_number = self.connections.by_number
            if waiting.connection not in by_number:
                return None
            return by_number[waiting.connection], header
        ticket = self.keep_waiting(effect)
        if ticket is not None:
            waiting = self._waiting.pop(ticket)
            assert waiting.header.client == effect.client, "an answer reaches the client that asked"
            assert waiting.header.ticket == 0, "a partition answers by the ticket"
            found = self.connections.by_number.get(waiting.connection)
            return None if found is None else (found, waiting.header)
        return self._evicted(effect)

    def _evicted(self, effect: SendReply) -> tuple[Connection, RequestHeader] | None:
        """Return whose session is over: it is told so, even if nobody waits any more."""
        is_eviction = effect.frame[KIND_OFFSET] == FrameKind.EVICTION
        bound = self.connections.of_client(effect.client) if is_eviction else None
        assert bound is None or bound.client == effect.client, "who is evicted holds the session"
        return None if bound is None else (bound, RequestHeader())

    def keep_waiting(self, effect: SendReply) -> int | None:
        """Have a request that consensus answered wait for something else; return its ticket."""
        assert not effect.ticket, "an answer of a partition is waited for by itself"
        frame = effect.frame
        is_eviction = frame[KIND_OFFSET] == FrameKind.EVICTION
        request = effect.request if is_eviction else int.from_bytes(frame[_REQUEST], "little")
        return self._ordered.pop((effect.client, request), None)

    def expire(self, withdraw: Callable[[int, int, int], bool]) -> None:
        """Answer those whose deadline has come.

        One that `withdraw` takes back was never ordered, and is told that: it may try again. Of
        others that consensus has, the outcome is unknown.
        """
        while self._waiting:
            ticket = next(iter(self._waiting))
            waiting = self._waiting[ticket]
            if waiting.due > self._clock.now:
                return
            del self._waiting[ticket]
            key = (waiting.header.client, waiting.header.request)
            code = waiting.late
            if self._ordered.get(key) == ticket:
                del self._ordered[key]
                is_back = withdraw(*key, waiting.header.ticket)
                code = Code.TRANSIENT_NOT_ACCEPTED if is_back else Code.TRANSIENT_NOT_COMMITTED
            self.refuse(waiting.connection, waiting.header, code)

    def forget(self, connection: int) -> None:
        """Nobody waits on a connection that is gone."""
        gone = [each for each, one in self._waiting.items() if one.connection == connection]
        for ticket in gone:
            header = self._waiting.pop(ticket).header
            key = (header.client, header.request)
            if self._ordered.get(key) == ticket:
                del self._ordered[key]
        assert len(self._ordered) <= len(self._waiting), "whatever consensus has waits here"

    def check(self) -> None:
        """Assert that what consensus has is part of what waits, in the order of deadlines."""
        tickets, now = list(self._waiting), self._clock.now
        dues = [each.due for each in self._waiting.values()]
        assert tickets == sorted(tickets), "tickets are given out in order"
        assert not tickets or tickets[-1] < self.next_ticket, "tickets are given out in order"
        assert dues == sorted(dues), "who asked first is answered first at the deadline"
        assert not dues or now < dues[0], "whose deadline has come is answered"
        assert self.kept == 0, "who goes on does so within a turn"
        assert not dues or dues[-1] <= now + DEADLINE_TICKS, "nobody waits longer than a deadline"
        assert len(self._ordered) <= len(self._waiting), "whatever consensus has waits here"
        for key, ticket in self._ordered.items():
            header = self._waiting[ticket].header
            assert key == (header.client, header.request), "an answer finds who waits for it"
            assert header.ticket in (0, ticket), "an answer is of the request that waits"
        ordered = dict.fromkeys(self._ordered.values())
        assert len(ordered) == len(self._ordered), "a request is ordered once"
        for ticket, one in self._waiting.items():
            assert one.header.ticket in (0, ticket), "a request has one ticket"
            is_ticketed = one.header.ticket > 0
            assert not is_ticketed or ticket in ordered, "a partition answers whom it has"
            is_numbered = one.header.request > 0
            assert not is_ticketed or is_numbered, "what is asked of a partition has a number"
            assert not is_ticketed or one.late == Code.TRANSIENT_NOT_COMMITTED, (
                "of what a partition has the outcome is not known"
            )

    def check_connections(self) -> None:
        """Assert that nobody waits on a connection that is gone."""
        for one in self._waiting.values():
            assert one.connection in self.connections.by_number, "who waits can be answered"

    def check_places(self, tickets: Sequence[int]) -> None:
        """Assert that a request waits for consensus, or in one of the places with these tickets."""
        places = dict.fromkeys(tickets)
        assert len(places) == len(tickets), "a request waits in one place"
        assert max(tickets, default=0) < self.next_ticket, "what waits has a ticket that was given"
        for ticket in self._ordered.values():
            assert ticket not in places, "what consensus has waits for nothing else"
            places[ticket] = None
        assert self._waiting.keys() <= places.keys(), "no request that waits is forgotten"
