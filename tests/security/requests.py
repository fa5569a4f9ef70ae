"""One request of every command that succeeds for whoever may make it, on what the house has."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.wire.commands import (
    clients,
    clock,
    counters,
    groups,
    holders,
    messages,
    reconcile,
    segments,
    session,
    shards,
    streams,
    system,
    tokens,
    topics,
    users,
)
from headrace.wire.identifiers import Consumer, FromOffset, ToPartition
from headrace.wire.numbers import (
    ConsumerKind,
    OptionsScope,
    SnapshotCompression,
    SnapshotType,
    UserStatus,
)
from tests.e2e.raw import RawClient, make_register
from tests.known_secrets import make_password
from tests.security.house import GROUP, STREAM, TOPIC, VICTIM, House
from tests.security.levels import NO_PERMISSION
from tests.shard.whole import make_batch

Make: TypeAlias = Callable[[House], Any]
Before: TypeAlias = Callable[[House, RawClient], object]

READER = Consumer(ConsumerKind.CONSUMER, 1)
SNAPSHOT = system.GetSnapshot(SnapshotCompression.STORED, (SnapshotType.TEST,))
OWN_TOKEN = "of-my-own"
BATCH = memoryview(make_batch([b"message"]))


def _nothing(_: House) -> None:
    return None


def _login(_: House) -> session.Register:
    username = NO_PERMISSION.username
    return make_register(username=username, password=make_password(username))


def _new_user(house: House) -> users.CreateUser:
    name = house.new_name("newcomer")
    return users.CreateUser(username=name, password=make_password(name), status=UserStatus.ACTIVE)


REQUESTS: Mapping[int, Make] = {
    system.PING.code: _nothing,
    system.GET_STATS.code: _nothing,
    system.GET_SNAPSHOT.code: lambda _: SNAPSHOT,
    system.GET_CLUSTER_METADATA.code: _nothing,
    system.DESCRIBE_OPTIONS.code: lambda _: system.DescribeOptions(OptionsScope.TOPIC),
    counters.GET_COUNTERS.code: _nothing,
    shards.GET_SHARDS.code: _nothing,
    reconcile.GET_RECONCILE.code: _nothing,
    clock.ACCEPT_TIME.code: _nothing,
    clients.GET_ME.code: _nothing,
    clients.GET_CLIENT.code: lambda _: clients.GetClient(1),
    clients.GET_CLIENTS.code: _nothing,
    users.GET_USER.code: lambda _: users.GetUser(VICTIM),
    users.GET_USERS.code: _nothing,
    users.CREATE_USER.code: _new_user,
    users.DELETE_USER.code: lambda _: users.DeleteUser(VICTIM),
    users.UPDATE_USER.code: lambda _: users.UpdateUser(user=VICTIM, status=UserStatus.ACTIVE),
    users.UPDATE_PERMISSIONS.code: lambda _: users.UpdatePermissions(VICTIM, None),
    users.CHANGE_PASSWORD.code: lambda _: users.ChangePassword(
        VICTIM, make_password(VICTIM), make_password(VICTIM)
    ),
    session.LOGIN_PASSWORD.code: _login,
    session.LOGIN_TOKEN.code: lambda house: make_register(house.token),
    session.LOGOUT.code: _nothing,
    tokens.GET_TOKENS.code: _nothing,
    tokens.CREATE_TOKEN.code: lambda house: tokens.CreateToken(house.new_name("token"), 0),
    tokens.DELETE_TOKEN.code: lambda _: tokens.DeleteToken(OWN_TOKEN),
    messages.POLL_MESSAGES.code: lambda _: messages.PollMessages(
        consumer=READER,
        stream=STREAM,
        topic=TOPIC,
        partition_id=0,
        strategy=FromOffset(0),
        count=1,
        auto_commit=False,
    ),
    segments.PLAN_SEGMENTS.code: lambda _: segments.PlanSegments(
        stream=STREAM, topic=TOPIC, partition_id=0, from_offset=0
    ),
    messages.SEND_MESSAGES.code: lambda _: messages.SendMessages(
        STREAM, TOPIC, ToPartition(0), 1, BATCH
    ),
    messages.GET_OFFSET.code: lambda _: messages.GetOffset(READER, STREAM, TOPIC, 0),
    messages.STORE_OFFSET.code: lambda _: messages.StoreOffset(
        consumer=READER, stream=STREAM, topic=TOPIC, partition_id=0, offset=0
    ),
    messages.DELETE_OFFSET.code: lambda _: messages.DeleteOffset(
        consumer=READER, stream=STREAM, topic=TOPIC, partition_id=0
    ),
    streams.GET_STREAM.code: lambda _: streams.GetStream(STREAM),
    streams.GET_STREAMS.code: _nothing,
    streams.CREATE_STREAM.code: lambda house: streams.CreateStream(house.new_name("stream")),
    streams.DELETE_STREAM.code: lambda _: streams.DeleteStream(STREAM),
    streams.UPDATE_STREAM.code: lambda _: streams.UpdateStream(STREAM, STREAM),
    streams.PURGE_STREAM.code: lambda _: streams.PurgeStream(STREAM),
    topics.GET_TOPIC.code: lambda _: topics.GetTopic(STREAM, TOPIC),
    holders.GET_HOLDERS.code: lambda _: holders.GetHolders(STREAM, TOPIC),
    topics.GET_TOPICS.code: lambda _: topics.GetTopics(STREAM),
    topics.CREATE_TOPIC.code: lambda house: topics.CreateTopic(STREAM, 1, house.new_name("topic")),
    topics.DELETE_TOPIC.code: lambda _: topics.DeleteTopic(STREAM, TOPIC),
    topics.UPDATE_TOPIC.code: lambda _: topics.UpdateTopic(STREAM, TOPIC, TOPIC),
    topics.PURGE_TOPIC.code: lambda _: topics.PurgeTopic(STREAM, TOPIC),
    topics.CREATE_PARTITIONS.code: lambda _: topics.CreatePartitions(STREAM, TOPIC, 1),
    topics.DELETE_PARTITIONS.code: lambda _: topics.DeletePartitions(STREAM, TOPIC, 1),
    topics.DELETE_SEGMENTS.code: lambda _: topics.DeleteSegments(STREAM, TOPIC, 0, 1),
    topics.FLUSH_UNSAVED_BUFFER.code: lambda _: topics.FlushUnsavedBuffer(
        STREAM, TOPIC, 0, fsync=False
    ),
    groups.GET_GROUP.code: lambda _: groups.GetGroup(STREAM, TOPIC, GROUP),
    groups.GET_GROUPS.code: lambda _: groups.GetGroups(STREAM, TOPIC),
    groups.CREATE_GROUP.code: lambda house: groups.CreateGroup(
        STREAM, TOPIC, house.new_name("group")
    ),
    groups.DELETE_GROUP.code: lambda _: groups.DeleteGroup(STREAM, TOPIC, GROUP),
    groups.JOIN_GROUP.code: lambda _: groups.JoinGroup(STREAM, TOPIC, GROUP),
    groups.LEAVE_GROUP.code: lambda _: groups.LeaveGroup(STREAM, TOPIC, GROUP),
    groups.SYNC_GROUP.code: lambda _: groups.SyncGroup(STREAM, TOPIC, GROUP),
}

# What whoever may make a request does before it, so that it succeeds.
BEFORE: Mapping[int, Before] = {
    tokens.DELETE_TOKEN.code: lambda _, client: client.call(
        tokens.CREATE_TOKEN, tokens.CreateToken(OWN_TOKEN, 0)
    ),
    messages.DELETE_OFFSET.code: lambda house, client: client.call(
        messages.STORE_OFFSET, REQUESTS[messages.STORE_OFFSET.code](house)
    ),
    topics.DELETE_PARTITIONS.code: lambda _, client: client.call(
        topics.CREATE_PARTITIONS, topics.CreatePartitions(STREAM, TOPIC, 1)
    ),
    groups.LEAVE_GROUP.code: lambda _, client: client.call(
        groups.JOIN_GROUP, groups.JoinGroup(STREAM, TOPIC, GROUP)
    ),
}
