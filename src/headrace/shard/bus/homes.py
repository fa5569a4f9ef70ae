"""On shard 0: the connections that live on other shards, and what their homes are told.

Shard 0 knows every connection of the node from the moment it accepts it, and decides who is logged
in. What it does with a connection that lives elsewhere leaves as an order to its home.

Flow: reply.
"""

from collections.abc import Iterable

from headrace.base.connection_numbers import home_of
from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import METADATA_SHARD
from headrace.ports.bus import SendToMember
from headrace.ports.network import Buffer, CloseConnection, ConnectionTrusted, SendToConnection
from headrace.shard.bus.numbered import Incoming, Outgoing
from headrace.shard.front.connections import Connections
from headrace.wire.bus.handover import CONNECTION_ORDER, ConnectionOrderHeader, Order


class Homes:
    """Makes orders of effects, and has them arrive."""

    def __init__(self, connections: Connections, count: int) -> None:
        self._connections = connections
        self.orders = {home: Outgoing() for home in range(1, count)}
        self.departures = {home: Incoming() for home in range(1, count)}

    def order(self, effect: SendToConnection | ConnectionTrusted | CloseConnection) -> SendToMember:
        """Return the order that has its home carry out an effect."""
        number = effect.connection
        assert home_of(number) in self.orders, "who lives here needs no order"
        connection = self._connections.get(number)
        body: tuple[Buffer, ...] = ()
        client = session = user_id = 0
        match effect:
            case SendToConnection():
                order, body = Order.SEND, effect.parts
            case CloseConnection():
                order, body = Order.CLOSE, (effect.reason.encode(),)
            case ConnectionTrusted(is_trusted=True):
                assert connection is not None
                assert connection.is_bound, "who is trusted holds a session"
                assert connection.session > 0, "who is trusted holds a session"
                assert self._connections.of_client(connection.client) is connection, (
                    "a client has one connection"
                )
                order, user_id = Order.TRUST, connection.user_id
                client, session = connection.client, connection.session
            case _:
                is_over = connection is not None and connection.is_over
                order = Order.END if is_over else Order.DISTRUST
        outgoing = self.orders[home_of(number)]
        header = ConnectionOrderHeader(
            size=HEADER_BYTES + sum(len(part) for part in body),
            connection=number,
            number=outgoing.next_number(),
            order=order,
            client=client,
            session=session,
            user_id=user_id,
        )
        parts = (CONNECTION_ORDER.encode(header), *body)
        outgoing.keep(parts)
        assert outgoing.last == header.number, "an order has the number under which it is kept"
        return SendToMember(home_of(number), parts)

    def on_taken(self, home: int, number: int) -> Iterable[SendToMember]:
        """Take how many orders a home has taken; return those that it must get again."""
        outgoing = self.orders[home]
        outgoing.on_taken(number)
        assert outgoing.taken == number, "what a home has taken is not kept for it"
        return [SendToMember(home, parts) for parts in outgoing.take_again()]

    def check(self) -> None:
        """Assert that every connection which lives elsewhere has a home."""
        assert self.orders.keys() == self.departures.keys(), "both go to and come from all homes"
        assert METADATA_SHARD not in self.orders, "nobody orders itself"
        for outgoing in self.orders.values():
            outgoing.check()
        for connection in self._connections.all():
            home = home_of(connection.number)
            assert not home or home in self.orders, "a connection lives on a shard of the node"
