"""Ends the sessions that rest on something which no longer holds (SE-4).

A change reaches open connections in the turn in which it is applied here, before any request that
comes after. Who changes the own password keeps the session in which it was done: that one has just
proved the old one. A hash that is made anew, at a higher cost, changes no password.

Flow: apply, reply.
"""

from headrace.metadata.applied import OF_USERS, Applied
from headrace.ports.network import CloseConnection
from headrace.shard.audit import Auditor
from headrace.shard.connections import Connection
from headrace.shard.credential import holds
from headrace.shard.desk import Desk
from headrace.shard.login import Logins
from headrace.wire.commands.users import CHANGE_PASSWORD
from headrace.wire.evictions import EvictionReason
from headrace.wire.numbers import Operation

ENDED = "what the session was opened with no longer holds"


class Revocation:
    """Looks through the sessions after changes, and once a second for tokens that expire."""

    def __init__(self, desk: Desk, logins: Logins, auditor: Auditor) -> None:
        self._desk = desk
        self._logins = logins
        self._auditor = auditor
        self._state = desk.state  # another one after a state transfer
        self._is_changed = False

    def learn(self) -> None:
        """Take what was applied in this turn, before its replies leave: some are to logins."""
        for applied in self._desk.metadata.take_applied():
            self._auditor.applied(applied)
            if applied.header.operation in OF_USERS:
                self._is_changed = True
                if applied.header.operation == Operation.CHANGE_PASSWORD:
                    self._carry_on(applied)

    def after_turn(self) -> None:
        """End what this turn's changes have ended; who asked for them has been answered."""
        if self._is_changed or self._state is not self._desk.state:
            self._is_changed = False
            self._state = self._desk.state
            for connection in list(self._desk.connections.all()):
                self._look_at(connection)

    def end_expired(self) -> None:
        """End the sessions of tokens whose time is over: no op says so."""
        for connection in list(self._desk.connections.all()):
            credential = connection.credential
            if credential is not None and credential.token_hash is not None:
                self._look_at(connection)

    def _look_at(self, connection: Connection) -> None:
        desk = self._desk
        if connection.is_bound:
            assert connection.credential is not None
            if not holds(connection.credential, desk.state, desk.committed_time):
                self._end(connection)

    def _carry_on(self, applied: Applied) -> None:
        """Have sessions go on that a new hash does not end."""
        if applied.refusal is not None:
            return
        change = CHANGE_PASSWORD.decode_request(applied.body)
        before, after = change.current_password.decode(), change.new_password.decode()
        if applied.header.client == 0:
            self._logins.rehashed(before, after)
            return
        connection = self._desk.connections.of_client(applied.header.client)
        if connection is not None:
            self._logins.renew(connection, before, after)

    def _end(self, connection: Connection) -> None:
        desk = self._desk
        desk.probes.hit("sessions.revoked")
        desk.answers.evict(connection.number, connection.client, EvictionReason.NO_SESSION)
        self._logins.release(connection)
        desk.out.append(CloseConnection(connection.number, ENDED))
