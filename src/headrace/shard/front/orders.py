"""What must be ordered by consensus, except sends: made ready, and handed to its group.

A request that a client sent gains here what every replica must decide alike (MD-11): defaults, the
member's client, numbers instead of names, hashes instead of secrets. Hashing waits for the keeper
of secrets; the request goes on when the hash is there.

Flow: route, replicate.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from headrace.base.ids import ROOT_USER, GroupId
from headrace.base.secret import Secret
from headrace.metadata import admission, resolve
from headrace.metadata.access import Scope, as_missing, check_access, reach
from headrace.ports.credentials import (
    HashPassword,
    MintToken,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
    VerifyPassword,
)
from headrace.shard.desk import Desk
from headrace.shard.front.connections import Connection
from headrace.shard.front.consumers import consumer_key, owns_partition
from headrace.shard.logins.lockout import origin_of
from headrace.shard.logins.tokens import hash_token
from headrace.shard.owned.partitions import Partitions
from headrace.wire.codec import encode
from headrace.wire.commands import clock, groups, messages, streams, tokens, topics, users
from headrace.wire.commands.command import Command
from headrace.wire.commands.internal import (
    ACCEPT_TIME,
    CREATE_TOKEN_HASHED,
    CREATE_TOPIC_WITH_ASSIGNMENTS,
    JOIN_GROUP_AS,
    LEAVE_GROUP_AS,
    OFFSET_KEY,
    OFFSET_MARK,
    TRIM_UP_TO,
    AcceptTime,
    CreateTokenHashed,
    JoinGroupAs,
    LeaveGroupAs,
    OffsetKey,
    OffsetMark,
    TrimUpTo,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import ConsumerKind, Operation, is_metadata, is_partition
from headrace.wire.replies import RESULT_OK, encode_rejection
from headrace.wire.requests import RequestHeader

# In the tables each command has a body of its own type.
_Order: TypeAlias = Callable[[Connection, RequestHeader, Any, memoryview], None]
_Continuation: TypeAlias = Callable[[Any, int], None]  # what was waited for, and the ticket


class _Place(NamedTuple):
    """Where an offset is stored, and whether who asks may store there."""

    kind: ConsumerKind
    key: int  # of the consumer
    namespace: GroupId
    is_owned: bool


class Orders:
    """Makes requests ready and hands them over."""

    def __init__(self, desk: Desk, partitions: Partitions) -> None:
        self._desk = desk
        self._partitions = partitions
        self._continuations: dict[int, tuple[int, _Continuation]] = {}  # with the tickets
        self._secrets: dict[tuple[int, int], Secret] = {}  # of tokens being made
        self._by_code: dict[int, _Order] = {
            streams.CREATE_STREAM.code: self._without_options,
            streams.UPDATE_STREAM.code: self._without_options,
            topics.CREATE_TOPIC.code: self._create_topic,
            topics.UPDATE_TOPIC.code: self._update_topic,
            topics.CREATE_PARTITIONS.code: self._count_partitions,
            topics.DELETE_PARTITIONS.code: self._count_partitions,
            topics.DELETE_SEGMENTS.code: self._delete_segments,
            groups.JOIN_GROUP.code: self._join,
            groups.LEAVE_GROUP.code: self._leave,
            users.CREATE_USER.code: self._create_user,
            users.UPDATE_USER.code: self._without_options,
            users.CHANGE_PASSWORD.code: self._change_password,
            tokens.CREATE_TOKEN.code: self._create_token,
            clock.ACCEPT_TIME.code: self._accept_time,
            messages.STORE_OFFSET.code: self._store_offset,
            messages.DELETE_OFFSET.code: self._delete_offset,
        }

    def order(
        self,
        connection: Connection,
        header: RequestHeader,
        command: Command[Any, Any],
        body: memoryview,
    ) -> None:
        """Take a request whose session is checked.

        Raises:
            RefusedError: It is malformed, or refused before consensus.
        """
        request = command.decode_request(body)
        is_anew = is_partition(command.operation) and header.request in connection.spent
        stamped = msgspec.structs.replace(header, user_id=connection.user_id, is_anew=int(is_anew))
        if is_metadata(command.operation) and self._is_answered_again(connection, stamped):
            return
        make = self._by_code.get(command.code, self._as_it_is)
        make(connection, stamped, request, body)

    def _is_answered_again(self, connection: Connection, header: RequestHeader) -> bool:
        """Whether a request for the metadata group was applied before, and is answered by that.

        Raises:
            RefusedError: Another node leads: nothing that is looked up here would be worth a word.
        """
        desk = self._desk
        if not desk.metadata.is_serving:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, group="metadata")
        is_applied = desk.metadata.answer_again(header, b"")
        return self._expect_again(connection, header, is_applied=is_applied)

    def _expect_again(
        self, connection: Connection, header: RequestHeader, *, is_applied: bool
    ) -> bool:
        """Have the answer to a request that was applied sent as it was then; return `is_applied`.

        What is asked before consensus may have another answer by now, through that very request: a
        password that it changed is not the current one any more.
        """
        if is_applied:
            self._desk.answers.expect(connection, header, self._desk.clock.now)
        return is_applied

    def _submit(
        self,
        connection: Connection,
        header: RequestHeader,
        body: bytes | memoryview,
        operation: Operation | None = None,
        ticket: int = 0,
    ) -> None:
        """Hand a request to the metadata group; with its ticket, if it has waited before."""
        desk = self._desk
        desk.answers.expect(connection, header, desk.clock.now, ticket)
        if operation is not None:
            header = msgspec.structs.replace(header, operation=operation)
        desk.metadata.put_request(header, body)

    def _as_it_is(
        self, connection: Connection, header: RequestHeader, request: object, body: memoryview
    ) -> None:
        self._submit(connection, header, body)

    def _accept_time(
        self, connection: Connection, header: RequestHeader, request: None, body: memoryview
    ) -> None:
        time = self._desk.clock.time
        accepted = AcceptTime(before=time.now, clock=max(time.now, time.clock))
        self._submit(connection, header, encode(ACCEPT_TIME, accepted))

    # Streams, topics, groups.

    def _without_options(
        self,
        connection: Connection,
        header: RequestHeader,
        request: streams.CreateStream | streams.UpdateStream | users.UpdateUser,
        body: memoryview,
    ) -> None:
        admission.check_no_options(request.options)
        self._submit(connection, header, body)

    def _create_topic(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.CreateTopic,
        body: memoryview,
    ) -> None:
        resolved = admission.resolve_topic_options(request, self._desk.settings.topic_defaults)
        data = encode(CREATE_TOPIC_WITH_ASSIGNMENTS, resolved)
        self._submit(connection, header, data, Operation.CREATE_TOPIC_WITH_ASSIGNMENTS)

    def _update_topic(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.UpdateTopic,
        body: memoryview,
    ) -> None:
        resolved = admission.resolve_topic_update(request, self._desk.settings.topic_defaults)
        self._submit(connection, header, topics.UPDATE_TOPIC.encode_request(resolved))

    def _count_partitions(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.CreatePartitions | topics.DeletePartitions,
        body: memoryview,
    ) -> None:
        admission.check_partitions_count(request.partitions_count)
        self._submit(connection, header, body)

    def _join(
        self,
        connection: Connection,
        header: RequestHeader,
        request: groups.JoinGroup,
        body: memoryview,
    ) -> None:
        data = encode(JOIN_GROUP_AS, JoinGroupAs(request, header.client, ()))
        self._submit(connection, header, data)

    def _leave(
        self,
        connection: Connection,
        header: RequestHeader,
        request: groups.LeaveGroup,
        body: memoryview,
    ) -> None:
        data = encode(LEAVE_GROUP_AS, LeaveGroupAs(request, header.client))
        self._submit(connection, header, data)

    # Users and tokens: secrets first.

    def _create_user(
        self,
        connection: Connection,
        header: RequestHeader,
        request: users.CreateUser,
        body: memoryview,
    ) -> None:
        desk = self._desk
        admission.check_no_options(request.options)
        check_access(desk.metadata.state, header.user_id, users.CREATE_USER.code)
        admission.check_new_password(
            request.password, request.username, bytes_min=desk.settings.password_bytes_min
        )

        def go_on(event: PasswordHashed, ticket: int) -> None:
            made = msgspec.structs.replace(request, password=event.password_hash.encode())
            data = users.CREATE_USER.encode_request(made)
            self._submit(connection, header, data, ticket=ticket)

        token = self._wait(connection, header, go_on)
        desk.out.append(HashPassword(token, Secret(request.password)))

    def _change_password(
        self,
        connection: Connection,
        header: RequestHeader,
        request: users.ChangePassword,
        body: memoryview,
    ) -> None:
        desk = self._desk
        scope = Scope(user=request.user)
        check_access(desk.metadata.state, header.user_id, users.CHANGE_PASSWORD.code, scope)
        user = resolve.user(desk.metadata.state, request.user)
        admission.check_new_password(
            request.new_password, user.name, bytes_min=desk.settings.password_bytes_min
        )
        current = user.password_hash
        # Whoever has a session must not guess here what a login would not let it guess (SE-3).
        origin = origin_of(user.name, connection.address, is_root=user.id == ROOT_USER)
        if desk.lockout.is_refused(origin, desk.clock.now):
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, user=user.id)

        def on_verified(event: PasswordVerified, ticket: int) -> None:
            if not event.is_right:
                desk.lockout.fail(origin, desk.clock.now)
                body = encode_rejection(Code.INVALID_CREDENTIALS)
                desk.answers.end(ticket)
                desk.answers.reply(connection.number, header, body)
                return
            token = self._wait_on(ticket, on_hashed)
            desk.out.append(HashPassword(token, Secret(request.new_password)))

        def on_hashed(event: PasswordHashed, ticket: int) -> None:
            made = users.ChangePassword(
                request.user, current.encode(), event.password_hash.encode()
            )
            data = users.CHANGE_PASSWORD.encode_request(made)
            self._submit(connection, header, data, ticket=ticket)

        token = self._wait(connection, header, on_verified)
        desk.out.append(VerifyPassword(token, Secret(request.current_password), current))

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
            self._submit(connection, header, encode(CREATE_TOKEN_HASHED, made), ticket=ticket)
            self._secrets[header.client, header.request] = event.secret

        token = self._wait(connection, header, go_on)
        self._desk.out.append(MintToken(token))

    def _wait(self, connection: Connection, header: RequestHeader, go_on: _Continuation) -> int:
        """Have a request wait for the keeper of secrets; give the token to ask that with."""
        ticket = self._desk.answers.wait(connection.number, header, self._desk.clock.now)
        return self._wait_on(ticket, go_on)

    def _wait_on(self, ticket: int, go_on: _Continuation) -> int:
        token = self._desk.next_token()
        self._continuations[token] = (ticket, go_on)
        return token

    def on_credentials(self, event: PasswordVerified | PasswordHashed | TokenMinted) -> None:
        """Go on with a request whose secret is ready, unless it was refused meanwhile."""
        ticket, go_on = self._continuations.pop(event.token, (0, None))
        if go_on is None or not self._desk.answers.is_waiting(ticket):
            return
        try:
            go_on(event, ticket)
        except RefusedError as error:
            self._refuse(ticket, error.code)

    def on_busy(self, token: int) -> None:
        """Refuse a request: the keeper of secrets has too much to do."""
        ticket, _ = self._continuations.pop(token, (0, None))
        self._refuse(ticket, Code.TRANSIENT_NOT_ACCEPTED)

    def _refuse(self, ticket: int, code: Code) -> None:
        desk = self._desk
        waiting = desk.answers.end(ticket)
        if waiting is not None:
            desk.answers.refuse(waiting.connection, waiting.header, desk.refusal(code))

    def forget(self, client: int) -> None:
        """Forget the secrets that nobody will be told: their connection is gone."""
        for key in [key for key in self._secrets if key[0] == client]:
            del self._secrets[key]

    def token_reply(self, header: RequestHeader, body: bytes) -> bytes:
        """Give what the maker of a token is told: the secret, once.

        Whoever asks again after that is told that the token exists: nobody has the secret (51). One
        that was minted for that question is of no use.
        """
        secret = self._secrets.pop((header.client, header.request), None)
        if body[:4] != RESULT_OK:
            return body
        if secret is None or hash_token(secret) not in self._desk.metadata.state.token_owners:
            return encode_rejection(Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS)
        created = tokens.CreatedToken(bytes(secret).decode("ascii"))
        return RESULT_OK + tokens.CREATE_TOKEN.encode_reply(created)

    # Partitions.

    def _store_offset(
        self,
        connection: Connection,
        header: RequestHeader,
        request: messages.StoreOffset,
        body: memoryview,
    ) -> None:
        place = self._find_place(header, messages.STORE_OFFSET.code, request)
        data = encode(OFFSET_MARK, OffsetMark(place.kind, place.key, request.offset))
        self._submit_offset(connection, header, place, data)
        self._partitions.retention.touch(place.namespace, place.kind, place.key)

    def _delete_offset(
        self,
        connection: Connection,
        header: RequestHeader,
        request: messages.DeleteOffset,
        body: memoryview,
    ) -> None:
        place = self._find_place(header, messages.DELETE_OFFSET.code, request)
        data = encode(OFFSET_KEY, OffsetKey(place.kind, place.key))
        self._submit_offset(connection, header, place, data)

    def _find_place(
        self,
        header: RequestHeader,
        code: int,
        request: messages.StoreOffset | messages.DeleteOffset,
    ) -> _Place:
        """Give whose offset it is, in which partition.

        Raises:
            RefusedError: The user may not, or something is missing.
        """
        try:
            return self._look_up_place(header, code, request)
        except RefusedError as error:
            raise as_missing(error) from None

    def _look_up_place(
        self,
        header: RequestHeader,
        code: int,
        request: messages.StoreOffset | messages.DeleteOffset,
    ) -> _Place:
        desk = self._desk
        topic = reach(desk.metadata.state, header.user_id, code, request.stream, request.topic)
        partition = request.partition_id
        if partition is None or partition >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=partition)
        kind, key = request.consumer.kind, consumer_key(topic, request.consumer)
        is_owned = kind != ConsumerKind.GROUP or owns_partition(
            topic, key, header.client, partition
        )
        return _Place(kind, key, topic.namespace(partition), is_owned)

    def _submit_offset(
        self, connection: Connection, header: RequestHeader, place: _Place, body: bytes
    ) -> None:
        """Hand over what is to happen to an offset, if the partition is dealt to who asks (O7.3).

        Whoever asks again is told what came of it, though the partition is another's by now, if
        that is known here. Who leads the metadata knows the owner, who leads the partition knows
        the request: where these are two nodes, a refusal says nothing of earlier tries.

        Raises:
            RefusedError: The partition belongs to another member.
        """
        if place.is_owned:
            self._submit_to_partition(connection, header, place.namespace, body)
            return
        replica = self._partitions.find(place.namespace).replica
        is_applied = self._desk.data_plane.answer_again(replica, header, body)
        if self._expect_again(connection, header, is_applied=is_applied):
            return
        if replica.is_in_flight(header):
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED, request=header.request)
        raise RefusedError(Code.CONSUMER_GROUP_PARTITION_NOT_OWNED, partition=place.namespace)

    def _delete_segments(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.DeleteSegments,
        body: memoryview,
    ) -> None:
        desk = self._desk
        code = topics.DELETE_SEGMENTS.code
        topic = reach(desk.metadata.state, header.user_id, code, request.stream, request.topic)
        if request.partition_id >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=request.partition_id)
        namespace = topic.namespace(request.partition_id)
        end = self._partitions.find(namespace).machine.sealed_end(request.segments_count)
        if end is None:
            connection.spend(header)
            desk.answers.reply(connection.number, header)
            return
        self._submit_to_partition(connection, header, namespace, encode(TRIM_UP_TO, TrimUpTo(end)))

    def _submit_to_partition(
        self, connection: Connection, header: RequestHeader, namespace: int, body: bytes
    ) -> None:
        desk = self._desk
        local = self._partitions.locals.get(namespace)
        if local is None:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, partition=namespace)
        if local.fence is not None:
            raise RefusedError(Code.CANNOT_APPEND_MESSAGE, why=local.fence)
        ticketed = desk.answers.expect_ticketed(connection, header, desk.clock.now)
        desk.data_plane.put_request(local.replica, ticketed, body)
