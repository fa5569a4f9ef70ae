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
from headrace.shard.front.connections import Connection, Phase
from headrace.shard.front.credential import Credential, credential_of, holds
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
    Register,
    Registered,
)
from headrace.wire.commands.users import CHANGE_PASSWORD, ChangePassword
from headrace.wire.errors import Code, DecodeError, RefusedError
from headrace.wire.evictions import EvictionReason
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.replies import RESULT_OK, encode_rejection, read_result
from headrace.wire.requests import RequestHeader
from headrace.wire.versions import PROTOCOL_PACKED, is_compatible

WRONG = "wrong credentials"


class _Pending(msgspec.Struct, frozen=True, kw_only=True):
    connection: int
    ticket: int
    header: RequestHeader
    request: Register
    origin: Origin
    credential: Credential | None  # nothing if there is no such user
    asked_hash: str | None  # the one that the credential hasher compares with
    is_current: bool  # whether this node knew the users of then


class Logins:
    """All logins that are under way."""

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
        self._pending: dict[int, _Pending] = {}

    def register(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        """Begin a login; a connection that holds a session keeps it."""
        if connection.is_bound:
            self._welcome(connection, header)
            return
        if self._answers.is_waiting(connection.login):
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
            self._verify(connection, header, request, request.password)
        elif request.token is not None:
            self._try_token(connection, header, request)
        else:
            self._answers.evict(connection.number, header.client, EvictionReason.MALFORMED_LOGIN)

    def _verify(
        self, connection: Connection, header: RequestHeader, request: Register, login: PasswordLogin
    ) -> None:
        user = self._metadata.state.users.find(login.username)
        is_root = login.username == self._root_name
        origin = origin_of(login.username, connection.address, is_root=is_root)
        if self.lockout.is_refused(origin, self._clock.now):
            self._pause(connection, header)
            return
        connection.login = self._answers.wait(connection.number, header)
        token = self._turn.new_token()
        assert token not in self._pending, "a token is given once"
        credential = None if user is None else credential_of(user)
        asked_hash = None if credential is None else credential.password_hash
        self._pending[token] = _Pending(
            connection=connection.number,
            ticket=connection.login,
            header=header,
            request=request,
            origin=origin,
            credential=credential,
            asked_hash=asked_hash,
            is_current=self._is_current,
        )
        self._turn.out.append(VerifyPassword(token, Secret(login.password), asked_hash))

    @property
    def _root_name(self) -> str:
        """The name of the root user as it is now."""
        root = self._metadata.state.users.find(ROOT_USER)
        return self._settings.root_username if root is None else root.name

    def on_verified(self, event: PasswordVerified) -> bool:
        """Go on with a login; return whether the answer was for one."""
        pending = self._pending.pop(event.token, None)
        if pending is None:
            return False
        connection = self._connections.get(pending.connection)
        if connection is None or not self._answers.is_waiting(pending.ticket):
            return True
        self._go_on(connection, pending, event)
        if connection.login:
            self._answers.end(connection.login)  # It is answered.
            connection.login = 0
        return True

    def _go_on(self, connection: Connection, pending: _Pending, event: PasswordVerified) -> None:
        """Answer a login whose password was compared, or hand it to the metadata group."""
        assert connection.login == pending.ticket
        credential = pending.credential
        if self.lockout.is_refused(pending.origin, self._clock.now):
            # Guesses that were sent all at once are not told apart: none of them is answered.
            self._pause(connection, pending.header)
        elif event.is_right and credential is not None and self._holds(credential):
            if event.stronger_hash is not None:
                self._strengthen(credential, pending.asked_hash, event.stronger_hash)
            self._propose(connection, pending.header, credential)
        elif pending.request.token is not None:
            self._try_token(connection, pending.header, pending.request, pending)
        else:
            self._refuse_password(connection, pending)

    def _refuse_password(self, connection: Connection, pending: _Pending) -> None:
        """Refuse a login and count it, if this node knew the users of that time (O6.2)."""
        if not pending.is_current:
            self._reject(connection, pending.header, Code.TRANSIENT_NOT_ACCEPTED)
            return
        pause = self.lockout.fail(pending.origin, self._clock.now)
        outcome = f"{WRONG}, no more tries for {pause // SECOND_TICKS} s" if pause else WRONG
        client = pending.header.client
        # In a body that may be read as a token too, what looks like a name may be a secret.
        username = pending.origin.username if pending.request.token is None else ""
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
        change = ChangePassword(credential.user_id, verified.encode(), stronger.encode())
        own = OwnOp(Operation.CHANGE_PASSWORD, CHANGE_PASSWORD.encode_request(change))
        self._metadata.propose(own)

    def rehashed(self, before: str, after: str) -> None:
        """Have sessions, and logins under way, rest on the new hash of the same password."""
        for connection in self._connections.all():
            self.renew(connection, before, after)
        for token, pending in self._pending.items():
            credential = pending.credential
            if credential is not None and credential.password_hash == before:
                renewed = msgspec.structs.replace(credential, password_hash=after)
                self._pending[token] = msgspec.structs.replace(pending, credential=renewed)

    @staticmethod
    def renew(connection: Connection, before: str, after: str) -> None:
        """Have a connection rest on another hash, if it rests on this one."""
        credential = connection.credential
        if credential is not None and credential.password_hash == before:
            renewed = msgspec.structs.replace(credential, password_hash=after)
            connection.credential = renewed

    def on_busy(self, token: int) -> bool:
        """Refuse a login while too many passwords are being hashed; return whether one waits."""
        pending = self._pending.pop(token, None)
        if pending is None:
            return False
        connection = self._connections.get(pending.connection)
        if connection is not None and self._answers.end(pending.ticket) is not None:
            self._reject(connection, pending.header, Code.TRANSIENT_NOT_ACCEPTED)
        return True

    def _try_token(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Register,
        pending: _Pending | None = None,
    ) -> None:
        """Take a login by token; with `pending`, of one whose password was wrong before."""
        assert request.token is not None
        found = resolve.token(self._metadata.state, hash_token(request.token.token))
        if found is None or found[1].is_expired(self._metadata.committed_time):
            if pending is not None:
                self._refuse_password(connection, pending)
            else:
                self._deny(connection, header, EvictionReason.INVALID_TOKEN)
        elif found[0].status != UserStatus.ACTIVE:
            self._deny(connection, header, EvictionReason.USER_INACTIVE)
        else:
            self._propose(connection, header, credential_of(*found))

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

    def _propose(
        self, connection: Connection, header: RequestHeader, credential: Credential
    ) -> None:
        """Have the metadata group give the client its session, or let it use the one it has."""
        assert connection.number in self._connections.by_number, "who logs in is connected"
        session = self._metadata.sessions.session_of(header.client, credential.user_id)
        if session > credential.created_op and not self._metadata.is_primary:
            # Who leads a partition need not lead the metadata, and its clients must get in (CR10).
            self._turn.probes.hit("sessions.bound_by_backup")
            self._bind(connection, header, credential, session)
            return
        try:
            waiting = connection.login if self._answers.is_waiting(connection.login) else 0
            self._answers.expect(connection, header, waiting)
        except RefusedError as error:  # Another connection logs in as this client right now.
            self._reject(connection, header, error.code)
            return
        connection.login = 0
        connection.credential = credential
        stamped = msgspec.structs.replace(header, user_id=credential.user_id, cluster=0)
        self._metadata.put_request(stamped, b"")

    def on_registered(self, connection: Connection, header: RequestHeader, body: bytes) -> None:
        """Take what the group answered to a Register."""
        try:
            session = int.from_bytes(read_result(memoryview(body)), "little")
        except RefusedError as error:
            if error.code == Code.INVALID_SESSION:
                self._answers.evict(connection.number, header.client, EvictionReason.SESSION_ERROR)
            else:
                self._reject(connection, header, error.code)
            return
        credential = connection.credential
        is_same = (
            credential is not None
            and credential.user_id == self._metadata.sessions.user_of(header.client)
            and self._holds(credential)
        )
        if not is_same:
            # Since the password was verified the user has changed, or another login has begun.
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
        self._disconnects.forget(client)
        old = self._connections.of_client(client)
        if old is not None and old is not connection:
            self._turn.out.append(ConnectionTrusted(old.number, is_trusted=False))
        before = connection.client
        self._connections.bind(connection, client=client, credential=credential, session=session)
        if before not in (0, client):
            self._disconnects.lose(
                before
            )  # Two logins came at once: the later one has the connection.
        self._turn.out.append(ConnectionTrusted(connection.number))
        user = self._metadata.state.users.find(credential.user_id)
        assert user is not None
        self.auditor.login(connection, user.name, client=client, op=session)
        self._welcome(connection, header)

    def _welcome(self, connection: Connection, header: RequestHeader) -> None:
        assert connection.session > 0, "who is welcomed holds a session"
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
                connection.enter(Phase.FREE)  # It may log in again.
            self._answers.reply(connection.number, header)
            return
        self._answers.expect(connection, header)
        stamped = msgspec.structs.replace(header, user_id=connection.user_id)
        self._metadata.put_request(stamped, b"")

    def tickets(self) -> list[int]:
        """Return the tickets of the logins that still wait for their password to be compared."""
        waiting = [each.ticket for each in self._pending.values()]
        return [ticket for ticket in waiting if self._answers.is_waiting(ticket)]

    def check(self) -> None:
        """Assert that a connection waits for one login, whose password is being compared."""
        waiting = [each for each in self._pending.values() if self._answers.is_waiting(each.ticket)]
        for each in waiting:
            assert each.connection in self._connections.by_number, "who waits is connected"
            connection = self._connections.get(each.connection)
            assert connection is None or connection.login == each.ticket, "one login at a time"
        tickets = dict.fromkeys(each.ticket for each in self._pending.values())
        assert len(tickets) == len(self._pending), "a login asks for one comparison"
        for each in self._pending.values():
            has_hash = each.asked_hash is not None
            assert has_hash == (each.credential is not None), "the hash asked for is that of a user"
        for connection in self._connections.all():
            assert connection.session <= self._metadata.commit, "a session began with an applied op"
            if self._answers.is_waiting(connection.login):
                assert connection.login in tickets, "a login that waits is being compared"
        self.lockout.check(self._clock.now)
