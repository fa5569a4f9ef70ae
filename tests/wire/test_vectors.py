"""Our codecs against the requests that the released SDK sent.

Where the vectors come from and how they read: `tests/vectors/README.md`. What the SDK made of the
answers: `tests/wire/test_answers.py`.
"""

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
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
from headrace.wire.commands.table import COMMANDS, AnyCommand, find_command
from headrace.wire.errors import Code, RefusedError
from headrace.wire.fields import Field, FieldValue
from headrace.wire.frames import FrameCutter
from headrace.wire.identifiers import (
    Balanced,
    ByKey,
    Consumer,
    First,
    FromOffset,
    FromTimestamp,
    Last,
    Next,
    ToPartition,
)
from headrace.wire.numbers import (
    Acknowledgement,
    ConsumerKind,
    Operation,
    OptionsScope,
    SnapshotCompression,
    SnapshotType,
    UserStatus,
)
from headrace.wire.options import make_options
from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from headrace.wire.requests import REQUEST, check_body, encode_request

FILE = Path(__file__).parent.parent / "vectors" / "sdk-0.9.0.jsonl"
KEYS = ["name", "call", "code", "request", "reply"]
FOREVER = (1 << 64) - 1

# Told here once more, so that a wrong table in `numbers` is found.
STAMPED = (1, 3, *range(128, 150))
# What the SDK sends on a connection that is not logged in, beside the login itself.
WITHOUT_SESSION = ("heartbeat/at_connect", "ping/before_login", "error/unauthenticated")


class Vector:
    """One line of the file, with its parts read when a test asks for them."""

    def __init__(self, line: str) -> None:
        self.told: dict[str, Any] = json.loads(line)
        self.name: str = self.told["name"]
        self.code: int = self.told["code"]
        self.request = bytes.fromhex(self.told["request"])
        self.reply = bytes.fromhex(self.told["reply"])
        self.header = REQUEST.decode(self.request)
        self.body = self.request[256:]
        self.is_error = "raised" in self.told

    @property
    def command(self) -> AnyCommand:
        return find_command(self.header)

    def decode(self) -> Any:
        return self.command.decode_request(self.body)


VECTORS = [Vector(line) for line in FILE.read_text().splitlines()]
BY_NAME = {vector.name: vector for vector in VECTORS}
KNOWN = [vector for vector in VECTORS if vector.code in COMMANDS]


def each(vectors: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector.name for vector in vectors])


def test_every_line_has_its_keys_in_order() -> None:
    assert len(BY_NAME) == len(VECTORS)
    for vector in VECTORS:
        assert list(vector.told) == [*KEYS, "raised" if vector.is_error else "returned"]
        assert not vector.is_error or vector.name.startswith("error/")


@pytest.mark.parametrize("piece_bytes", [1 << 20, 257, 52])
def test_the_stream_of_all_requests_is_cut_into_them(piece_bytes: int) -> None:
    stream = b"".join(vector.request for vector in VECTORS)
    cutter = FrameCutter()
    frames = [
        bytes(frame)
        for start in range(0, len(stream), piece_bytes)
        for frame in cutter.feed(stream[start : start + piece_bytes])
    ]
    assert frames == [vector.request for vector in VECTORS]
    assert cutter.held == 0


@each(VECTORS)
def test_the_header_reads_and_writes_alike(vector: Vector) -> None:
    header = vector.header
    check_body(header, vector.body)
    assert vector.request[:256] == encode_request(
        Operation(header.operation),
        vector.body,
        client=header.client,
        session=header.session,
        request=header.request,
        code=vector.code,
    )


def test_what_headers_carry() -> None:
    for vector in VECTORS:
        operation = vector.request[176]
        low, high, code = *struct.unpack_from("<QQ", vector.request, 144), vector.header.code
        assert low == (xxhash.xxh3_64_intdigest(vector.body) if operation in STAMPED else 0)
        assert high == 0
        assert code == (vector.code if operation == 2 else 0)
        assert vector.request[128 + 6] >> 4 == 4  # the client's id is a random UUID
        assert (vector.header.session == 0) == (operation == 1 or vector.name in WITHOUT_SESSION)


