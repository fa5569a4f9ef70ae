"""A metadata machine that is driven as the primary drives it: ops in order, replies read back."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from headrace.metadata import resolve
from headrace.metadata.admission import TopicDefaults, resolve_topic_options, resolve_topic_update
from headrace.metadata.machine import MetadataMachine
from headrace.metadata.state import Group, State, Topic
from headrace.ports.machine import StateMachine
from headrace.wire.codec import encode
from headrace.wire.commands import groups, internal, streams, tokens, topics, users
from headrace.wire.commands.command import Command
from headrace.wire.errors import RefusedError
from headrace.wire.fields import FieldValue, make_field
from headrace.wire.identifiers import Identifier
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.options import Options, make_options
from headrace.wire.permissions import Permissions
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import read_result
from headrace.wire.topic_options import TOPIC_OPTIONS

P = ParamSpec("P")
Q = TypeVar("Q")
R = TypeVar("R")

ROOT = 0
SERVER = 0  # the client of ops that the server proposes itself
CLIENT = 0xC11E
START = 1_700_000_000_000_000
SECOND = 1_000_000
DEV = TopicDefaults(durability_minimum="replicated")
HASH = b"$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA"


class Stage:
    """Gives every op its number and stamp; methods raise `RefusedError` where the reply says so."""

    def __init__(self, *, with_root: bool = True) -> None:
        self.machine = MetadataMachine()
        self.op = 0
        self.user = ROOT
        self.client = CLIENT
        self.defaults = DEV
        self.behind = 0  # how many ops were not committed when one was ordered
        if with_root:
            self.create_user("iggy", client=SERVER)

    @property
    def state(self) -> State:
        return self.machine.state

    def as_machine(self) -> StateMachine:
        return self.machine

    def raw(self, operation: int, body: bytes, *, client: int | None = None) -> bytes:
        """Apply one op; give its whole reply."""
        self.op += 1
        header = PrepareHeader(
            op=self.op,
            commit=max(0, self.op - 1 - self.behind),
            timestamp=START + self.op * SECOND,
            operation=operation,
            user_id=self.user,
            client=self.client if client is None else client,
        )
        reply = self.machine.apply(header, body)
        self.machine.check()
        return reply

    def ask(self, operation: int, body: bytes, *, client: int | None = None) -> memoryview:
        """Apply one op; give the payload of its reply."""
        return read_result(memoryview(self.raw(operation, body, client=client)))

    def run(self, command: Command[Q, R], request: Q, *, client: int | None = None) -> R:
        """Apply an op whose body is as the client sent it; give the typed reply."""
        payload = self.ask(command.operation, command.encode_request(request), client=client)
        return command.decode_reply(payload)

    # Streams and topics.

    def create_stream(self, name: str = "shop", options: Options = ()) -> streams.Stream:
        return self.run(streams.CREATE_STREAM, streams.CreateStream(name, options))

    def update_stream(self, stream: Identifier, name: str, options: Options = ()) -> None:
        self.run(streams.UPDATE_STREAM, streams.UpdateStream(stream, name, options))

    def delete_stream(self, stream: Identifier) -> None:
        self.run(streams.DELETE_STREAM, streams.DeleteStream(stream))

    def purge_stream(self, stream: Identifier) -> None:
        self.run(streams.PURGE_STREAM, streams.PurgeStream(stream))

    def create_topic(
        self,
        stream: Identifier = "shop",
        name: str = "orders",
        partitions: int = 3,
        options: Options = (),
    ) -> topics.TopicDetails:
        request = topics.CreateTopic(stream, partitions, name, options)
        resolved = resolve_topic_options(request, self.defaults)
        body = encode(internal.CREATE_TOPIC_WITH_ASSIGNMENTS, resolved)
        payload = self.ask(Operation.CREATE_TOPIC_WITH_ASSIGNMENTS, body)
        return topics.CREATE_TOPIC.decode_reply(payload)

    def update_topic(
        self, stream: Identifier, topic: Identifier, name: str, options: Options = ()
    ) -> None:
        request = topics.UpdateTopic(stream, topic, name, options)
        self.run(topics.UPDATE_TOPIC, resolve_topic_update(request, self.defaults))

    def delete_topic(self, stream: Identifier, topic: Identifier) -> None:
        self.run(topics.DELETE_TOPIC, topics.DeleteTopic(stream, topic))

    def purge_topic(self, stream: Identifier, topic: Identifier) -> None:
        self.run(topics.PURGE_TOPIC, topics.PurgeTopic(stream, topic))

    def create_partitions(self, stream: Identifier, topic: Identifier, count: int) -> None:
        self.run(topics.CREATE_PARTITIONS, topics.CreatePartitions(stream, topic, count))

    def delete_partitions(self, stream: Identifier, topic: Identifier, count: int) -> None:
        self.run(topics.DELETE_PARTITIONS, topics.DeletePartitions(stream, topic, count))

    # Consumer groups.

    def create_group(
        self, stream: Identifier = "shop", topic: Identifier = "orders", name: str = "billing"
    ) -> groups.GroupDetails:
        return self.run(groups.CREATE_GROUP, groups.CreateGroup(stream, topic, name))

    def delete_group(self, stream: Identifier, topic: Identifier, group: Identifier) -> None:
        self.run(groups.DELETE_GROUP, groups.DeleteGroup(stream, topic, group))

    def join(
        self,
        client: int,
        stream: Identifier = "shop",
        topic: Identifier = "orders",
        group: Identifier = "billing",
    ) -> None:
        request = internal.JoinGroupAs(groups.JoinGroup(stream, topic, group), client, ())
        body = encode(internal.JOIN_GROUP_AS, request)
        assert not self.ask(Operation.JOIN_CONSUMER_GROUP, body, client=client)

    def leave(
        self,
        client: int,
        stream: Identifier = "shop",
        topic: Identifier = "orders",
        group: Identifier = "billing",
    ) -> None:
        request = internal.LeaveGroupAs(groups.LeaveGroup(stream, topic, group), client)
        body = encode(internal.LEAVE_GROUP_AS, request)
        assert not self.ask(Operation.LEAVE_CONSUMER_GROUP, body, client=client)

    def remove_member(self, client: int) -> None:
        body = encode(internal.REMOVE_GROUP_MEMBER, internal.RemoveGroupMember(client))
        assert not self.ask(Operation.REMOVE_CONSUMER_GROUP_MEMBER, body, client=SERVER)

    # Users and tokens.

    def create_user(
        self,
        name: str = "alice",
        permissions: Permissions | None = None,
        *,
        status: UserStatus = UserStatus.ACTIVE,
        password: bytes = HASH,
        options: Options = (),
        client: int | None = None,
    ) -> users.UserDetails:
        request = users.CreateUser(
            username=name,
            password=password,
            status=status,
            permissions=permissions,
            options=options,
        )
        return self.run(users.CREATE_USER, request, client=client)

    def update_user(
        self,
        user: Identifier,
        name: str | None = None,
        status: UserStatus | None = None,
        options: Options = (),
    ) -> None:
        request = users.UpdateUser(user=user, username=name, status=status, options=options)
        self.run(users.UPDATE_USER, request)

    def delete_user(self, user: Identifier) -> None:
        self.run(users.DELETE_USER, users.DeleteUser(user))

    def update_permissions(self, user: Identifier, permissions: Permissions | None) -> None:
        self.run(users.UPDATE_PERMISSIONS, users.UpdatePermissions(user, permissions))

    def change_password(self, user: Identifier, verified: bytes, new: bytes) -> None:
        self.run(users.CHANGE_PASSWORD, users.ChangePassword(user, verified, new))

    def create_token(
        self, name: str, *, expiry: int = 0, token_hash: str | None = None, user: int | None = None
    ) -> None:
        request = internal.CreateTokenHashed(
            self.user if user is None else user,
            name,
            expiry,
            f"{self.op:064x}" if token_hash is None else token_hash,
        )
        body = encode(internal.CREATE_TOKEN_HASHED, request)
        assert not self.ask(Operation.CREATE_PERSONAL_ACCESS_TOKEN, body)

    def delete_token(self, name: str) -> None:
        self.run(tokens.DELETE_TOKEN, tokens.DeleteToken(name))

    # What tests look at.

    def topic(self, stream: Identifier = "shop", topic: Identifier = "orders") -> Topic:
        return resolve.route(self.state, stream, topic)

    def group(self, group: Identifier = "billing") -> Group:
        return resolve.group(self.topic(), group)

    def snapshot(self) -> bytes:
        (piece,) = self.machine.checkpoint()
        return piece.data


def topic_options(**values: FieldValue) -> Options:
    """Give options in the kinds that the released SDK sends; text stays text."""
    return make_options(
        {
            key: value if isinstance(value, str) else make_field(value, TOPIC_OPTIONS[key].kind)
            for key, value in values.items()
        }
    )


def code_of(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> int:
    """Give the code by which a call is refused, 0 if it is not."""
    try:
        call(*args, **kwargs)
    except RefusedError as refusal:
        return int(refusal.code)
    return 0
