"""Login and logout: from credentials to a session that a connection holds.

```
Register -> version gate -> lockout -> password, verified by the credential hasher -> token, by hash
         -> op Register of the metadata group -> the connection holds the session
```

A wrong user, a wrong password and an inactive user get one answer, at one cost (SE-2). Who guesses
is told to come again later, like anybody whom a busy node cannot serve (SE-3).

Flow: route, reply.
"""

import msgspec

from headrace.base.ids import ROOT_USER
from headrace.base.secret import Secret
from headrace.metadata import resolve
from headrace.ports.credentials import PasswordVerified, VerifyPassword
from headrace.ports.network import ConnectionTrusted
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.connections import Phase as ConnectionPhase
from headrace.shard.front.credential import Credential, credential_of, holds
from headrace.shard.logins.attempt import Attempt, Phase
from headrace.shard.logins.audit import Auditor
from headrace.shard.logins.disconnects import Disconnects
from headrace.shard.logins.lockout import Lockout, Origin, origin_of
from headrace.shard.logins.tokens import hash_token
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.settings import SECOND_TICKS, ShardSettings
from headrace.shard.turn import Turn
from headrace.vsr.events import OwnOp
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    PasswordLogin,
    Registered,
    TokenLogin,
)
from headrace.wire.commands.users import CHANGE_PASSWORD, ChangePassword
from headrace.wire.errors import Code, DecodeError, RefusedError
from headrace.wire.evictions import EvictionReason
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.replies import RESULT_OK, encode_rejection, read_result
from headrace.wire.requests import RequestHeader
from headrace.wire.versions import PROTOCOL_PACKED, is_compatible

WRONG = "wrong credentials"