@each(KNOWN)
def test_the_body_reads_and_writes_alike(vector: Vector) -> None:
    command = vector.command
    # Both logins have one operation; the code of a vector says which of them the call was.
    assert command.code == vector.code or {command.code, vector.code} == {40, 45}
    assert command.encode_request(vector.decode()) == vector.body


def test_an_unknown_code_is_refused() -> None:
    vector = BY_NAME["error/unknown_code"]
    with pytest.raises(RefusedError) as caught:
        find_command(vector.header)
    assert caught.value.code == Code.INVALID_COMMAND


# What each request says, written out: a codec wrong in both directions would pass all of the above.

NO_BATCH = memoryview(b"")
SDK = session.ClientVersion(0 << 20 | 11 << 10 | 0, "rust-sdk", "0.11.0")
ROOT = session.Register(SDK, session.PasswordLogin("iggy", b"iggy"))
READER = Consumer(ConsumerKind.CONSUMER, "reader")
REPLICATED: dict[str, FieldValue | Field] = {
    "consumer_offset_durability": "replicated",
    "durability": "replicated",
}


def u64(value: int) -> Field:
    return Field(12, value.to_bytes(8, "little"))


def sent(
    stream: int | str, topic: int | str, partition: int, messages_count: int = 1
) -> messages.SendMessages:
    return messages.SendMessages(stream, topic, ToPartition(partition), messages_count, NO_BATCH)


def polled(strategy: Any, count: int) -> messages.PollMessages:
    return messages.PollMessages(
        consumer=READER,
        stream="shop",
        topic="orders",
        partition_id=0,
        strategy=strategy,
        count=count,
        auto_commit=False,
    )


def polled_by_group(
    group: str, partition_id: int, count: int, *, commit: bool
) -> messages.PollMessages:
    return messages.PollMessages(
        consumer=Consumer(ConsumerKind.GROUP, group),
        stream="shop",
        topic="orders",
        partition_id=partition_id,
        strategy=Next(),
        count=count,
        auto_commit=commit,
    )


def stored(group: str, topic: str, offset: int) -> messages.StoreOffset:
    return messages.StoreOffset(
        consumer=Consumer(ConsumerKind.GROUP, group),
        stream="shop",
        topic=topic,
        partition_id=0,
        offset=offset,
    )


