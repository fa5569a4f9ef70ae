"""Ends the sessions that rest on something which no longer holds (SE-4).

A change reaches open connections in the turn in which it is applied here, before any request that
comes after. Who changes the own password keeps the session in which it was done: that one has just
proved the old one. A hash that is made anew, at a higher cost, changes no password.

```
what waits and is not done   -> 41
what consensus has           -> its own answer; the end waits for it, and nothing else is served
nothing is left              -> the eviction, and the connection closes
```

Who deletes the token of the own session stays connected, to log out.

Flow: apply, reply.
"""

from collections.abc import Callable

import msgspec

from headrace.metadata.applied import OF_USERS, Applied
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection, Phase
from headrace.shard.front.credential import holds
from headrace.shard.logins.disconnects import Disconnects
from headrace.shard.logins.login import Logins
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.turn import Turn
from headrace.wire.commands.users import CHANGE_PASSWORD
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason
from headrace.wire.numbers import Operation

ENDED = "what the session was opened with no longer holds"


class Revocation:
    """Looks through the sessions after changes, and once a second for tokens that expire."""

    def __init__(
        self,
        metadata: MetadataGroup,
        answers: Answers,
        logins: Logins,
        disconnects: Disconnects,
        turn: Turn,
        withdraw: Callable[[int, int, int], bool],
    ) -> None:
        """Make it; `withdraw` takes a request back that no group has ordered yet."""
        self._metadata = metadata
        self._answers = answers
        self._connections = answers.connections
        self._logins = logins
        self._auditor = logins.auditor
        self._disconnects = disconnects
        self._turn = turn
        self._withdraw = withdraw
        self._state = metadata.state  # another one after a state transfer
        self._is_changed = False
        self.is_awake = False  # whether the end of the turn has work here
        self._deleters: dict[int, None] = {}  # clients that have deleted a token in this turn
        self._ending: dict[int, int] = {}  # clients whose end waits for an answer, by connection

    def learn(self) -> None:
        """Take what was applied in this turn, before its replies leave: some are to logins."""
        for applied in self._metadata.take_applied():
            self._auditor.applied(applied)
            if applied.header.operation in OF_USERS:
                self._is_changed = True
                if applied.header.operation == Operation.CHANGE_PASSWORD:
                    self._carry_on(applied)
                elif applied.header.operation == Operation.DELETE_PERSONAL_ACCESS_TOKEN:
                    assert applied.header.client > 0, "a token is deleted by a client"
                    self._deleters[applied.header.client] = None
        if self._state is not self._metadata.state:
            self._state = self._metadata.state
            self._is_changed = True
        self.is_awake |= self._is_changed

    def after_turn(self) -> None:
        """End what this turn's changes have ended; who asked for them has been answered."""
        if self._ending:
            self._end_answered()
        if self._is_changed:
            self._is_changed = False
            for connection in list(self._connections.all()):
                self._look_at(connection)
            self._deleters.clear()
        self.is_awake = bool(self._ending)
        assert not self._deleters, "who deleted a token is known for one turn"

    def check(self) -> None:
        """Assert that a session which must end is looked at until it has."""
        if self._is_changed or self._ending:
            assert self.is_awake, "what must end is looked at"
        assert self._is_changed or not self._deleters, "who deleted a token is known for one turn"
        for number in self._ending:
            assert self._connections.by_number[number].phase is Phase.OVER, "what ends is over"
        assert 0 not in self._ending.values(), "it was the session of a client"
        assert 0 not in self._deleters, "a token is deleted by a client"

    def check_sessions(self) -> None:
        """Assert, between turns, that every session rests on what the metadata says (SE-4)."""
        state = self._metadata.state
        for connection in self._connections.all():
            if connection.is_bound:
                assert connection.credential is not None
                # Tokens that expire are looked for once a second.
                assert holds(connection.credential, state, 0), "a session rests on what holds"

    def end_expired(self) -> None:
        """End the sessions of tokens whose time is over: no op says so."""
        for connection in list(self._connections.all()):
            credential = connection.credential
            if credential is not None and credential.token_hash is not None:
                self._look_at(connection)

    def _look_at(self, connection: Connection) -> None:
        if connection.is_bound:
            assert connection.credential is not None
            if not holds(
                connection.credential, self._metadata.state, self._metadata.committed_time
            ):
                self._end(connection)

    def _carry_on(self, applied: Applied) -> None:
        """Have sessions go on that a new hash does not end."""
        if applied.refusal is not None:
            return
        assert applied.header.operation == Operation.CHANGE_PASSWORD, "only that makes a new hash"
        change = CHANGE_PASSWORD.decode_request(applied.body)
        before, after = change.current_password.decode(), change.new_password.decode()
        if applied.header.client == 0:
            self._logins.rehashed(before, after)
            return
        connection = self._connections.of_client(applied.header.client)
        if connection is not None:
            self._logins.renew(connection, before, after)

    def _end(self, connection: Connection) -> None:
        """Take the session from a connection, and close it once nothing is on its way (SE-9)."""
        assert connection.session > 0, "only a session that is held ends"
        self._turn.probes.hit("sessions.revoked")
        if self._is_own_doing(connection):
            self._turn.probes.hit("sessions.kept_for_logout")
        else:
            assert connection.number not in self._ending, "a session ends once"
            self._ending[connection.number] = connection.client
            self.is_awake = True
        self._disconnects.release(connection)
        connection.enter(Phase.OVER)
        assert connection.session == 0, "nothing is asked in a session that is over"
        self._answers.refuse_undone(connection.number, Code.UNAUTHORIZED, self._withdraw)
        self._end_answered()

    def _is_own_doing(self, connection: Connection) -> bool:
        """Whether nothing but a token is missing, and who held the session has deleted it."""
        assert connection.credential is not None
        assert connection.credential.user_id == connection.user_id, "a session is of its user"
        without = msgspec.structs.replace(connection.credential, token_hash=None)
        is_user_here = holds(without, self._metadata.state, self._metadata.committed_time)
        return is_user_here and connection.client in self._deleters

    def _end_answered(self) -> None:
        """Close the connections whose session is over and that have been told everything else."""
        for number, client in list(self._ending.items()):
            connection = self._connections.get(number)
            if connection is not None and connection.is_over:  # It has not logged out.
                if self._answers.is_awaited(number):
                    continue
                self._answers.evict_asking(connection, client, EvictionReason.NO_SESSION)
                assert client != connection.client, "who is told of an end has no session"
                self._answers.close(number, ENDED)
            del self._ending[number]