class Logins:
    """All logins that are under way, one of a connection at a time: see `Attempt`."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: MetadataGroup,
        answers: Answers,
        disconnects: Disconnects,
        turn: Turn,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._answers = answers
        self._connections = answers.connections
        self._disconnects = disconnects
        self._turn = turn
        self._clock = turn.clock
        self.lockout = Lockout(settings.lockout)
        self.auditor = Auditor(metadata, self._connections, turn.out)
        # By connection; one that ended by its deadline stays until the next one begins.
        self._attempts: dict[int, Attempt] = {}
        self._verifying: dict[int, Attempt] = {}  # by the tokens of what the hasher compares

    def register(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        """Begin a login; a connection that holds a session keeps it."""
        if connection.is_bound:
            self._welcome(connection, header)
            return
        assert header.request == 0, "a login has no number"
        if self._is_under_way(connection.number):
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED)
        try:
            request = LOGIN_PASSWORD.decode_request(body)
        except DecodeError:
            self._answers.evict(connection.number, header.client, EvictionReason.MALFORMED_LOGIN)
            return
        if not is_compatible(request.version.protocol_version):
            reason = EvictionReason.INCOMPATIBLE_PROTOCOL
            self._answers.evict(connection.number, header.client, reason)
        elif request.password is not None:
            attempt = Attempt(connection.number, header, request)
            self._verify(connection, attempt, request.password)
        elif request.token is not None:
            attempt = Attempt(connection.number, header, request)
            self._try_token(connection, attempt, request.token)
        else:
            self._answers.evict(connection.number, header.client, EvictionReason.MALFORMED_LOGIN)

    def _is_under_way(self, number: int) -> bool:
        """Whether a connection has a login that still waits."""
        attempt = self._attempts.get(number)
        return attempt is not None and self._answers.is_waiting(attempt.ticket)

    def _put(self, attempt: Attempt) -> None:
        """Take an attempt for that of its connection; one before it is over."""
        assert not self._is_under_way(attempt.connection), "a connection logs in once at a time"
        self.forget(attempt.connection)
        self._attempts[attempt.connection] = attempt

    def _end(self, attempt: Attempt) -> None:
        """End a login: it is answered, or nobody waits for it; its connection may have another."""
        attempt.end()
        if self._attempts.get(attempt.connection) is attempt:
            del self._attempts[attempt.connection]

    def forget(self, number: int) -> None:
        """End the login of a connection that is gone."""
        if number in self._attempts:
            self._end(self._attempts[number])

    def _verify(self, connection: Connection, attempt: Attempt, login: PasswordLogin) -> None:
        user = self._metadata.state.users.find(login.username)
        is_root = login.username == self._root_name
        origin = origin_of(login.username, connection.address, is_root=is_root)
        if self.lockout.is_refused(origin, self._clock.now):
            self._pause(connection, attempt.header)
            return
        self._put(attempt)
        ticket = self._answers.wait(connection.number, attempt.header)
        token = self._turn.new_token()
        assert token not in self._verifying, "a token is given once"
        attempt.verify(ticket, origin, None if user is None else credential_of(user))
        attempt.is_current = self._is_current
        self._verifying[token] = attempt
        self._turn.out.append(VerifyPassword(token, Secret(login.password), attempt.asked_hash))

    @property
    def _root_name(self) -> str:
        """The name of the root user as it is now."""
        root = self._metadata.state.users.find(ROOT_USER)
        return self._settings.root_username if root is None else root.name

    def on_verified(self, event: PasswordVerified) -> bool:
        """Go on with a login; return whether the answer was for one."""
        attempt = self._verifying.pop(event.token, None)
        if attempt is None:
            return False
        connection = self._connections.get(attempt.connection)
        if connection is None or not self._answers.is_waiting(attempt.ticket):
            self._end(attempt)
            return True
        assert self._attempts[attempt.connection] is attempt, "who waits is the login of now"
        self._go_on(connection, attempt, event)
        if attempt.phase is not Phase.ORDERED:
            self._answers.end(attempt.ticket)  # It is answered.
            self._end(attempt)
        return True

    def _go_on(self, connection: Connection, attempt: Attempt, event: PasswordVerified) -> None:
        """Answer a login whose password was compared, or hand it to the metadata group."""
        assert attempt.phase is Phase.VERIFYING, "only what is being compared has a result"
        credential, origin, token = attempt.credential, attempt.origin, attempt.request.token
        assert origin is not None
        if self.lockout.is_refused(origin, self._clock.now):
            # Guesses that were sent all at once are not told apart: none of them is answered.
            self._pause(connection, attempt.header)
        elif event.is_right and credential is not None and self._holds(credential):
            if event.stronger_hash is not None:
                self._strengthen(credential, attempt.asked_hash, event.stronger_hash)
            self._propose(connection, attempt, credential)
        elif token is not None:
            self._try_token(connection, attempt, token)
        else:
            self._refuse_password(connection, attempt, origin)

    def _refuse_password(self, connection: Connection, attempt: Attempt, origin: Origin) -> None:
        """Refuse a login and count it, if this node knew the users of that time (O6.2)."""
        if not attempt.is_current:
            self._reject(connection, attempt.header, Code.TRANSIENT_NOT_ACCEPTED)
            return
        pause = self.lockout.fail(origin, self._clock.now)
        outcome = f"{WRONG}, no more tries for {pause // SECOND_TICKS} s" if pause else WRONG
        client = attempt.header.client
        # In a body that may be read as a token too, what looks like a name may be a secret.
        username = origin.username if attempt.request.token is None else ""
        self.auditor.login(connection, username, outcome, client=client)
        self._answers.evict(connection.number, client, EvictionReason.INVALID_CREDENTIALS)

    def _pause(self, connection: Connection, header: RequestHeader) -> None:
        """Refuse a login for now: its account or its address has failed too often."""
        self._turn.probes.hit("login.paused")
        self._reject(connection, header, Code.TRANSIENT_NOT_ACCEPTED)

    def _holds(self, credential: Credential) -> bool:
        return holds(credential, self._metadata.state, self._metadata.committed_time)

    # Hashes that are made anew.

    def _strengthen(self, credential: Credential, verified: str | None, stronger: str) -> None:
        """Have a password stored at today's cost; the next login asks again if it is not (SE-1)."""
        if verified != credential.password_hash or not self._metadata.is_serving:
            return  # Another login was first, or this node cannot propose.
        assert stronger != verified, "a hash at a higher cost is another one"
        change = ChangePassword(credential.user_id, verified.encode(), stronger.encode())
        own = OwnOp(Operation.CHANGE_PASSWORD, CHANGE_PASSWORD.encode_request(change))
        self._metadata.propose(own)

    def rehashed(self, before: str, after: str) -> None:
        """Have sessions, and logins under way, rest on the new hash of the same password."""
        for connection in self._connections.all():
            self.renew(connection, before, after)
        for attempt in [*self._attempts.values(), *self._verifying.values()]:
            credential = attempt.credential
            if credential is not None and credential.password_hash == before:
                attempt.credential = msgspec.structs.replace(credential, password_hash=after)

    @staticmethod
    def renew(connection: Connection, before: str, after: str) -> None:
        """Have a connection rest on another hash, if it rests on this one."""
        credential = connection.credential
        if credential is not None and credential.password_hash == before:
            renewed = msgspec.structs.replace(credential, password_hash=after)
            connection.credential = renewed

    def on_busy(self, token: int) -> bool:
        """Refuse a login while too many passwords are being hashed; return whether one waits."""
        attempt = self._verifying.pop(token, None)
        if attempt is None:
            return False
        connection = self._connections.get(attempt.connection)
        if connection is not None and self._answers.end(attempt.ticket) is not None:
            self._reject(connection, attempt.header, Code.TRANSIENT_NOT_ACCEPTED)
        self._end(attempt)
        return True

    def _try_token(self, connection: Connection, attempt: Attempt, login: TokenLogin) -> None:
        """Take a login by token, maybe after it was tried as one by password."""
        header = attempt.header
        found = resolve.token(self._metadata.state, hash_token(login.token))
        if found is None or found[1].is_expired(self._metadata.committed_time):
            if attempt.origin is not None:
                self._refuse_password(connection, attempt, attempt.origin)
            else:
                self._deny(connection, header, EvictionReason.INVALID_TOKEN)
        elif found[0].status != UserStatus.ACTIVE:
            self._deny(connection, header, EvictionReason.USER_INACTIVE)
        else:
            self._propose(connection, attempt, credential_of(*found))

    @property
    def _is_current(self) -> bool:
        """Whether this node knows the users of now; without any, the first is still to come."""
        return self._metadata.is_current and len(self._metadata.state.users) > 0

    def _deny(self, connection: Connection, header: RequestHeader, reason: EvictionReason) -> None:
        """Refuse a login if this node knows the current users; else it may try again (O6.2)."""
        if self._is_current:
            outcome = reason.name.lower()
            self.auditor.login(connection, "", outcome, client=header.client)
            self._answers.evict(connection.number, header.client, reason)
        else:
            self._reject(connection, header, Code.TRANSIENT_NOT_ACCEPTED)

    def _propose(self, connection: Connection, attempt: Attempt, credential: Credential) -> None:
        """Have the metadata group give the client its session, or let it use the one it has."""
        assert connection.number in self._connections.by_number, "who logs in is connected"
        header = attempt.header
        session = self._metadata.sessions.session_of(header.client, credential.user_id)
        if session > credential.created_op and not self._metadata.is_primary:
            # Who leads a partition need not lead the metadata, and its clients must get in (CR10).
            self._turn.probes.hit("sessions.bound_by_backup")
            self._bind(connection, header, credential, session)
            return
        try:
            ticket = self._answers.expect(connection, header, attempt.ticket)
        except RefusedError as error:  # Another connection logs in as this client right now.
            self._reject(connection, header, error.code)
            return
        if attempt.phase is Phase.BEGUN:
            self._put(attempt)
        attempt.order(ticket, credential)
        stamped = msgspec.structs.replace(header, user_id=credential.user_id, cluster=0)
        self._metadata.put_request(stamped, b"")

    def on_registered(self, connection: Connection, header: RequestHeader, body: bytes) -> None:
        """Take what the group answered to a Register."""
        attempt = self._attempts[connection.number]
        assert attempt.phase is Phase.ORDERED, "the group answers what it was asked"
        assert attempt.header is header, "an answer is of the login that waits"
        self._end(attempt)
        try:
            session = int.from_bytes(read_result(memoryview(body)), "little")
        except RefusedError as error:
            if error.code == Code.INVALID_SESSION:
                self._answers.evict(connection.number, header.client, EvictionReason.SESSION_ERROR)
            else:
                self._reject(connection, header, error.code)
            return
        assert session <= self._metadata.commit, "a session begins with an applied op"
        credential = attempt.credential
        is_same = (
            credential is not None
            and credential.user_id == self._metadata.sessions.user_of(header.client)
            and self._holds(credential)
        )
        if not is_same:
            # Since the password was verified the user has changed.
            self._turn.probes.hit("login.overtaken")
            self._disconnects.lose(header.client)
            self._answers.evict(connection.number, header.client, EvictionReason.NO_SESSION)
            return
        assert credential is not None
        self._bind(connection, header, credential, session)

    def _bind(
        self, connection: Connection, header: RequestHeader, credential: Credential, session: int
    ) -> None:
        """Have a connection hold a session."""
        client = header.client
        assert session > credential.created_op, "a session begins after its user"
        assert header.request == 0, "a login has no number"
        self._disconnects.forget(client)
        old = self._connections.of_client(client)
        if old is not None and old is not connection:
            self._turn.out.append(ConnectionTrusted(old.number, is_trusted=False))
        self._connections.bind(connection, client=client, credential=credential, session=session)
        self._turn.out.append(ConnectionTrusted(connection.number))
        user = self._metadata.state.users.find(credential.user_id)
        assert user is not None
        assert user.created_op == credential.created_op, "a session is of the user of now"
        self.auditor.login(connection, user.name, client=client, op=session)
        self._welcome(connection, header)

    def _welcome(self, connection: Connection, header: RequestHeader) -> None:
        assert connection.session > 0, "who is welcomed holds a session"
        assert self._connections.of_client(connection.client) is connection, "it is found"
        registered = Registered(
            connection.user_id, connection.session, PROTOCOL_PACKED, self._settings.server_version
        )
        payload = LOGIN_PASSWORD.encode_reply(registered)
        self._answers.reply(connection.number, header, RESULT_OK + payload)

    def _reject(self, connection: Connection, header: RequestHeader, code: Code) -> None:
        self._answers.reply(connection.number, header, encode_rejection(code))

    def logout(self, connection: Connection, header: RequestHeader) -> None:
        """End a session; where there is none it has ended."""
        if not connection.is_bound or connection.client != header.client:
            if connection.is_over:
                connection.enter(ConnectionPhase.FREE)  # It may log in again.
            self._answers.reply(connection.number, header)
            return
        assert connection.session > 0, "who logs out holds a session"
        self._answers.expect(connection, header)
        stamped = msgspec.structs.replace(header, user_id=connection.user_id)
        self._metadata.put_request(stamped, b"")

    def tickets(self) -> list[int]:
        """Return the tickets of the logins that still wait for their password to be compared."""
        waiting = [each.ticket for each in self._verifying.values()]
        return [ticket for ticket in waiting if self._answers.is_waiting(ticket)]

    def check(self) -> None:
        """Assert that a connection has one login, and that each waits for what its phase says."""
        tickets = [each.ticket for each in self._verifying.values()]
        assert tickets == sorted(tickets), "the hasher is asked in the order of requests"
        assert len(dict.fromkeys(tickets)) == len(tickets), "a login asks for one comparison"
        for attempt in self._verifying.values():
            assert attempt.phase in (Phase.VERIFYING, Phase.OVER), "one that is compared waits"
            if self._answers.is_waiting(attempt.ticket):
                assert self._attempts[attempt.connection] is attempt, "one login at a time"
        for number, attempt in self._attempts.items():
            attempt.check()
            assert attempt.connection == number, "a login is found by its connection"
            assert attempt.phase is not Phase.OVER, "a login that is over is forgotten"
            assert number in self._connections.by_number, "who logs in is connected"
            is_waiting = self._answers.is_waiting(attempt.ticket)
            is_bound = self._connections.by_number[number].is_bound
            assert not (is_waiting and is_bound), "who holds a session does not log in"
            if is_waiting and attempt.phase is Phase.VERIFYING:
                assert attempt.ticket in tickets, "a login that waits is being compared"
            if attempt.phase is Phase.ORDERED:
                is_ordered = self._answers.is_ordered(attempt.header, attempt.ticket)
                assert is_ordered == is_waiting, "a login that is ordered waits for the group"
        for connection in self._connections.all():
            assert connection.session <= self._metadata.commit, "a session began with an applied op"
            if connection.is_bound:
                client, user_id = connection.client, connection.user_id
                known = self._metadata.sessions.session_of(client, user_id)
                assert known in (0, connection.session) or connection.session < known, (
                    "the table has a later session of a client, or none, or this one"
                )
        self.lockout.check(self._clock.now)
