"""One good request and reply of every command, each with every field in use."""

from typing import Any

from headrace.wire.codec import Codec
from headrace.wire.commands import (
    clients,
    clock,
    counters,
    groups,
    holders,
    internal,
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
from headrace.wire.identifiers import ByKey, Consumer, FromOffset
from headrace.wire.numbers import (
    Compression,
    ConsumerKind,
    NodeStatus,
    OptionsScope,
    Role,
    SnapshotCompression,
    SnapshotType,
    Transport,
    UserStatus,
)
from headrace.wire.options import make_options
from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)

OPTIONS = make_options({"durability": "persisted", "segment_size": 1 << 20})
PERMISSIONS = Permissions(
    everywhere=GlobalPermissions(read_servers=True),
    streams=(
        StreamPermissions(
            stream_id=1, read_stream=True, topics=(TopicPermissions(topic_id=2, read_topic=True),)
        ),
    ),
)
USER = users.User(id=1, created_at=2, status=UserStatus.ACTIVE, username="ada", options=OPTIONS)
DETAILS = users.UserDetails(USER, PERMISSIONS)
TOPIC = topics.Topic(
    id=1,
    created_at=2,
    partitions_count=1,
    message_expiry=3,
    compression=Compression.GZIP,
    max_topic_size=4,
    size_bytes=5,
    messages_count=6,
    name="orders",
    explicit=OPTIONS,
    derived=OPTIONS,
)
PARTITION = topics.Partition(
    id=0, created_at=1, segments_count=1, current_offset=2, size_bytes=3, messages_count=4
)
TOPIC_DETAILS = topics.TopicDetails(TOPIC, (PARTITION,))
STREAM = streams.Stream(
    id=1, created_at=2, topics_count=1, size_bytes=3, messages_count=4, name="shop", options=OPTIONS
)
CLIENT = clients.Client(
    client_id=1, user_id=2, transport=Transport.TCP, address="127.0.0.1:1", groups_count=1
)
CLIENT_DETAILS = clients.ClientDetails(CLIENT, (clients.Membership(1, 2, 3),))
GROUP = groups.Group(id=1, partitions_count=2, members_count=1, name="billing")
GROUP_DETAILS = groups.GroupDetails(GROUP, (groups.Member(1, (0, 1)),))
CONSUMER = Consumer(ConsumerKind.GROUP, "billing")
REGISTER = session.Register(
    session.ClientVersion(11264, "sdk", "1"), session.PasswordLogin("iggy", b"iggy")
)
REGISTERED = session.Registered(0, 1, 11264, "0.1.0")
STATS = system.Stats(
    process_id=1,
    cpu_usage=0.5,
    total_cpu_usage=1.5,
    memory_usage=2,
    total_memory=3,
    available_memory=4,
    run_time=5,
    start_time=6,
    read_bytes=7,
    written_bytes=8,
    messages_size_bytes=9,
    streams_count=10,
    topics_count=11,
    partitions_count=12,
    segments_count=13,
    messages_count=14,
    clients_count=15,
    consumer_groups_count=16,
    hostname="host",
    os_name="linux",
    os_version="12",
    kernel_version="6",
    server_version="0.1.0",
    server_semver=1000,
    cache_metrics=(system.CacheMetrics(1, 2, 3, 4, 5, 0.5),),
    threads_count=17,
    free_disk_space=18,
    total_disk_space=19,
)
NODE = system.Node(
    name="one",
    ip="127.0.0.1",
    tcp_port=8090,
    quic_port=8080,
    http_port=3000,
    websocket_port=8092,
    role=Role.LEADER,
    status=NodeStatus.HEALTHY,
)
BATCH = memoryview(b"batch")
PLAN = segments.SegmentPlan(
    namespace=1,
    created_revision=2,
    history_epoch=3,
    first_offset=4,
    next_offset=99,
    folder="/data/partitions/0/0/1-2/3",
    lost=(segments.OffsetRange(20, 30),),
    segments=(
        segments.PlannedSegment(
            base_offset=4,
            end_offset=20,
            oldest_stamp=0,
            newest_stamp=7,
            length=4096 + 500,
            pieces=(segments.PlannedPiece(4, 300, 5), segments.PlannedPiece(10, 200, 6)),
        ),
    ),
    is_more=True,
)

