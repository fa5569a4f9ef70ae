"""What the recorder answers from: values are canned where nothing depends on them, ids count up."""

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import xxhash

from headrace.wire.commands import (
    clients,
    groups,
    messages,
    session,
    streams,
    system,
    tokens,
    topics,
    users,
)
from headrace.wire.commands.table import AnyCommand
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.fields import FieldKind, make_field
from headrace.wire.identifiers import (
    Consumer,
    First,
    FromOffset,
    FromTimestamp,
    Identifier,
    Last,
    ToPartition,
)
from headrace.wire.numbers import (
    Compression,
    ConsumerKind,
    NodeStatus,
    Operation,
    OptionsScope,
    Role,
    Transport,
    UserStatus,
)
from headrace.wire.options import Options, make_options
from headrace.wire.permissions import GlobalPermissions, Permissions
from headrace.wire.versions import PROTOCOL, PROTOCOL_PACKED

START = 1_763_164_800_000_000  # microseconds; the model's clock moves one second with each op
FOREVER = (1 << 64) - 1
TOKEN = "hr-token-0123456789abcdef"  # noqa: S105  # the model's own
BATCH_HEADER_BYTES = 256
FRAME_HEADER_BYTES = 48

TOPIC_DEFAULTS = make_options(
    {
        "compression_algorithm": "none",
        "max_topic_size": make_field(FOREVER, FieldKind.UINT64),
        "message_expiry": make_field(FOREVER, FieldKind.UINT64),
        "messages_required_to_save": make_field(1024, FieldKind.UINT32),
        "preallocate_segments": False,
        "segment_size": make_field(1 << 30, FieldKind.UINT64),
        "size_of_messages_required_to_save": make_field(1 << 20, FieldKind.UINT64),
    }
)
STATS = system.Stats(
    process_id=4242,
    cpu_usage=12.5,
    total_cpu_usage=37.25,
    memory_usage=64 << 20,
    total_memory=8 << 30,
    available_memory=4 << 30,
    run_time=90_000_000,
    start_time=START,
    read_bytes=1001,
    written_bytes=2002,
    messages_size_bytes=3003,
    streams_count=1,
    topics_count=2,
    partitions_count=3,
    segments_count=4,
    messages_count=5,
    clients_count=6,
    consumer_groups_count=7,
    hostname="node-1",
    os_name="Linux",
    os_version="12",
    kernel_version="6.1",
    server_version="0.11.0",
    server_semver=11_000,
    cache_metrics=(system.CacheMetrics(0, 1, 2, hits=30, misses=10, hit_ratio=0.75),),
    threads_count=8,
    free_disk_space=5 << 30,
    total_disk_space=9 << 30,
)
QUIET_STATS = msgspec.structs.replace(STATS, server_semver=0, cache_metrics=(), hostname="")

TopicKey: TypeAlias = tuple[int, int]


def checksum_batch(batch: bytearray) -> None:
    """Set the checksum of a batch from its header and the checksums of its frames."""
    digest = xxhash.xxh3_64()
    digest.update(bytes(batch[:40]))
    digest.update(bytes(batch[48:52]))
    for frame in split_frames(batch):
        digest.update(frame[:8])
    struct.pack_into("<Q", batch, 40, digest.intdigest())


def split_frames(batch: bytes | bytearray) -> Iterator[bytes]:
    """Give the frames of a batch."""
    position = BATCH_HEADER_BYTES
    while position < len(batch):
        headers_bytes, payload_bytes = struct.unpack_from("<II", batch, position + 32)
        end = position + FRAME_HEADER_BYTES + payload_bytes + headers_bytes
        yield bytes(batch[position:end])
        position = end


def join_frames(header: bytes, frames: list[bytes]) -> bytes:
    """Give the batch that has those frames and otherwise the header's values."""
    batch = bytearray(header[:BATCH_HEADER_BYTES] + b"".join(frames))
    struct.pack_into("<Q", batch, 32, len(batch))
    struct.pack_into("<I", batch, 48, len(frames))
    checksum_batch(batch)
    return bytes(batch)


