"""Requests that were forwarded here: each is served like one of a connection of its own.

A guest stands for one request of a client that is connected to another shard. Whatever answers it
leaves as the reply to its envelope, and the guest goes. Its home keeps the deadline; if nobody
answers, the guest is answered here at the same time, and its home does not hear it any more.

Flow: route, reply.
"""

from collections.abc import Callable

from headrace.base.connection_numbers import home_of, make_connection_id
from headrace.base.limits import HEADER_BYTES
from headrace.ports.bus import SendToMember
from headrace.ports.network import Buffer, SendToConnection
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.metadata import Metadata
from headrace.shard.turn import Turn
from headrace.wire.bus.forwarded import (
    FORWARDED_REPLY,
    ForwardedReplyHeader,
    ForwardedRequestHeader,
)
from headrace.wire.numbers import Transport

_GUEST = 1 << 111  # no counter of connections comes there

# Serves a frame for a guest.
Serve = Callable[[Connection, ForwardedRequestHeader, Buffer], None]


class Guests:
    """The requests of other shards that are not answered yet."""

    def __init__(self, metadata: Metadata, answers: Answers, turn: Turn, serve: Serve) -> None:
        self._metadata = metadata
        self._answers = answers
        self._turn = turn
        self._serve = serve
        self._envelopes: dict[int, ForwardedRequestHeader] = {}  # by the numbers of guests
        # Requests that were judged by a later commit than the one that is here.
        self._early: list[tuple[ForwardedRequestHeader, Buffer]] = []

    def on_request(self, envelope: ForwardedRequestHeader, frame: Buffer) -> None:
        """Serve a request, now or when the metadata here is that of its home."""
        if envelope.commit > self._metadata.commit:
            self._turn.probes.hit("guests.early")
            self._early.append((envelope, frame))
            return
        number = guest_number(envelope)
        if number in self._envelopes:
            return  # The lane of one home does not repeat itself; a home that was restarted may.
        connections = self._answers.connections
        assert number not in connections.by_number, "a guest has a number of its own"
        assert home_of(number) == envelope.home, "its number says where its reply goes"
        now, transport = self._turn.clock.now, Transport(envelope.transport)
        guest = Connection(number, 0, transport, "", heard=now)
        if envelope.session:
            guest.stand_for(
                envelope.connection,
                client=envelope.client,
                session=envelope.session,
                user_id=envelope.user_id,
            )
        assert guest.is_bound == (envelope.session > 0), "it stands for a session, or for none"
        connections.guests[number] = guest
        connections.by_number[number] = guest
        self._envelopes[number] = envelope
        self._serve(guest, envelope, frame)

    def after_feed(self) -> None:
        """Serve what waited for the metadata."""
        if self._early:
            waiting, self._early = self._early, []
            for envelope, frame in waiting:
                self.on_request(envelope, frame)
            assert len(self._early) <= len(waiting), "each is served, or waits on"

    def answer(self, effect: SendToConnection) -> SendToMember:
        """Return the reply to the envelope of a guest, who goes."""
        envelope = self._envelopes.pop(effect.connection)
        self._forget(effect.connection)
        size = sum(len(part) for part in effect.parts)
        assert size >= HEADER_BYTES, "a reply is a whole frame"
        assert envelope.commit <= self._metadata.commit, "it was judged by what its home knew"
        header = ForwardedReplyHeader(
            size=HEADER_BYTES + size,
            client=envelope.client,
            ticket=envelope.ticket,
            commit=self._metadata.commit,
            request=envelope.request,
            home=envelope.home,
            connection=envelope.connection,
        )
        return SendToMember(envelope.home, (FORWARDED_REPLY.encode(header), *effect.parts))

    def is_guest(self, number: int) -> bool:
        """Whether a number is that of a guest."""
        return number in self._envelopes

    def numbers(self) -> list[int]:
        """Return the numbers of all guests."""
        return list(self._envelopes)

    def close(self, number: int) -> None:
        """Forget a guest that no answer can reach."""
        del self._envelopes[number]
        self._forget(number)

    def _forget(self, number: int) -> None:
        connections = self._answers.connections
        assert connections.guests[number] is connections.by_number[number], "one guest, two places"
        assert number not in self._envelopes, "whose guest goes is answered"
        del connections.guests[number]
        del connections.by_number[number]

    def check(self) -> None:
        """Assert that every guest waits for an answer, under the number of its envelope."""
        guests = self._answers.connections.guests
        assert guests.keys() == self._envelopes.keys(), "a guest stands for one request"
        connections, asking = self._answers.connections, self._answers.asking()
        assert guests.keys() <= asking.keys(), "a guest that is answered has gone"
        for number, envelope in self._envelopes.items():
            assert guest_number(envelope) == number, "a guest is found by its number"
            guest = guests[number]
            assert connections.by_number[number] is guest, "a guest can be answered"
            assert connections.of_client(guest.client) is not guest, "a session is not its own"
            assert guest.session == envelope.session, "it stands for one session"
            assert guest.stands_for in (0, envelope.connection), "it stands for who has asked"
            assert (guest.stands_for > 0) == guest.is_bound, "who stands for nobody asks for a read"
            assert guest.credential is None or guest.session == 0, "its home knows the credential"
            assert guest.heard <= self._turn.clock.now, "nobody was heard in the future"
        commit = self._metadata.commit
        assert all(each.commit > commit for each, _ in self._early), "what can be served is"
        assert all(guest_number(each) not in guests for each, _ in self._early), "once each"


def guest_number(envelope: ForwardedRequestHeader) -> int:
    """Return the number of the guest that stands for a request: its home, and its ticket there."""
    return make_connection_id(envelope.home, _GUEST | envelope.ticket)