# By command code: what is asked, and what is answered.
SHARD = shards.ShardStatus(
    shard=0,
    process_id=4711,
    cpus=(0, 3),
    cpu_usage=12.5,
    memory_bytes=1 << 33,
    threads_count=5,
    read_bytes=1,
    written_bytes=2,
    partitions_count=3,
    segments_count=4,
    messages_count=5,
    messages_bytes=6,
    connections_count=7,
    commit=76,
    image_age_micros=8,
    journal_used_bytes=9,
    journal_bytes=1 << 30,
    lanes=(shards.Lane(1, 2, 3, 4), shards.Lane(2, 0, 0, 0)),
    drops=(shards.FrameDrops("gather", "full", 5),),
)
RECONCILED = reconcile.ShardReconcile(
    shard=0,
    revision=9,
    passed_revision=8,
    wanted=7,
    actual=6,
    routed=5,
    staged=4,
    doubted=3,
    parked=2,
    is_passing=True,
    tombstoned_count=1001,
    failures_count=1,
    tombstoned=(reconcile.Tombstone("stream 0 topic 1 partition 2", 5, "fenced"),),
    failures=(
        reconcile.ReconcileFailure(
            "stream 0 topic 1 partition 3", "delete", 11, 60_000_000, "read-only"
        ),
    ),
)
SAMPLES: dict[int, tuple[Any, Any]] = {
    1: (None, None),
    10: (None, STATS),
    11: (
        system.GetSnapshot(SnapshotCompression.ZSTD, (SnapshotType.TEST, SnapshotType.ALL)),
        memoryview(b"archive"),
    ),
    12: (None, system.ClusterMetadata("cluster", (NODE,))),
    13: (
        system.DescribeOptions(OptionsScope.TOPIC),
        (system.OptionSpec("segment_size", 12, bytes(8), "bytes"),),
    ),
    20: (None, CLIENT_DETAILS),
    21: (clients.GetClient(1), CLIENT_DETAILS),
    22: (None, (CLIENT, CLIENT)),
    31: (users.GetUser("ada"), DETAILS),
    32: (None, (USER, USER)),
    33: (
        users.CreateUser(
            username="ada",
            password=b"secret",
            status=UserStatus.ACTIVE,
            permissions=PERMISSIONS,
            options=OPTIONS,
        ),
        DETAILS,
    ),
    34: (users.DeleteUser(1), None),
    35: (
        users.UpdateUser(user="ada", username="bob", status=UserStatus.INACTIVE, options=OPTIONS),
        None,
    ),
    36: (users.UpdatePermissions("ada", PERMISSIONS), None),
    37: (users.ChangePassword("ada", b"old", b"new"), None),
    39: (None, None),
    40: (REGISTER, REGISTERED),
    41: (None, (tokens.Token("ci", 5),)),
    42: (tokens.CreateToken("ci", 7), tokens.CreatedToken("secret")),
    43: (tokens.DeleteToken("ci"), None),
    45: (REGISTER, REGISTERED),
    100: (
        messages.PollMessages(
            consumer=CONSUMER,
            stream="shop",
            topic=1,
            partition_id=2,
            strategy=FromOffset(3),
            count=4,
            auto_commit=True,
        ),
        messages.PolledMessages(1, 2, 3, BATCH),
    ),
    101: (
        messages.SendMessages("shop", "orders", ByKey(b"key"), 1, BATCH),
        (messages.Confirmation(1, 2, 3, 4),),
    ),
    102: (topics.FlushUnsavedBuffer("shop", "orders", 1, fsync=True), None),
    120: (messages.GetOffset(CONSUMER, "shop", 1, 2), messages.StoredOffset(1, 2, 3)),
    121: (
        messages.StoreOffset(consumer=CONSUMER, stream="shop", topic=1, partition_id=2, offset=3),
        None,
    ),
    122: (
        messages.DeleteOffset(consumer=CONSUMER, stream="shop", topic=1, partition_id=2),
        None,
    ),
    200: (streams.GetStream("shop"), streams.StreamDetails(STREAM, (TOPIC,))),
    201: (None, (STREAM, STREAM)),
    202: (streams.CreateStream("shop", OPTIONS), STREAM),
    203: (streams.DeleteStream("shop"), None),
    204: (streams.UpdateStream("shop", "store", OPTIONS), None),
    205: (streams.PurgeStream(1), None),
    300: (topics.GetTopic("shop", "orders"), TOPIC_DETAILS),
    301: (topics.GetTopics("shop"), (TOPIC, TOPIC)),
    302: (topics.CreateTopic("shop", 1, "orders", OPTIONS), TOPIC_DETAILS),
    303: (topics.DeleteTopic("shop", 1), None),
    304: (topics.UpdateTopic("shop", 1, "sales", OPTIONS), None),
    305: (topics.PurgeTopic("shop", 1), None),
    402: (topics.CreatePartitions("shop", 1, 3), None),
    403: (topics.DeletePartitions("shop", 1, 3), None),
    503: (topics.DeleteSegments("shop", 1, 2, 3), None),
    600: (groups.GetGroup("shop", 1, "billing"), GROUP_DETAILS),
    601: (groups.GetGroups("shop", 1), (GROUP, GROUP)),
    602: (groups.CreateGroup("shop", 1, "billing"), GROUP_DETAILS),
    603: (groups.DeleteGroup("shop", 1, 2), None),
    604: (groups.JoinGroup("shop", 1, "billing"), None),
    605: (groups.LeaveGroup("shop", 1, "billing"), None),
    606: (groups.SyncGroup("shop", 1, "billing"), groups.Assignment(5, (0, 3))),
    90_001: (
        segments.PlanSegments(stream="shop", topic="orders", partition_id=1, from_offset=4),
        PLAN,
    ),
    90_002: (
        counters.GetCounters(3),
        counters.NodeCounters("dev", (counters.Counter("frame.refused", 1 << 40),), (1, 2)),
    ),
    90_003: (None, shards.NodeShards(3, 77, (SHARD,), (1, 2))),
    90_004: (None, reconcile.NodeReconcile(9, (RECONCILED,), (1,))),
    90_007: (None, clock.AcceptedTime(before=1_700_000_000_000_000, after=2_000_000_000_000_000)),
    90_008: (
        holders.GetHolders("shop", "orders"),
        holders.TopicHolders(
            2,
            (
                holders.Holder(
                    partition_id=1,
                    kind=ConsumerKind.GROUP,
                    id=7,
                    name="billing",
                    stored_offset=3,
                    held_bytes=1 << 40,
                ),
            ),
            (3,),
        ),
    ),
}

ASSIGNMENTS = (internal.PartitionAssignment(0, 1), internal.PartitionAssignment(1, 2))

# Bodies that only servers write.
INTERNAL_SAMPLES: list[tuple[Codec[Any], Any]] = [
    (internal.ACCEPT_TIME, internal.AcceptTime(1_700_000_000_000_000, 2_000_000_000_000_000)),
    (
        internal.CREATE_TOPIC_WITH_ASSIGNMENTS,
        internal.CreateTopicWithAssignments(SAMPLES[302][0], OPTIONS, ASSIGNMENTS),
    ),
    (internal.REMOVE_GROUP_MEMBER, internal.RemoveGroupMember(1)),
    (internal.COMPLETE_REVOCATION, internal.CompleteRevocation("shop", 1, 2, 3, 4)),
    (internal.JOIN_GROUP_AS, internal.JoinGroupAs(SAMPLES[604][0], 1, (0, 2))),
    (internal.LEAVE_GROUP_AS, internal.LeaveGroupAs(SAMPLES[605][0], 1)),
    (internal.CREATE_TOKEN_HASHED, internal.CreateTokenHashed(1, "ci", 2, "0af" * 21 + "9")),
]
