"""Orders that hold secrets: new users, passwords and tokens. What is ordered holds their hashes.

Hashing waits for the credential hasher; the request goes on when the hash is there.

Flow: route, replicate.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from headrace.base.ids import ROOT_USER
from headrace.base.secret import Secret
from headrace.metadata import admission, resolve
from headrace.metadata.access import Scope, check_access
from headrace.ports.credentials import (
    HashPassword,
    MintToken,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
    VerifyPassword,
)
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.metadata_requests import MetadataRequests
from headrace.shard.logins.lockout import Lockout, origin_of
from headrace.shard.logins.tokens import hash_token
from headrace.shard.metadata import Metadata
from headrace.shard.turn import Turn
from headrace.wire.codec import encode
from headrace.wire.commands import tokens, users
from headrace.wire.commands.internal import CREATE_TOKEN_HASHED, CreateTokenHashed
from headrace.wire.errors import Code, RefusedError
from headrace.wire.replies import RESULT_OK, encode_rejection
from headrace.wire.requests import RequestHeader

if TYPE_CHECKING:
    from headrace.shard.front.orders import Order

_Continuation: TypeAlias = Callable[[Any, int], None]  # what was waited for, and the ticket


class UserOrders:
    """Makes requests ready and hands them to the metadata group."""

    def __init__(
        self,
        metadata: Metadata,
        requests: MetadataRequests,
        answers: Answers,
        lockout: Lockout,
        password_bytes_min: int,
        turn: Turn,
    ) -> None:
        self._metadata = metadata
        self._requests = requests
        self._answers = answers
        self._lockout = lockout
        self._password_bytes_min = password_bytes_min
        self._clock = turn.clock
        self._out = turn.out
        self._new_token = turn.new_token
        self._continuations: dict[int, tuple[int, _Continuation]] = {}  # with the tickets
        # Of tokens being made, with the tickets of their requests; by client and request.
        self._secrets: dict[tuple[int, int], tuple[int, Secret]] = {}
        self.by_code: dict[int, Order] = {
            users.CREATE_USER.code: self._create_user,
            users.CHANGE_PASSWORD.code: self._change_password,
            tokens.CREATE_TOKEN.code: self._create_token,
        }

    def _create_user(
        self,
        connection: Connection,
        header: RequestHeader,
        request: users.CreateUser,
        body: memoryview,
    ) -> None:
        admission.check_no_options(request.options)
        check_access(self._metadata.state, header.user_id, users.CREATE_USER.code)
        admission.check_new_password(
            request.password, request.username, bytes_min=self._password_bytes_min
        )

        def go_on(event: PasswordHashed, ticket: int) -> None:
            made = msgspec.structs.replace(request, password=event.password_hash.encode())
            data = users.CREATE_USER.encode_request(made)
            self._requests.submit(connection, header, data, ticket=ticket)

        token = self._wait(connection, header, go_on)
        self._out.append(HashPassword(token, Secret(request.password)))

    def _change_password(
        self,
        connection: Connection,
        header: RequestHeader,
        request: users.ChangePassword,
        body: memoryview,
    ) -> None:
        scope = Scope(user=request.user)
        check_access(self._metadata.state, header.user_id, users.CHANGE_PASSWORD.code, scope)
        user = resolve.user(self._metadata.state, request.user)
        admission.check_new_password(
            request.new_password, user.name, bytes_min=self._password_bytes_min
        )
        current = user.password_hash
        # Whoever has a session must not guess here what a login would not let it guess (SE-3).
        origin = origin_of(user.name, connection.address, is_root=user.id == ROOT_USER)
        if self._lockout.is_refused(origin, self._clock.now):
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, user=user.id)

        def on_verified(event: PasswordVerified, ticket: int) -> None:
            if not event.is_right:
                self._lockout.fail(origin, self._clock.now)
                body = encode_rejection(Code.INVALID_CREDENTIALS)
                self._answers.end(ticket)
                self._answers.reply(connection.number, header, body)
                return
            token = self._wait_on(ticket, on_hashed)
            self._out.append(HashPassword(token, Secret(request.new_password)))

        def on_hashed(event: PasswordHashed, ticket: int) -> None:
            made = users.ChangePassword(
                request.user, current.encode(), event.password_hash.encode()
            )
            data = users.CHANGE_PASSWORD.encode_request(made)
            self._requests.submit(connection, header, data, ticket=ticket)

        token = self._wait(connection, header, on_verified)
        self._out.append(VerifyPassword(token, Secret(request.current_password), current))

    def _create_token(
        self,
        connection: Connection,
        header: RequestHeader,
        request: tokens.CreateToken,
        body: memoryview,
    ) -> None:
        def go_on(event: TokenMinted, ticket: int) -> None:
            made = CreateTokenHashed(
                header.user_id, request.name, request.expiry, hash_token(event.secret)
            )
            self._requests.submit(
                connection, header, encode(CREATE_TOKEN_HASHED, made), ticket=ticket
            )
            self._secrets[header.client, header.request] = (ticket, event.secret)

        token = self._wait(connection, header, go_on)
        self._out.append(MintToken(token))

    def _wait(self, connection: Connection, header: RequestHeader, go_on: _Continuation) -> int:
        """Have a request wait for the credential hasher; return the token to ask that with."""
        assert header.session == connection.session, "the session was checked"
        ticket = self._answers.wait(connection.number, header)
        return self._wait_on(ticket, go_on)

    def _wait_on(self, ticket: int, go_on: _Continuation) -> int:
        token = self._new_token()
        assert token not in self._continuations, "a token is given once"
        assert self._answers.is_waiting(ticket), "who is answered asks for nothing more"
        self._continuations[token] = (ticket, go_on)
        return token

    def on_credentials(self, event: PasswordVerified | PasswordHashed | TokenMinted) -> None:
        """Go on with a request whose secret is ready, unless it was refused meanwhile."""
        ticket, go_on = self._continuations.pop(event.token, (0, None))
        if go_on is None or not self._answers.is_waiting(ticket):
            return
        try:
            go_on(event, ticket)
        except RefusedError as error:
            self._answers.refuse_waiting(ticket, error.code)

    def on_busy(self, token: int) -> None:
        """Refuse a request: the credential hasher has too much to do."""
        ticket, _ = self._continuations.pop(token, (0, None))
        self._answers.refuse_waiting(ticket, Code.TRANSIENT_NOT_ACCEPTED)

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait for a secret."""
        return [ticket for ticket, _ in self._continuations.values()]

    def check(self) -> None:
        """Assert that a request waits for one secret at a time, and for that of its own."""
        tickets = dict.fromkeys(ticket for ticket, _ in self._continuations.values())
        assert len(tickets) == len(self._continuations), "a request waits for one secret"
        asked = list(self._continuations)
        assert asked == sorted(asked), "the hasher is asked in the order of tokens"
        kept = [ticket for ticket, _ in self._secrets.values()]
        assert len(dict.fromkeys(kept)) == len(kept), "a request makes one token"
        assert not tickets.keys() & dict.fromkeys(kept).keys(), "what is hashed is not minted yet"
        for (client, request), (ticket, _) in self._secrets.items():
            header = RequestHeader(client=client, request=request)
            is_ordered = self._answers.is_ordered(header, ticket)
            assert is_ordered == self._answers.is_waiting(ticket), "a token is ordered for who asks"

    def forget_unheard(self) -> None:
        """Forget the secrets that nobody will be told: their requests wait no more.

        They were refused, reached their deadline or lost their connection. Called once a second,
        and when a connection is gone.
        """
        for key, (ticket, _) in list(self._secrets.items()):
            if not self._answers.is_waiting(ticket):
                del self._secrets[key]

    def token_reply(self, header: RequestHeader, body: bytes) -> bytes:
        """Return the reply to the creator of a token: the secret, once.

        Whoever asks again after that is told that the token exists: nobody has the secret (51). One
        that was minted for that question is of no use.
        """
        _, secret = self._secrets.pop((header.client, header.request), (0, None))
        if body[:4] != RESULT_OK:
            return body
        if secret is None or hash_token(secret) not in self._metadata.state.token_owners:
            return encode_rejection(Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS)
        owner = self._metadata.state.token_owners[hash_token(secret)]
        assert owner.id == header.user_id, "a token is that of who asked for it"
        created = tokens.CreatedToken(bytes(secret).decode("ascii"))
        return RESULT_OK + tokens.CREATE_TOKEN.encode_reply(created)