EXPECTED: dict[str, object] = {
    "heartbeat/at_connect": None,
    "get_stats/full": None,
    "get_snapshot/plain": system.GetSnapshot(
        SnapshotCompression.DEFLATED, (SnapshotType.PROCESS_LIST, SnapshotType.ALL)
    ),
    "login_user/password/get_cluster_metadata": None,
    "describe_options/topic": system.DescribeOptions(OptionsScope.TOPIC),
    "describe_options/stream": system.DescribeOptions(OptionsScope.STREAM),
    "describe_options/user": system.DescribeOptions(OptionsScope.USER),
    "get_me/plain": None,
    "get_client/unknown": clients.GetClient(2),
    "get_clients/plain": None,
    "get_user/root": users.GetUser(0),
    "get_user/with_permissions": users.GetUser("cleo"),
    "get_users/several": None,
    "create_user/defaults": users.CreateUser(
        username="ann", password=b"secret-1", status=UserStatus.ACTIVE
    ),
    "create_user/inactive": users.CreateUser(
        username="bob", password=b"secret-2", status=UserStatus.INACTIVE, permissions=Permissions()
    ),
    "create_user/permissions": users.CreateUser(
        username="cleo",
        password=b"secret-3",
        status=UserStatus.ACTIVE,
        permissions=Permissions(
            everywhere=GlobalPermissions(read_servers=True, send_messages=True),
            streams=(
                StreamPermissions(
                    stream_id=1,
                    manage_stream=True,
                    topics=(
                        TopicPermissions(topic_id=2, read_topic=True),
                        TopicPermissions(topic_id=3, poll_messages=True),
                    ),
                ),
                StreamPermissions(stream_id=5, send_messages=True),
            ),
        ),
    ),
    "create_user/options": users.CreateUser(
        username="dan",
        password=b"secret-4",
        status=UserStatus.ACTIVE,
        options=make_options({"team": "red"}),
    ),
    "delete_user/named": users.DeleteUser("bob"),
    "delete_user/numeric": users.DeleteUser(1),
    "update_user/username": users.UpdateUser(user="ann", username="anna"),
    "update_user/status": users.UpdateUser(user=1, status=UserStatus.INACTIVE),
    "update_user/both": users.UpdateUser(user=1, username="ann", status=UserStatus.ACTIVE),
    "update_user/nothing": users.UpdateUser(user=1),
    "update_user/options": users.UpdateUser(user="ann", options=make_options({"team": "blue"})),
    "update_permissions/global": users.UpdatePermissions(
        "ann",
        Permissions(
            everywhere=GlobalPermissions(
                manage_servers=True,
                manage_users=True,
                manage_streams=True,
                manage_topics=True,
                poll_messages=True,
            )
        ),
    ),
    "update_permissions/nested": users.UpdatePermissions(
        1,
        Permissions(
            everywhere=GlobalPermissions(read_users=True, read_streams=True, read_topics=True),
            streams=(
                StreamPermissions(
                    stream_id=0,
                    read_stream=True,
                    manage_topics=True,
                    read_topics=True,
                    poll_messages=True,
                    topics=(TopicPermissions(topic_id=0, manage_topic=True, send_messages=True),),
                ),
            ),
        ),
    ),
    "update_permissions/none": users.UpdatePermissions("ann", None),
    "change_password/named": users.ChangePassword("ann", b"secret-1", b"secret-9"),
    "change_password/numeric": users.ChangePassword(1, b"secret-9", "pässword".encode()),
    "logout_user/plain": None,
    "login_user/password": ROOT,
    "connect/auto_login_password": ROOT,
    "connect/auto_login_token": session.Register(
        SDK, token=session.TokenLogin(b"hr-token-0123456789abcdef")
    ),
    "error/evicted_invalid_credentials": session.Register(
        SDK, session.PasswordLogin("iggy", b"guess")
    ),
    "get_tokens/plain": None,
    "create_token/plain": tokens.CreateToken("laptop", 3_600_000_000),
    "create_token/without_expiry": tokens.CreateToken("server", tokens.EXPIRY_NEVER),
    "delete_token/plain": tokens.DeleteToken("laptop"),
    "poll_messages/first": polled(First(), 2),
    "poll_messages/offset_sliced": polled(FromOffset(2), 3),
    "poll_messages/last": polled(Last(), 5),
    "poll_messages/timestamp": polled(FromTimestamp(1763164800000001), 1),
    "poll_messages/next_auto_commit": messages.PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 7),
        stream=0,
        topic=0,
        partition_id=1,
        strategy=Next(),
        count=1,
        auto_commit=True,
    ),
    # A name of digits alone travels as a number.
    "poll_messages/without_partition": messages.PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 42),
        stream="shop",
        topic="returns",
        partition_id=None,
        strategy=Next(),
        count=10,
        auto_commit=False,
    ),
    # A member names the partition itself, in turn.
    "poll_messages/group": polled_by_group("billing", 0, 2, commit=True),
    "poll_messages/group_next_partition": polled_by_group("billing", 1, 2, commit=False),
    "poll_messages/group_resync": polled_by_group("billing", 2, 2, commit=True),
    "consumer/iter_messages": polled_by_group("readers", 0, 1000, commit=True),
    "send_messages/one": sent("shop", "orders", 0),
    "send_messages/integer_partition": sent(0, 0, 1),
    "send_messages/explicit_ids": sent("shop", "orders", 0, 3),
    # The SDK chooses the partition: in turn, or by the key's hash.
    "send_messages/balanced": sent("shop", "orders", 0),
    "send_messages/balanced_again": sent("shop", "orders", 1),
    "send_messages/text_key": sent("shop", "orders", xxhash.xxh32_intdigest(b"customer-7") % 3),
    "send_messages/bytes_key": sent("shop", "orders", xxhash.xxh32_intdigest(b"\0\1\2") % 3),
    "send_messages/balanced_on_the_wire": messages.SendMessages(
        "shop", "returns", Balanced(), 2, NO_BATCH
    ),
    "send_messages/key_on_the_wire": messages.SendMessages(0, 1, ByKey(b"customer-7"), 1, NO_BATCH),
    "producer/send_with_partitioning": sent("depot", "parcels", xxhash.xxh32_intdigest(b"k") % 2),
    "producer/send_to": sent("lab", "texts", 0),
    "producer/chunks": sent("depot", "parcels", 1, 2),
    "producer/chunks/3": sent("depot", "parcels", 1, 1),
    "producer/background": sent("depot", "parcels", 0, 2),
    "flush/plain": topics.FlushUnsavedBuffer("shop", "orders", 2, True),
    "error/flush_unavailable": topics.FlushUnsavedBuffer(0, 0, 0, False),
    "get_offset/stored": messages.GetOffset(Consumer(ConsumerKind.CONSUMER, 7), 0, 0, 1),
    "get_offset/none": messages.GetOffset(
        Consumer(ConsumerKind.CONSUMER, "nobody"), "shop", "orders", None
    ),
    "store_offset/leader_only": messages.StoreOffset(
        consumer=READER,
        stream="shop",
        topic="orders",
        partition_id=0,
        offset=1,
        acknowledgement=Acknowledgement.LEADER,
    ),
    "consumer/store_offset": stored("readers", "orders", 1),
    "consumer/store_offset_of_current": stored("readers", "orders", 0),
    "consumer/consume_messages/store_consumer_offset/2": stored("writers", "returns", 2),
    "consumer/auto_commit_by_interval/store_consumer_offset": stored("timers", "returns", 1),
    "consumer/delete_offset": messages.DeleteOffset(
        consumer=Consumer(ConsumerKind.GROUP, "readers"),
        stream="shop",
        topic="orders",
        partition_id=0,
    ),
    "get_stream/named": streams.GetStream("shop"),
    "get_stream/numeric": streams.GetStream(1),
    "get_stream/decimal_name": streams.GetStream(3),
    "get_streams/none": None,
    "create_stream/plain": streams.CreateStream("shop"),
    "create_stream/utf8": streams.CreateStream("caffè ☕"),
    "create_stream/longest_name": streams.CreateStream("n" * 255),
    "create_stream/options": streams.CreateStream("lab", make_options({"colour": "red"})),
    "delete_stream/named": streams.DeleteStream("n" * 255),
    "delete_stream/numeric": streams.DeleteStream(1),
    "update_stream/named": streams.UpdateStream("lab", "lab2"),
    "update_stream/options": streams.UpdateStream(
        3, "lab", make_options({"age": "7", "colour": "blue"})
    ),
    "purge_stream/named": streams.PurgeStream("shop"),
    "purge_stream/numeric": streams.PurgeStream(0),
    "get_topic/named": topics.GetTopic("shop", "audit"),
    "get_topic/numeric": topics.GetTopic(0, 0),
    "get_topics/none": topics.GetTopics("shop"),
    "create_topic/defaults": topics.CreateTopic("shop", 3, "orders", make_options(REPLICATED)),
    "create_topic/numeric_stream": topics.CreateTopic(0, 1, "returns", make_options(REPLICATED)),
    "create_topic/all_options": topics.CreateTopic(
        "shop",
        2,
        "audit",
        make_options(
            {
                "compression_algorithm": "gzip",
                "consumer_offset_durability": "replicated",
                "durability": "persisted",
                "max_topic_size": u64(4 << 30),
                "message_expiry": u64(7_200_000_000),
                "messages_required_to_save": Field(11, (5000).to_bytes(4, "little")),
                "preallocate_segments": True,
                "segment_size": u64(128 << 20),
                "size_of_messages_required_to_save": u64(2 << 20),
                "zone": "eu",
            }
        ),
    ),
    # No compression is left out; no preallocation is not.
    "create_topic/unlimited": topics.CreateTopic(
        "shop",
        1,
        "forever",
        make_options(
            {
                "consumer_offset_durability": "persisted",
                "durability": "replicated",
                "max_topic_size": u64(FOREVER),
                "message_expiry": u64(FOREVER),
                "preallocate_segments": False,
            }
        ),
    ),
    "create_topic/server_defaults": topics.CreateTopic(
        "shop", 1, "usual", make_options(REPLICATED)
    ),
    "create_topic/text_options": topics.CreateTopic(
        "lab",
        1,
        "texts",
        make_options(REPLICATED | {"message_expiry": "7 days", "segment_size": "1 GiB"}),
    ),
    "create_topic/without_partitions": topics.CreateTopic(
        "lab", 0, "empty", make_options(REPLICATED)
    ),
    "delete_topic/numeric": topics.DeleteTopic(0, 4),
    "delete_topic/named": topics.DeleteTopic("shop", "forever"),
    "update_topic/name_only": topics.UpdateTopic("shop", "usual", "common"),
    "update_topic/all_options": topics.UpdateTopic(
        0,
        4,
        "usual",
        make_options(
            {
                "compression_algorithm": "gzip",
                "max_topic_size": u64(1 << 30),
                "message_expiry": u64(1),
                "zone": "us",
            }
        ),
    ),
    "update_topic/unlimited": topics.UpdateTopic(
        "shop",
        4,
        "usual",
        make_options({"max_topic_size": u64(FOREVER), "message_expiry": u64(FOREVER)}),
    ),
    "purge_topic/named": topics.PurgeTopic("shop", "usual"),
    "create_partitions/named": topics.CreatePartitions("shop", "usual", 2),
    "create_partitions/numeric": topics.CreatePartitions(0, 4, 1000),
    "delete_partitions/named": topics.DeletePartitions("shop", "usual", 1),
    "delete_segments/truncated": topics.DeleteSegments("shop", "orders", 0, 2),
    "delete_segments/operation_echoed": topics.DeleteSegments(0, 0, 1, 1),
    "get_consumer_group/named": groups.GetGroup("shop", "orders", "billing"),
    "get_consumer_group/numeric": groups.GetGroup(0, 0, 1),
    "get_consumer_groups/two": groups.GetGroups(0, 0),
    "create_consumer_group/named": groups.CreateGroup("shop", "orders", "billing"),
    "delete_consumer_group/named": groups.DeleteGroup("shop", "orders", "billing"),
    "join_consumer_group/named": groups.JoinGroup("shop", "orders", "billing"),
    "leave_consumer_group/numeric": groups.LeaveGroup(0, 0, 1),
    "poll_messages/group/sync_consumer_group": groups.SyncGroup("shop", "orders", "billing"),
    "heartbeat/of_a_member/sync_consumer_group": groups.SyncGroup("shop", "orders", "beating"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_request_says_what_was_asked(name: str) -> None:
    value = BY_NAME[name].decode()
    if isinstance(value, messages.SendMessages):
        value = msgspec.structs.replace(value, batch=NO_BATCH)
    assert value == EXPECTED[name]


# Commands of ours without a vector, and why.
WITHOUT_VECTOR = {
    90_001: "of our own: the released SDK does not know it",
    90_002: "of our own: the released SDK does not know it",
    90_003: "of our own: the released SDK does not know it",
    90_004: "of our own: the released SDK does not know it",
    90_007: "of our own: the released SDK does not know it",
    90_008: "of our own: the released SDK does not know it",
}


def test_every_command_has_a_vector_or_a_reason() -> None:
    recorded = {vector.code for vector in KNOWN if not vector.is_error}
    assert recorded | set(WITHOUT_VECTOR) == set(COMMANDS)
    assert not recorded & set(WITHOUT_VECTOR)
    assert {BY_NAME[name].code for name in EXPECTED} == recorded