def make_batch(*payloads: bytes) -> memoryview:
    """Give a batch as a producer sends it, for the calls that send raw bodies."""
    frames = []
    for index, payload in enumerate(payloads):
        rest = struct.pack("<QQIIIIQ", index + 1, 0, index, 0, 0, len(payload), 0) + payload
        frames.append(struct.pack("<Q", xxhash.xxh3_64_intdigest(rest)) + rest)
    header = bytearray(BATCH_HEADER_BYTES)
    struct.pack_into("<Q", header, 24, START)
    return memoryview(join_frames(bytes(header), frames))


class Model:
    """Just enough of a server to give every command a plausible answer."""

    def __init__(self) -> None:
        self.op = 0
        self.port = 0
        self.nodes_count = 1
        self.streams: dict[int, streams.Stream] = {}
        self.topics: dict[TopicKey, topics.Topic] = {}
        self.batches: dict[tuple[int, int, int], list[bytes]] = {}
        self.groups: dict[TopicKey, dict[int, groups.Group]] = {}
        self.members: dict[tuple[int, int, int], list[int]] = {}
        self.offsets: dict[tuple[Consumer, int, int, int], int] = {}
        self.tokens: dict[str, str] = {"standing": TOKEN}
        self.passwords = {"iggy": b"iggy"}
        root = users.User(id=0, created_at=START, status=UserStatus.ACTIVE, username="iggy")
        everything = GlobalPermissions(**dict.fromkeys(GlobalPermissions.__struct_fields__, True))
        self.users = {0: users.UserDetails(root, Permissions(everywhere=everything))}
        self._answers: dict[int, Callable[[Any, int], object]] = {
            1: lambda _request, _client: None,
            10: lambda _request, _client: STATS,
            11: lambda _request, _client: memoryview(b"PK\5\6" + bytes(18)),  # an empty archive
            12: self._cluster,
            13: self._options,
            20: lambda _request, client: self._client(client),
            21: self._client_by_id,
            22: lambda _request, client: (self._client(client).client,),
            31: lambda request, _client: self.users.get(self._user_id(request.user)),
            32: lambda _request, _client: tuple(user.user for user in self.users.values()),
            33: self._create_user,
            34: self._delete_user,
            35: self._update_user,
            36: self._update_permissions,
            37: self._change_password,
            39: lambda _request, _client: None,
            41: lambda _request, _client: tuple(tokens.Token(name, 0) for name in self.tokens),
            42: self._create_token,
            43: self._delete_token,
            40: self._register,
            100: self._poll,
            101: self._send,
            102: lambda _request, _client: None,
            120: self._get_offset,
            121: self._store_offset,
            122: self._delete_offset,
            200: lambda request, _client: self._stream_details(request.stream),
            201: lambda _request, _client: tuple(self._stream(key) for key in self.streams),
            202: self._create_stream,
            203: self._delete_stream,
            204: self._update_stream,
            205: self._check_stream,
            300: lambda request, _client: self._topic_details(request.stream, request.topic),
            301: lambda request, _client: self._topics_of(self._stream_id(request.stream)),
            302: self._create_topic,
            303: self._delete_topic,
            304: self._update_topic,
            305: self._check_topic,
            402: lambda request, _client: self._grow(request, request.partitions_count),
            403: lambda request, _client: self._grow(request, -request.partitions_count),
            503: self._check_topic,
            600: self._get_group,
            601: self._get_groups,
            602: self._create_group,
            603: self._delete_group,
            604: self._join_group,
            605: self._leave_group,
            606: self._sync_group,
        }

    def answer(self, command: AnyCommand, request: object, client: int) -> bytes:
        """Give the payload of the reply."""
        if command.operation != Operation.NON_REPLICATED:
            self.op += 1
        return command.encode_reply(self._answers[command.code](request, client))

    @property
    def now(self) -> int:
        return START + self.op * 1_000_000

    # System and users.

    def _cluster(self, _request: None, _client: int) -> system.ClusterMetadata:
        nodes = tuple(
            system.Node(
                name=f"node-{index + 1}",
                ip="127.0.0.1",
                tcp_port=index or self.port,
                quic_port=0,
                http_port=3000,
                websocket_port=0,
                role=Role.FOLLOWER if index else Role.LEADER,
                status=NodeStatus.HEALTHY,
            )
            for index in range(self.nodes_count)
        )
        return system.ClusterMetadata("single" if self.nodes_count == 1 else "several", nodes)

    def _options(
        self, request: system.DescribeOptions, _client: int
    ) -> tuple[system.OptionSpec, ...]:
        if request.scope != OptionsScope.TOPIC:
            return ()
        return tuple(
            system.OptionSpec(
                option.key, option.value.kind, option.value.data, f"sets {option.key}"
            )
            for option in TOPIC_DEFAULTS
        )

    def _client(self, client: int) -> clients.ClientDetails:
        joined = [key for key, members in self.members.items() if client in members]
        record = clients.Client(
            client_id=1,
            user_id=0,
            transport=Transport.TCP,
            address="127.0.0.1:50000",
            groups_count=len(joined),
        )
        return clients.ClientDetails(record, tuple(clients.Membership(*key) for key in joined))

    def _client_by_id(
        self, request: clients.GetClient, client: int
    ) -> clients.ClientDetails | None:
        return self._client(client) if request.client_id == 1 else None

    def _register(self, request: session.Register, client: int) -> session.Registered:
        login = request.password
        if login is not None and self.passwords.get(login.username) != login.password:
            raise EvictedError(EvictionReason.INVALID_CREDENTIALS, client=client)
        if login is None:
            assert request.token is not None
            if request.token.token.decode() not in self.tokens.values():
                raise EvictedError(EvictionReason.INVALID_TOKEN, client=client)
        return session.Registered(0, self.op, PROTOCOL_PACKED, str(PROTOCOL))

    def _user_id(self, identifier: Identifier) -> int:
        return next(
            (key for key, user in self.users.items() if identifier in (key, user.user.username)), -1
        )

    def _need_user(self, identifier: Identifier) -> int:
        return need(self._user_id(identifier), Code.RESOURCE_NOT_FOUND)

    def _create_user(self, request: users.CreateUser, _client: int) -> users.UserDetails:
        if self._user_id(request.username) >= 0:
            raise RefusedError(Code.USER_ALREADY_EXISTS)
        user = users.User(
            id=max(self.users) + 1,
            created_at=self.now,
            status=request.status,
            username=request.username,
            options=request.options,
        )
        self.passwords[request.username] = request.password
        return self.users.setdefault(user.id, users.UserDetails(user, request.permissions))

    def _update_user(self, request: users.UpdateUser, _client: int) -> None:
        key = self._need_user(request.user)
        user = self.users[key].user
        renewed = msgspec.structs.replace(
            user,
            username=request.username or user.username,
            status=request.status or user.status,
        )
        self.users[key] = msgspec.structs.replace(self.users[key], user=renewed)

    def _delete_user(self, request: users.DeleteUser, _client: int) -> None:
        del self.users[self._need_user(request.user)]

    def _update_permissions(self, request: users.UpdatePermissions, _client: int) -> None:
        key = self._need_user(request.user)
        self.users[key] = users.UserDetails(self.users[key].user, request.permissions)

    def _change_password(self, request: users.ChangePassword, _client: int) -> None:
        name = self.users[self._need_user(request.user)].user.username
        if self.passwords.get(name) != request.current_password:
            raise RefusedError(Code.INVALID_CREDENTIALS)
        self.passwords[name] = request.new_password

    def _create_token(self, request: tokens.CreateToken, _client: int) -> tokens.CreatedToken:
        if request.name in self.tokens:
            raise RefusedError(Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS)
        return tokens.CreatedToken(
            self.tokens.setdefault(request.name, f"secret-of-{request.name}")
        )

    def _delete_token(self, request: tokens.DeleteToken, _client: int) -> None:
        if self.tokens.pop(request.name, None) is None:
            raise RefusedError(Code.RESOURCE_NOT_FOUND)

    # Streams and topics.

    def _stream_id(self, identifier: Identifier) -> int:
        return next(
            (key for key, stream in self.streams.items() if identifier in (key, stream.name)), -1
        )

    def _need_stream(self, identifier: Identifier) -> int:
        return need(self._stream_id(identifier), Code.STREAM_ID_NOT_FOUND)

    def _topic_id(self, stream: int, identifier: Identifier) -> int:
        return next(
            (
                key[1]
                for key, topic in self.topics.items()
                if key[0] == stream and identifier in (key[1], topic.name)
            ),
            -1,
        )

    def _need_topic(self, request: Any) -> TopicKey:  # noqa: ANN401  # whatever names a stream and a topic
        stream = self._need_stream(request.stream)
        return stream, need(self._topic_id(stream, request.topic), Code.TOPIC_ID_NOT_FOUND)

    def _topics_of(self, stream: int) -> tuple[topics.Topic, ...]:
        return tuple(self._topic(key) for key in self.topics if key[0] == stream)

    def _stream(self, key: int) -> streams.Stream:
        found = self._topics_of(key)
        return msgspec.structs.replace(
            self.streams[key],
            topics_count=len(found),
            size_bytes=sum(topic.size_bytes for topic in found),
            messages_count=sum(topic.messages_count for topic in found),
        )

    def _stream_details(self, identifier: Identifier) -> streams.StreamDetails | None:
        key = self._stream_id(identifier)
        return None if key < 0 else streams.StreamDetails(self._stream(key), self._topics_of(key))

    def _create_stream(self, request: streams.CreateStream, _client: int) -> streams.Stream:
        if self._stream_id(request.name) >= 0:
            raise RefusedError(Code.STREAM_NAME_ALREADY_EXISTS)
        key = max(self.streams, default=-1) + 1
        self.streams[key] = streams.Stream(
            id=key,
            created_at=self.now,
            topics_count=0,
            size_bytes=0,
            messages_count=0,
            name=request.name,
            options=request.options,
        )
        return self.streams[key]

    def _update_stream(self, request: streams.UpdateStream, _client: int) -> None:
        key = self._need_stream(request.stream)
        self.streams[key] = msgspec.structs.replace(self.streams[key], name=request.name)

    def _delete_stream(self, request: streams.DeleteStream, _client: int) -> None:
        key = self._need_stream(request.stream)
        del self.streams[key]
        self.topics = {topic: value for topic, value in self.topics.items() if topic[0] != key}

    def _check_stream(self, request: streams.PurgeStream, _client: int) -> None:
        self._need_stream(request.stream)

    def _check_topic(
        self, request: topics.PurgeTopic | topics.DeleteSegments, _client: int
    ) -> None:
        self._need_topic(request)

    def _partition(self, key: TopicKey, partition_id: int) -> topics.Partition:
        stored = self.batches[(*key, partition_id)]
        count = sum(len(list(split_frames(batch))) for batch in stored)
        return topics.Partition(
            id=partition_id,
            created_at=self.topics[key].created_at,
            segments_count=1,
            current_offset=max(count - 1, 0),
            size_bytes=sum(map(len, stored)),
            messages_count=count,
        )

    def _partitions(self, key: TopicKey) -> tuple[topics.Partition, ...]:
        count = self.topics[key].partitions_count
        return tuple(self._partition(key, partition_id) for partition_id in range(count))

    def _topic(self, key: TopicKey) -> topics.Topic:
        partitions = self._partitions(key)
        return msgspec.structs.replace(
            self.topics[key],
            size_bytes=sum(partition.size_bytes for partition in partitions),
            messages_count=sum(partition.messages_count for partition in partitions),
        )

    def _topic_details(self, stream: Identifier, topic: Identifier) -> topics.TopicDetails | None:
        stream_id = self._stream_id(stream)
        key = (stream_id, self._topic_id(stream_id, topic))
        return topics.TopicDetails(self._topic(key), self._partitions(key)) if key[1] >= 0 else None

    def _create_topic(self, request: topics.CreateTopic, _client: int) -> topics.TopicDetails:
        stream = self._need_stream(request.stream)
        if self._topic_id(stream, request.name) >= 0:
            raise RefusedError(Code.TOPIC_NAME_ALREADY_EXISTS)
        key = (stream, max((topic for s, topic in self.topics if s == stream), default=-1) + 1)
        sent = {option.key for option in request.options}
        self.topics[key] = with_options(
            topics.Topic(
                id=key[1],
                created_at=self.now,
                partitions_count=0,
                message_expiry=FOREVER,
                compression=Compression.NONE,
                max_topic_size=FOREVER,
                size_bytes=0,
                messages_count=0,
                name=request.name,
                explicit=request.options,
                derived=tuple(option for option in TOPIC_DEFAULTS if option.key not in sent),
            ),
            request.options,
        )
        self.groups[key] = {}
        self._set_partitions(key, request.partitions_count)
        return topics.TopicDetails(self._topic(key), self._partitions(key))

    def _update_topic(self, request: topics.UpdateTopic, _client: int) -> None:
        key = self._need_topic(request)
        renamed = msgspec.structs.replace(self.topics[key], name=request.name)
        self.topics[key] = with_options(renamed, request.options)

    def _delete_topic(self, request: topics.DeleteTopic, _client: int) -> None:
        del self.topics[self._need_topic(request)]

    def _grow(self, request: topics.CreatePartitions | topics.DeletePartitions, by: int) -> None:
        key = self._need_topic(request)
        self._set_partitions(key, self.topics[key].partitions_count + by)

    def _set_partitions(self, key: TopicKey, count: int) -> None:
        self.topics[key] = msgspec.structs.replace(self.topics[key], partitions_count=count)
        for partition_id in range(count):
            self.batches.setdefault((*key, partition_id), [])

    # Messages and offsets.

    def _need_partition(self, key: TopicKey, partition_id: int) -> tuple[int, int, int]:
        if partition_id >= self.topics[key].partitions_count:
            raise RefusedError(Code.PARTITION_NOT_FOUND)
        return (*key, partition_id)

    def _send(
        self, request: messages.SendMessages, _client: int
    ) -> tuple[messages.Confirmation, ...]:
        key = self._need_topic(request)
        wanted = request.partitioning
        target = self._need_partition(
            key, wanted.partition_id if isinstance(wanted, ToPartition) else 0
        )
        base_offset = self._partition(key, target[2]).messages_count
        stamped = bytearray(request.batch)
        struct.pack_into("<QQQ", stamped, 0, target[2], base_offset, self.now)
        checksum_batch(stamped)
        self.batches[target].append(bytes(stamped))
        return (messages.Confirmation(*target, base_offset),)

    def _poll(self, request: messages.PollMessages, client: int) -> messages.PolledMessages:
        key = self._need_topic(request)
        if request.consumer.kind == ConsumerKind.GROUP:
            group = self._group_id(key, request.consumer.id)
            if client not in self.members.get((*key, group), []):
                return messages.PolledMessages(messages.RESYNC_PARTITION, 0, 0, memoryview(b""))
        target = self._need_partition(key, request.partition_id or 0)
        last = self._partition(key, target[2]).messages_count - 1
        served = list(self._slices(request, target, last))
        count = sum(len(list(split_frames(batch))) for batch in served)
        if served and request.auto_commit:
            (base,) = struct.unpack_from("<Q", served[-1], 8)
            (delta,) = struct.unpack_from("<I", list(split_frames(served[-1]))[-1], 24)
            self.offsets[(request.consumer, *target)] = base + delta
        return messages.PolledMessages(target[2], max(last, 0), count, memoryview(b"".join(served)))

    def _slices(
        self, request: messages.PollMessages, target: tuple[int, int, int], last: int
    ) -> Iterator[bytes]:
        start = self._start(request, target, last)
        left = request.count
        for batch in self.batches[target]:
            base, appended = struct.unpack_from("<QQ", batch, 8)
            if (
                isinstance(request.strategy, FromTimestamp)
                and appended < request.strategy.timestamp
            ):
                continue
            frames = list(split_frames(batch))[max(start - base, 0) :][:left]
            left -= len(frames)
            if frames:
                yield join_frames(batch, frames)

    def _start(
        self, request: messages.PollMessages, target: tuple[int, int, int], last: int
    ) -> int:
        match request.strategy:
            case FromOffset(offset):
                return offset
            case Last():
                return max(last - request.count + 1, 0)
            case First() | FromTimestamp():
                return 0
            case _:
                return self.offsets.get((request.consumer, *target), -1) + 1

    def _get_offset(
        self, request: messages.GetOffset, _client: int
    ) -> messages.StoredOffset | None:
        key = self._need_topic(request)
        target = self._need_partition(key, request.partition_id or 0)
        stored = self.offsets.get((request.consumer, *target))
        if stored is None:
            return None
        return messages.StoredOffset(
            target[2], self._partition(key, target[2]).current_offset, stored
        )

    def _store_offset(self, request: messages.StoreOffset, _client: int) -> None:
        key = self._need_topic(request)
        target = self._need_partition(key, request.partition_id or 0)
        if request.offset >= self._partition(key, target[2]).messages_count:
            raise RefusedError(Code.INVALID_OFFSET)
        self.offsets[(request.consumer, *target)] = request.offset

    def _delete_offset(self, request: messages.DeleteOffset, _client: int) -> None:
        target = self._need_partition(self._need_topic(request), request.partition_id or 0)
        if self.offsets.pop((request.consumer, *target), None) is None:
            raise RefusedError(Code.CONSUMER_OFFSET_NOT_FOUND)

    # Groups.

    def _group_id(self, key: TopicKey, identifier: Identifier) -> int:
        return next(
            (
                group
                for group, value in self.groups[key].items()
                if identifier in (group, value.name)
            ),
            -1,
        )

    def _need_group(self, request: Any) -> tuple[int, int, int]:  # noqa: ANN401  # whatever names a group
        key = self._need_topic(request)
        return *key, need(self._group_id(key, request.group), Code.CONSUMER_GROUP_ID_NOT_FOUND)

    def _group_details(self, found: tuple[int, int, int]) -> groups.GroupDetails:
        joined = self.members.get(found, [])
        count = self.topics[found[:2]].partitions_count
        members = tuple(
            groups.Member(index, tuple(range(index, count, len(joined))))
            for index in range(len(joined))
        )
        group = msgspec.structs.replace(
            self.groups[found[:2]][found[2]], members_count=len(joined), partitions_count=count
        )
        return groups.GroupDetails(group, members)

    def _get_group(self, request: groups.GetGroup, _client: int) -> groups.GroupDetails | None:
        key = self._need_topic(request)
        group = self._group_id(key, request.group)
        return None if group < 0 else self._group_details((*key, group))

    def _get_groups(self, request: groups.GetGroups, _client: int) -> tuple[groups.Group, ...]:
        key = self._need_topic(request)
        return tuple(self._group_details((*key, group)).group for group in self.groups[key])

    def _create_group(self, request: groups.CreateGroup, _client: int) -> groups.GroupDetails:
        key = self._need_topic(request)
        if self._group_id(key, request.name) >= 0:
            raise RefusedError(Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS)
        group = groups.Group(
            id=max(self.groups[key], default=-1) + 1,
            partitions_count=self.topics[key].partitions_count,
            members_count=0,
            name=request.name,
        )
        self.groups[key][group.id] = group
        return groups.GroupDetails(group, ())

    def _delete_group(self, request: groups.DeleteGroup, _client: int) -> None:
        found = self._need_group(request)
        del self.groups[found[:2]][found[2]]
        self.members.pop(found, None)

    def _join_group(self, request: groups.JoinGroup, client: int) -> None:
        joined = self.members.setdefault(self._need_group(request), [])
        if client not in joined:
            joined.append(client)

    def _leave_group(self, request: groups.LeaveGroup, client: int) -> None:
        joined = self.members.get(self._need_group(request), [])
        if client not in joined:
            raise RefusedError(Code.CONSUMER_GROUP_MEMBER_NOT_FOUND)
        joined.remove(client)

    def _sync_group(self, request: groups.SyncGroup, client: int) -> groups.Assignment | None:
        found = self._need_group(request)
        joined = self.members.get(found, [])
        if client not in joined:
            return None
        member = self._group_details(found).members[joined.index(client)]
        return groups.Assignment(len(joined), member.partitions)


def need(key: int, code: Code) -> int:
    """Give the id that was found, or refuse."""
    if key < 0:
        raise RefusedError(code)
    return key


def with_options(topic: topics.Topic, options: Options) -> topics.Topic:
    """Give the topic whose own fields follow the options, where their kind is the usual one."""
    values = {option.key: option.value.value for option in options}
    expiry = values.get("message_expiry")
    size = values.get("max_topic_size")
    return msgspec.structs.replace(
        topic,
        message_expiry=expiry if isinstance(expiry, int) else topic.message_expiry,
        max_topic_size=size if isinstance(size, int) else topic.max_topic_size,
        compression=Compression.GZIP
        if values.get("compression_algorithm") == "gzip"
        else topic.compression,
    )
