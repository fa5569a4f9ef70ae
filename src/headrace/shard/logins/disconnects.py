"""Ends sessions whose connection is lost or silent: their clients leave their consumer groups.

Flow: replicate.
"""

from headrace.ports.network import ConnectionTrusted
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.turn import Turn
from headrace.vsr.events import OwnOp
from headrace.wire.numbers import Operation


class Disconnects:
    """The clients that are gone, until the metadata group has applied that."""

    def __init__(self, metadata: MetadataGroup, answers: Answers, turn: Turn) -> None:
        self._metadata = metadata
        self._connections = answers.connections
        self._turn = turn
        self._gone: dict[int, None] = {}  # clients whose connection is lost

    def forget(self, client: int) -> None:
        """Note that a client is back."""
        self._gone.pop(client, None)

    def release(self, connection: Connection) -> None:
        """Take the session from a connection: it is over."""
        if connection.stands_for:
            holder = self._connections.get(connection.stands_for)
            if holder is None or holder.client != connection.client:
                return
            connection = holder
        client = connection.client
        assert client > 0, "only a session is taken from a connection"
        self._connections.unbind(connection)
        assert connection.session == 0, "a session that is over is not asked in"
        assert self._connections.of_client(client) is None, "a client has one connection"
        self._turn.out.append(ConnectionTrusted(connection.number, is_trusted=False))
        self.lose(client)

    def on_unheard(self, client: int) -> None:
        """See to a login for which nobody waits any more: the table takes it for connected."""
        if self._connections.of_client(client) is None:
            self.lose(client)

    def lose(self, client: int) -> None:
        """Have a client leave its groups: its connection is gone."""
        assert client > 0, "only a client is lost"
        self._gone[client] = None
        self._disconnect(client)

    def lose_all(self) -> None:
        """A single node that starts has no connection: whoever had one has lost it."""
        assert not any(each.is_bound for each in self._connections.all()), "nobody logged in before"
        for client in self._metadata.sessions.connected_clients():
            self._gone[client] = None
        self.disconnect_gone()

    def disconnect_gone(self) -> None:
        """Propose what is not applied yet; called until it is."""
        for client in list(self._gone):
            self._disconnect(client)

    def _disconnect(self, client: int) -> None:
        assert client in self._gone, "only who is gone is disconnected"
        if not self._metadata.is_serving:
            return
        back = self._connections.of_client(client)
        # One that a backup let in without a new session may be a member, though the table does not
        # take it for connected: it lost another connection before.
        is_known = self._metadata.sessions.is_connected(client)
        if back is not None or not (is_known or client in self._metadata.state.memberships):
            del self._gone[client]
        else:
            own = OwnOp(Operation.DISCONNECT, b"", client)
            self._metadata.propose(own)

    def check(self) -> None:
        """Assert that whoever the table of a single node takes for connected is, or will leave."""
        plane, sessions = self._metadata.plane, self._metadata.sessions
        assert 0 not in self._gone, "only a client is gone"
        if plane.config.replica_count > 1 or not plane.has_begun:
            return  # It may be connected to another node.
        for client in sessions.connected_clients():
            is_here = self._connections.of_client(client) is not None
            assert is_here or client in self._gone, "who has no connection leaves its groups"
        for client in self._metadata.state.memberships:
            is_here = self._connections.of_client(client) is not None
            assert is_here or client in self._gone, "who is in a group is here, or leaves"
