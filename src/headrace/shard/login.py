"""Login and logout: from credentials to a session that a connection holds.

```
Register -> version gate -> password, verified by the keeper of secrets -> token, by its hash
         -> op Register of the metadata group -> the connection holds the session
```

A wrong user, a wrong password and an inactive user get one answer, at one cost.

Flow: route, reply.
"""

import msgspec

from headrace.metadata import resolve
from headrace.metadata.state import User
from headrace.ports.credentials import PasswordVerified, Secret, VerifyPassword
from headrace.ports.network import ConnectionTrusted
from headrace.shard.connections import Connection
from headrace.shard.desk import Desk
from headrace.shard.tokens import hash_token
from headrace.vsr.events import OwnOp
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    PasswordLogin,
    Register,
    Registered,
)
from headrace.wire.errors import Code, DecodeError, RefusedError
from headrace.wire.evictions import EvictionReason
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.replies import RESULT_OK, encode_rejection, read_result
from headrace.wire.requests import RequestHeader
from headrace.wire.versions import PROTOCOL_PACKED, is_compatible


class _Pending(msgspec.Struct, frozen=True):
    connection: int
    header: RequestHeader
    request: Register
    user_id: int | None
    password_hash: str | None
    is_current: bool  # whether this node knew the users of then


class Logins:
    """Those who want in."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pending: dict[int, _Pending] = {}
        self._gone: dict[int, None] = {}  # clients whose connection is lost, until that is applied

    def register(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        """Begin a login; a connection that holds a session keeps it."""
        desk = self._desk
        if connection.is_bound:
            self._welcome(connection, header)
            return
        if connection.is_busy:
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED)
        try:
            request = LOGIN_PASSWORD.decode_request(body)
        except DecodeError:
            desk.answers.evict(connection.number, header.client, EvictionReason.MALFORMED_LOGIN)
            return
        if not is_compatible(request.version.protocol_version):
            reason = EvictionReason.INCOMPATIBLE_PROTOCOL
            desk.answers.evict(connection.number, header.client, reason)
        elif request.password is not None:
            self._verify(connection, header, request, request.password)
        elif request.token is not None:
            self._try_token(connection, header, request)
        else:
            desk.answers.evict(connection.number, header.client, EvictionReason.MALFORMED_LOGIN)

    def _verify(
        self, connection: Connection, header: RequestHeader, request: Register, login: PasswordLogin
    ) -> None:
        desk = self._desk
        user = desk.state.users.find(login.username)
        connection.is_busy = True
        token = desk.next_token()
        password_hash = None if user is None else user.password_hash
        self._pending[token] = _Pending(
            connection.number,
            header,
            request,
            None if user is None else user.id,
            password_hash,
            self._is_current,
        )
        desk.out.append(VerifyPassword(token, Secret(login.password), password_hash))

    def on_verified(self, event: PasswordVerified) -> bool:
        """Go on with a login; return whether the answer was for one."""
        pending = self._pending.pop(event.token, None)
        if pending is None:
            return False
        desk = self._desk
        connection = desk.connections.get(pending.connection)
        if connection is None:
            return True
        connection.is_busy = False
        user = None if pending.user_id is None else desk.state.users.find(pending.user_id)
        is_same = user is not None and user.password_hash == pending.password_hash
        if event.is_right and is_same and user is not None and user.status == UserStatus.ACTIVE:
            self._propose(connection, pending.header, user)
        elif pending.request.token is not None:
            self._try_token(connection, pending.header, pending.request)
        elif pending.is_current:
            self._deny(connection, pending.header, EvictionReason.INVALID_CREDENTIALS)
        else:
            self._reject(connection, pending.header, Code.TRANSIENT_NOT_ACCEPTED)
        return True

    def on_busy(self, token: int) -> bool:
        """Tell a client that the keeper of secrets has too much to do; return whether one waits."""
        pending = self._pending.pop(token, None)
        if pending is None:
            return False
        connection = self._desk.connections.get(pending.connection)
        if connection is not None:
            connection.is_busy = False
            self._reject(connection, pending.header, Code.TRANSIENT_NOT_ACCEPTED)
        return True

    def _try_token(self, connection: Connection, header: RequestHeader, request: Register) -> None:
        desk = self._desk
        assert request.token is not None
        found = resolve.token(desk.state, hash_token(request.token.token))
        reason: EvictionReason | None = None
        if found is None or found[1].is_expired(max(desk.wall, desk.state.timestamp)):
            is_password = request.password is not None
            reason = (
                EvictionReason.INVALID_CREDENTIALS if is_password else EvictionReason.INVALID_TOKEN
            )
        elif found[0].status != UserStatus.ACTIVE:
            reason = EvictionReason.USER_INACTIVE
        if reason is not None:
            self._deny(connection, header, reason)
            return
        assert found is not None
        self._propose(connection, header, found[0])

    @property
    def _is_current(self) -> bool:
        """Whether this node knows the users of now; without any, the first is still to come."""
        return self._desk.is_serving and len(self._desk.state.users) > 0

    def _deny(self, connection: Connection, header: RequestHeader, reason: EvictionReason) -> None:
        """Say no, if this node knows the users of now; else whoever does may say yes (O6.2)."""
        if self._is_current:
            self._desk.answers.evict(connection.number, header.client, reason)
        else:
            self._reject(connection, header, Code.TRANSIENT_NOT_ACCEPTED)

    def _propose(self, connection: Connection, header: RequestHeader, user: User) -> None:
        """Have the metadata group give the client its session, or let it use the one it has."""
        desk = self._desk
        session = desk.sessions.session_of(header.client, user.id)
        if session and not desk.metadata_replica.is_primary:
            # Who leads a partition need not lead the metadata, and its clients must get in (CR10).
            desk.probes.hit("sessions.bound_by_backup")
            self._bind(connection, header, user.id, session)
            return
        try:
            desk.answers.expect(connection, header, desk.now)
        except RefusedError as error:  # Another connection logs in as this client right now.
            self._reject(connection, header, error.code)
            return
        stamped = msgspec.structs.replace(header, user_id=user.id, cluster=0)
        desk.metadata_plane.put_request(desk.metadata_replica, stamped, b"")

    def on_registered(self, connection: Connection, header: RequestHeader, body: bytes) -> None:
        """Take what the group answered to a Register."""
        desk = self._desk
        try:
            session = int.from_bytes(read_result(memoryview(body)), "little")
        except RefusedError as error:
            if error.code == Code.INVALID_SESSION:
                desk.answers.evict(connection.number, header.client, EvictionReason.SESSION_ERROR)
            else:
                self._reject(connection, header, error.code)
            return
        user_id = desk.sessions.user_of(header.client)
        assert user_id is not None
        self._bind(connection, header, user_id, session)

    def _bind(
        self, connection: Connection, header: RequestHeader, user_id: int, session: int
    ) -> None:
        """Have a connection hold a session."""
        desk = self._desk
        self._gone.pop(header.client, None)
        desk.connections.bind(connection, client=header.client, user_id=user_id, session=session)
        desk.out.append(ConnectionTrusted(connection.number))
        self._welcome(connection, header)

    def _welcome(self, connection: Connection, header: RequestHeader) -> None:
        desk = self._desk
        registered = Registered(
            connection.user_id, connection.session, PROTOCOL_PACKED, desk.settings.server_version
        )
        payload = LOGIN_PASSWORD.encode_reply(registered)
        desk.answers.reply(connection.number, header, RESULT_OK + payload)

    def _reject(self, connection: Connection, header: RequestHeader, code: Code) -> None:
        self._desk.answers.reply(connection.number, header, encode_rejection(code))

    def logout(self, connection: Connection, header: RequestHeader) -> None:
        """End a session; where there is none it has ended."""
        desk = self._desk
        if not connection.is_bound or connection.client != header.client:
            desk.answers.reply(connection.number, header)
            return
        desk.answers.expect(connection, header, desk.now)
        stamped = msgspec.structs.replace(header, user_id=connection.user_id)
        desk.metadata_plane.put_request(desk.metadata_replica, stamped, b"")

    def on_logged_out(self, connection: Connection) -> None:
        """Take the session from a connection whose Logout was applied."""
        self._desk.connections.unbind(connection)

    # Connections that are lost.

    def lose(self, client: int) -> None:
        """Have a client leave its groups: its connection is gone."""
        self._gone[client] = None
        self.disconnect_gone()

    def disconnect_gone(self) -> None:
        """Propose what is not applied yet; called until it is."""
        desk = self._desk
        if not self._gone or not desk.is_serving:
            return
        for client in list(self._gone):
            back = desk.connections.of_client(client)
            if back is not None or not desk.sessions.is_connected(client):
                del self._gone[client]
            else:
                own = OwnOp(Operation.DISCONNECT, b"", client)
                desk.metadata_plane.propose(desk.metadata_replica.group, own)

    def lose_all(self) -> None:
        """A single node that starts has no connection: whoever had one has lost it."""
        for client in self._desk.sessions.connected_clients():
            self._gone[client] = None
        self.disconnect_gone()
