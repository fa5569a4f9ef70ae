"""Writes logins, and ops that change users or remove data, to the audit log (SE-6).

An op is told where its client is, or was, connected, and not by the other replicas. A node that
starts applies again what its journal holds; of that it tells only what it may not have told before
(`told_before`), as recovered: such a line may be there twice, and none is missing.

Flow: apply, reply.
"""

from collections.abc import Callable, Mapping
from typing import Any

from headrace.metadata.applied import NOTED, Applied
from headrace.ports.audit import NO_USER_ID, OK, Audit
from headrace.shard.effects import ShardEffect
from headrace.shard.front.connections import Connection, Connections
from headrace.shard.metadata_group import MetadataGroup
from headrace.vsr.replica import Replica
from headrace.wire.codec import Codec, decode
from headrace.wire.commands import groups, internal, streams, tokens, topics, users
from headrace.wire.identifiers import Identifier
from headrace.wire.numbers import Operation

HASH_STRENGTHENED = "strengthen_password_hash"


class Auditor:
    """Makes the lines."""

    def __init__(
        self, metadata: MetadataGroup, connections: Connections, out: list[ShardEffect]
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._out = out
        self._told = told_before(metadata.replica)
        self._applied_op = 0  # the last one that was looked at

    def login(
        self, connection: Connection, username: str, outcome: str = OK, *, client: int, op: int = 0
    ) -> None:
        """Record a login, with its op if it succeeded; without a name if a token failed.

        Nor one that nobody has: people type their password where the name belongs.
        """
        assert (op > 0) == (outcome == OK), "a login that succeeds has its op"
        assert op <= self._metadata.commit, "a login that succeeds is applied"
        assert client > 0, "a login is that of a client"
        user = self._metadata.state.users.find(username) if username else None
        self._out.append(
            Audit(
                event="login",
                outcome=outcome,
                user="" if user is None else user.name,
                user_id=NO_USER_ID if user is None else user.id,
                address=connection.address,
                client=_hexadecimal(client),
                op=op,
            )
        )

    def deletion(self, connection: Connection, request: topics.DeleteSegments) -> None:
        """Note that a user asked for segments to go: no op of the metadata log stands for that."""
        assert connection.session > 0, "who deletes is logged in"
        self._out.append(
            Audit(
                event="delete_segments",
                user=self._name_of(connection.user_id),
                user_id=connection.user_id,
                address=connection.address,
                client=_hexadecimal(connection.client),
                about=_describe_segments(request),
            )
        )

    def applied(self, applied: Applied) -> None:
        """Record an op, if this node must record it."""
        header = applied.header
        assert header.op <= self._metadata.commit, "only what is applied is recorded"
        assert header.op > self._applied_op, "ops are recorded once, in their order"
        assert header.operation in NOTED, "what is recorded is described"
        self._applied_op = header.op
        address = self._connections.address_of(header.client)
        is_own = header.client == 0
        is_recovered = header.op <= self._metadata.boot_head and not address
        if header.op <= self._told or (is_own and applied.refusal is not None):
            return
        is_here = self._metadata.is_primary if is_own else bool(address)
        if not is_here and not is_recovered:
            return
        operation = Operation(header.operation)
        is_rehash = is_own and operation == Operation.CHANGE_PASSWORD
        self._out.append(
            Audit(
                event=HASH_STRENGTHENED if is_rehash else operation.name.lower(),
                outcome=OK if applied.refusal is None else applied.refusal.name.lower(),
                user="" if is_own else self._name_of(header.user_id),
                user_id=NO_USER_ID if is_own else header.user_id,
                address=address,
                client=_hexadecimal(header.client),
                op=header.op,
                about=_describe(operation, applied.body),
                is_recovered=is_recovered,
            )
        )

    def _name_of(self, user_id: int) -> str:
        user = self._metadata.state.users.find(user_id)
        return "" if user is None else user.name


def told_before(replica: Replica) -> int:
    """Return the last op that this node surely recorded before it was started.

    A prepare carries what was committed when it was made. That was applied then, and told before
    the prepare was given to the disk: effects are carried out in their order.
    """
    head = replica.state.log.get(replica.op)
    return replica.op if head is None else head.header.commit


def _describe_segments(request: topics.DeleteSegments) -> str:
    """Name the segments that are to go."""
    place = _in_topic(request)
    return f"{request.segments_count} segments of {place} partition {request.partition_id}"


def _hexadecimal(client: int) -> str:
    return f"{client:032x}" if client else ""


def _describe(operation: Operation, body: bytes) -> str:
    codec, describe = _DESCRIPTIONS[operation]
    return describe(decode(codec, body))


def _named(kind: str, identifier: Identifier) -> str:
    return f"{kind} {identifier!r}"  # quoted: a name may hold spaces, and be a number


def _in_topic(request: Any) -> str:  # noqa: ANN401 - of several types
    return f"{_named('stream', request.stream)} {_named('topic', request.topic)}"


def _user(request: Any) -> str:  # noqa: ANN401 - of several types
    return _named("user", request.user)


_DESCRIPTIONS: Mapping[Operation, tuple[Codec[Any], Callable[[Any], str]]] = {
    Operation.CREATE_USER: (users.CREATE_USER.request, lambda r: _named("user", r.username)),
    Operation.UPDATE_USER: (users.UPDATE_USER.request, _user),
    Operation.DELETE_USER: (users.DELETE_USER.request, _user),
    Operation.CHANGE_PASSWORD: (users.CHANGE_PASSWORD.request, _user),
    Operation.UPDATE_PERMISSIONS: (users.UPDATE_PERMISSIONS.request, _user),
    Operation.CREATE_PERSONAL_ACCESS_TOKEN: (
        internal.CREATE_TOKEN_HASHED,
        lambda r: f"{_named('token', r.name)} of {_named('user', r.user_id)}",
    ),
    Operation.DELETE_PERSONAL_ACCESS_TOKEN: (
        tokens.DELETE_TOKEN.request,
        lambda r: _named("token", r.name),
    ),
    Operation.DELETE_STREAM: (streams.DELETE_STREAM.request, lambda r: _named("stream", r.stream)),
    Operation.PURGE_STREAM: (streams.PURGE_STREAM.request, lambda r: _named("stream", r.stream)),
    Operation.DELETE_TOPIC: (topics.DELETE_TOPIC.request, _in_topic),
    Operation.PURGE_TOPIC: (topics.PURGE_TOPIC.request, _in_topic),
    Operation.DELETE_PARTITIONS: (
        topics.DELETE_PARTITIONS.request,
        lambda r: f"{r.partitions_count} partitions of {_in_topic(r)}",
    ),
    Operation.DELETE_CONSUMER_GROUP: (
        groups.DELETE_GROUP.request,
        lambda r: f"{_in_topic(r)} {_named('group', r.group)}",
    ),
    Operation.ACCEPT_TIME: (internal.ACCEPT_TIME, lambda r: f"from {r.before} to {r.clock}"),
}
assert sorted(_DESCRIPTIONS) == sorted(NOTED), "every op that is recorded is described"
