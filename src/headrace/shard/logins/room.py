"""Joins the parts of this room."""

from collections.abc import Callable

from headrace.base.placement import METADATA_SHARD
from headrace.ports.credentials import (
    CredentialsBusy,
    PasswordVerified,
)
from headrace.shard.front.connections import Connection
from headrace.shard.front.front import Front
from headrace.shard.front.stale import Stale
from headrace.shard.logins.disconnects import Disconnects
from headrace.shard.logins.login import Logins
from headrace.shard.logins.revocation import Revocation
from headrace.shard.logins.root import make_root
from headrace.shard.logins.user_orders import UserOrders
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn


class LoginRoom:
    """What only the shard that has the metadata group does for clients."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: MetadataGroup,
        front: Front,
        turn: Turn,
        withdraw: Callable[[int, int, int], bool],
    ) -> None:
        """Make the room; `withdraw` takes a request back that no group has ordered yet."""
        self._settings = settings
        self._metadata = metadata
        self._clock = turn.clock
        self._connections = front.connections
        answers = front.answers
        self.disconnects = Disconnects(metadata, answers, turn)
        self._stale = Stale(
            METADATA_SHARD,
            metadata,
            answers,
            turn,
            settings.stale_ticks,
            self.disconnects.release,
        )
        self.logins = Logins(settings, metadata, answers, self.disconnects, turn)
        self.revocation = Revocation(
            metadata, answers, self.logins, self.disconnects, turn, withdraw
        )
        self.users = UserOrders(
            metadata,
            front.requests,
            answers,
            self.logins.lockout,
            settings.password_bytes_min,
            turn,
        )

    def begin(self) -> None:
        """Begin to serve: metadata is here, as far as this node knows it."""
        if self._settings.metadata.replica_count == 1:
            self.disconnects.lose_all()
        self.make_root()

    def make_root(self) -> None:
        """Make the root user, if there is no user yet."""
        make_root(self._settings, self._metadata, self._clock)

    def on_closed(self, connection: Connection) -> None:
        """Take that a connection has closed."""
        self.logins.forget(connection.number)
        self.users.forget_unheard()
        connections = self._connections
        if connection.is_bound and connections.of_client(connection.client) is None:
            self.disconnects.lose(connection.client)

    def sweep(self) -> None:
        """Once a second: what nobody else remembers."""
        self.users.forget_unheard()
        self.disconnects.disconnect_gone()
        self.revocation.end_expired()
        self._stale.evict()

    def on_verified(self, event: PasswordVerified) -> None:
        """Take what the credential hasher found, of a login or of a change of password."""
        if not self.logins.on_verified(event):
            self.users.on_credentials(event)

    def on_busy(self, event: CredentialsBusy) -> None:
        """Take that the credential hasher has too much to do."""
        if not self.logins.on_busy(event.token):
            self.users.on_busy(event.token)

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait in this room, for anything but consensus."""
        return [*self.logins.tickets(), *self.users.tickets()]

    def check(self) -> None:
        """Assert that logins, orders with secrets and ends of sessions are in order."""
        tickets = self.tickets()
        assert len(dict.fromkeys(tickets)) == len(tickets), "a request waits for one thing"
        for connection in self._connections.all():
            assert connection.session <= self._metadata.commit, "a session began with an applied op"
            assert connection.heard <= self._clock.now, "nobody was heard in the future"
        self.logins.check()
        self.users.check()
        self.disconnects.check()
        self.revocation.check()
        self.revocation.check_sessions()
