"""What the released SDK made of our answers, and the messages that it sent and received.

Where the vectors come from and how they read: `README.md` beside this file. The requests:
`tests/wire/test_vectors.py`.
"""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash

from headrace.wire.commands import groups, messages, streams, system, topics, users
from headrace.wire.commands.table import COMMANDS, AnyCommand, find_command
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason, encode_eviction
from headrace.wire.fields import Field, FieldKind, FieldValue, decode_user_headers, make_field
from headrace.wire.numbers import Operation
from headrace.wire.options import Options
from headrace.wire.permissions import Permissions
from headrace.wire.replies import REPLY, encode_rejection, encode_reply, read_answer
from headrace.wire.requests import REQUEST

FILE = Path(__file__).parent.parent / "vectors" / "sdk-0.9.0.jsonl"
FOREVER = (1 << 64) - 1

# Told here once more, so that a wrong table in `numbers` is found.
RESULT_FRAMED = (1, *range(64, 69), *range(128, 138), *range(139, 150), 161, 162)


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
        # What the SDK sent by itself is named behind the call during which it did.
        parts = self.name.split("/")
        self.is_unasked = len(parts) > 2 and not parts[2].isdigit()

    @property
    def command(self) -> AnyCommand:
        return find_command(self.header)

    def decode(self) -> Any:
        return self.command.decode_request(self.body)


VECTORS = [Vector(line) for line in FILE.read_text().splitlines()]
BY_NAME = {vector.name: vector for vector in VECTORS}
SERVED = [vector for vector in VECTORS if vector.code in COMMANDS and not vector.is_error]
FAILED = [vector for vector in VECTORS if vector.is_error]
SENT = [vector for vector in VECTORS if vector.code == 101]


def each(vectors: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector.name for vector in vectors])


# Batches, read here with plain structs.


class Message(msgspec.Struct):
    checksum: int
    id: int
    offset_delta: int
    timestamp_delta: int
    payload: bytes
    user_headers: bytes


def split_batches(data: bytes) -> Iterator[bytes]:
    while data:
        (length,) = struct.unpack_from("<Q", data, 32)
        yield data[:length]
        data = data[length:]


def read_messages(batch: bytes) -> list[Message]:
    """Read a batch and check all that it says of itself."""
    length, checksum, count = struct.unpack_from("<QQI", batch, 32)
    assert length == len(batch)
    assert batch[52:256] == bytes(204)
    digest = xxhash.xxh3_64(batch[:40] + batch[48:52])
    found = []
    position = 256
    while position < len(batch):
        stored_checksum, low, high, offset_delta, timestamp_delta, headers_bytes, payload_bytes = (
            struct.unpack_from("<QQQIIII", batch, position)
        )
        payload_at = position + 48
        headers_at = payload_at + payload_bytes
        end = headers_at + headers_bytes
        assert batch[position + 40 : payload_at] == bytes(8)
        assert stored_checksum == xxhash.xxh3_64_intdigest(batch[position + 8 : end])
        digest.update(batch[position : position + 8])
        found.append(
            Message(
                stored_checksum,
                high << 64 | low,
                offset_delta,
                timestamp_delta,
                batch[payload_at:headers_at],
                batch[headers_at:end],
            )
        )
        position = end
    assert position == len(batch)
    assert len(found) == count
    assert checksum == digest.intdigest()
    return found


def sent_messages(name: str) -> list[Message]:
    return read_messages(bytes(BY_NAME[name].decode().batch))


@each(SENT)
def test_a_batch_keeps_the_rules(vector: Vector) -> None:
    request = vector.decode()
    batch = bytes(request.batch)
    found = read_messages(batch)
    assert batch[:24] == bytes(24)  # partition, offset and time are the server's to stamp
    assert len(found) == request.messages_count
    assert [message.offset_delta for message in found] == list(range(len(found)))
    assert found[0].timestamp_delta == 0
    assert all(message.id != 0 for message in found)


def test_ids_are_kept_and_zero_is_replaced() -> None:
    found = sent_messages("send_messages/explicit_ids")
    assert [message.payload for message in found] == [b"a", b"b", b"c"]
    assert [message.id for message in found][:2] == [1, 2**128 - 1]
    assert found[2].id >> 52 & 0xF == 4  # a random UUID, its bytes in their usual order


def test_headers_of_every_kind() -> None:
    (message,) = sent_messages("send_messages/typed_headers")
    headers = decode_user_headers(message.user_headers)
    assert message.payload == b"typed"
    assert [(key.kind, value.kind) for key, value in headers] == [(n, n) for n in range(1, 16)]
    assert [(key.value, value.value) for key, value in headers] == [
        (b"\1\2", b"\xfe\xff"),
        ("text", "grüß"),
        (True, False),
        (-8, -128),
        (-16, -(2**15)),
        (-32, -(2**31)),
        (-64, -(2**63)),
        (-128, -(2**127)),
        (8, 2**8 - 1),
        (16, 2**16 - 1),
        (32, 2**32 - 1),
        (64, 2**64 - 1),
        (128, 2**128 - 1),
        (0.5, -1.5),
        (0.1, 1e300),
    ]


def test_plain_values_take_the_smallest_kind_and_keys_are_sorted() -> None:
    (message,) = sent_messages("send_messages/plain_headers")
    values: dict[FieldValue, FieldValue] = {
        "b": b"raw",
        "aa": "text",
        "flag": True,
        "zero": 0,
        "u8": 255,
        "u16": 256,
        "u32": 65536,
        "u64": 2**32,
        "u128": 2**64,
        "i8": -128,
        "i16": -129,
        "i32": -32769,
        "i64": -(2**31) - 1,
        "i128": -(2**63) - 1,
        "f32": 1.5,
        "f64": 0.1,
        "whole": 2.0,
        b"raw key": 1,
        7: 1,
        300: 1,
        -7: 1,
        False: 1,
        0.25: 1,
    }
    made = sorted((make_field(key), make_field(value)) for key, value in values.items())
    assert decode_user_headers(message.user_headers) == tuple(made)


# Replies.


@each(SERVED)
def test_the_reply_reads_and_writes_alike(vector: Vector) -> None:
    header = REPLY.decode(vector.reply)
    payload = vector.command.encode_reply(vector.command.decode_reply(read_answer(vector.reply)))
    framed = header.operation in RESULT_FRAMED
    assert vector.reply == encode_reply(
        vector.header,
        bytes(4) + payload if framed else payload,
        operation=Operation(header.operation),
        op=header.op,
        commit=header.commit,
    )


KIND_NAMES = {
    kind: kind.name.replace("UINT", "UnsignedInt").replace("FLOAT", "Float").replace("INT", "Int")
    if kind.name[-1].isdigit()
    else kind.name.title()
    for kind in FieldKind
}


def show_field(field: Field) -> list[object]:
    value = field.value
    return [KIND_NAMES[FieldKind(field.kind)], value.hex() if isinstance(value, bytes) else value]


def show_options(options: Options) -> list[object]:
    return [[["String", option.key], show_field(option.value)] for option in options]


def show_stats(stats: system.Stats) -> dict[str, object]:
    shown: dict[str, object] = msgspec.structs.asdict(stats)
    shown["iggy_server_version"] = shown.pop("server_version")
    shown["iggy_server_semver"] = shown.pop("server_semver") or None
    shown["cache_metrics"] = [
        [
            {"stream_id": of.stream_id, "topic_id": of.topic_id, "partition_id": of.partition_id},
            {"hits": of.hits, "misses": of.misses, "hit_ratio": of.hit_ratio},
        ]
        for of in stats.cache_metrics
    ]
    return shown


def show_specs(specs: tuple[system.OptionSpec, ...]) -> list[dict[str, object]]:
    return [
        {
            "key": spec.key,
            "kind": FieldKind(spec.kind).name.lower(),
            "default_value": show_field(Field(spec.kind, spec.default)),
            "description": spec.description,
        }
        for spec in specs
    ]


def show_user(user: users.User) -> dict[str, object]:
    shown: dict[str, object] = msgspec.structs.asdict(user)
    del shown["options"]
    return shown | {"status": user.status.name.title()}


def show_permissions(permissions: Permissions) -> dict[str, object]:
    streams = []
    for stream in permissions.streams:
        shown = msgspec.structs.asdict(stream)
        topics = [msgspec.structs.asdict(topic) for topic in stream.topics]
        shown["topics"] = [[topic.pop("topic_id"), topic] for topic in topics] or None
        streams.append([shown.pop("stream_id"), shown])
    everywhere = msgspec.structs.asdict(permissions.everywhere)
    return {"global_permissions": everywhere, "streams": streams or None}


def show_user_details(details: users.UserDetails | None) -> dict[str, object] | None:
    if details is None:
        return None
    permissions = details.permissions
    shown = None if permissions is None else show_permissions(permissions)
    return show_user(details.user) | {"permissions": shown}


def show_stream(stream: streams.Stream) -> dict[str, object]:
    shown: dict[str, object] = msgspec.structs.asdict(stream)
    del shown["options"]
    return shown | {"size": shown.pop("size_bytes")}


def show_stream_details(details: streams.StreamDetails | None) -> dict[str, object] | None:
    if details is None:
        return None
    return show_stream(details.stream) | {"topics": [show_topic(topic) for topic in details.topics]}


def show_limit(value: int, *names: str) -> list[object]:
    none, some, unbounded = names
    return [none] if value == 0 else [unbounded] if value == FOREVER else [some, value]


def show_topic(topic: topics.Topic) -> dict[str, object]:
    return {
        "id": topic.id,
        "name": topic.name,
        "created_at": topic.created_at,
        "partitions_count": topic.partitions_count,
        "messages_count": topic.messages_count,
        "size": topic.size_bytes,
        "compression_algorithm": topic.compression.name.lower(),
        "message_expiry": show_limit(
            topic.message_expiry, "ServerDefault", "ExpireDuration", "NeverExpire"
        ),
        "max_topic_size": show_limit(topic.max_topic_size, "ServerDefault", "Custom", "Unlimited"),
        "options": show_options(topic.explicit),
        "derived_options": show_options(topic.derived),
    }


def show_partition(partition: topics.Partition) -> dict[str, object]:
    shown: dict[str, object] = msgspec.structs.asdict(partition)
    return shown | {"size": shown.pop("size_bytes")}


def show_topic_details(details: topics.TopicDetails | None) -> dict[str, object] | None:
    if details is None:
        return None
    partitions = [show_partition(partition) for partition in details.partitions]
    return show_topic(details.topic) | {"partitions": partitions}


def show_group(group: groups.Group) -> dict[str, object]:
    shown: dict[str, object] = msgspec.structs.asdict(group)
    return shown


def show_group_details(details: groups.GroupDetails | None) -> dict[str, object] | None:
    if details is None:
        return None
    members = [
        {
            "id": member.id,
            "partitions": list(member.partitions),
            "partitions_count": len(member.partitions),
        }
        for member in details.members
    ]
    return show_group(details.group) | {"members": members}


def show_confirmations(confirmations: tuple[messages.Confirmation, ...]) -> dict[str, object]:
    return {"confirmations": [msgspec.structs.asdict(entry) for entry in confirmations]}


def show_messages(polled: messages.PolledMessages) -> list[dict[str, object]]:
    shown: list[dict[str, object]] = []
    for batch in split_batches(bytes(polled.batches)):
        partition_id, base_offset, base_timestamp, origin = struct.unpack_from("<4Q", batch)
        assert partition_id == polled.partition_id
        shown += [
            {
                "checksum": message.checksum,
                "id": message.id,
                "length": len(message.payload),
                "offset": base_offset + message.offset_delta,
                "origin_timestamp": origin + message.timestamp_delta,
                "partition_id": partition_id,
                "payload": message.payload.hex(),
                "timestamp": base_timestamp,
                "user_headers": [
                    [show_field(key), show_field(value)]
                    for key, value in decode_user_headers(message.user_headers)
                ]
                or None,
            }
            for message in read_messages(batch)
        ]
    assert len(shown) == polled.messages_count
    return shown


# What the SDK shows of a reply; of the other commands it shows nothing.
SHOWN: dict[int, Callable[[Any], object]] = {
    10: show_stats,
    13: show_specs,
    31: show_user_details,
    32: lambda users: [show_user(user) for user in users],
    33: show_user_details,
    100: show_messages,
    101: show_confirmations,
    200: show_stream_details,
    201: lambda streams: [show_stream(stream) for stream in streams],
    300: show_topic_details,
    301: lambda topics: [show_topic(topic) for topic in topics],
    600: show_group_details,
    601: lambda groups: [show_group(group) for group in groups],
}
# Calls that took some messages of what they polled.
TAKEN = ("consumer/iter_messages", "consumer/auto_commit_by_interval")
# Calls whose result is not that of one reply.
COMPOSED = (
    "consumer/consume_messages",  # gives messages to a callback
    *TAKEN,
    "poll_messages/group_resync",  # polled again after a sync
    "producer/background",  # sent after the call
    "producer/background_shutdown",
    "producer/chunks",  # one result for three replies
)


def is_composed(vector: Vector) -> bool:
    return vector.is_unasked or vector.name.removesuffix("/2").removesuffix("/3") in COMPOSED


@each([vector for vector in SERVED if not is_composed(vector)])
def test_the_reply_says_what_the_sdk_returned(vector: Vector) -> None:
    returned = vector.told["returned"]
    payload = read_answer(vector.reply)
    if isinstance(returned, str):  # of a raw request, the payload as it is
        assert returned == payload.hex()
    elif vector.code in SHOWN:
        assert returned == SHOWN[vector.code](vector.command.decode_reply(payload))
    else:
        assert returned is None


def shown_of(name: str) -> Any:
    vector = BY_NAME[name]
    return SHOWN[vector.code](vector.command.decode_reply(read_answer(vector.reply)))


def test_chunks_are_confirmed_one_by_one() -> None:
    names = ("producer/chunks", "producer/chunks/2", "producer/chunks/3")
    confirmed = [entry for name in names for entry in shown_of(name)["confirmations"]]
    assert BY_NAME[names[0]].told["returned"] == {"confirmations": confirmed}


@pytest.mark.parametrize("name", TAKEN)
def test_a_consumer_takes_from_the_front(name: str) -> None:
    returned = BY_NAME[name].told["returned"]
    assert returned == shown_of(name)[: len(returned)]


def test_a_poll_that_must_sync_first_is_made_again() -> None:
    first, again = BY_NAME["poll_messages/group_resync"], BY_NAME["poll_messages/group_resync/2"]
    assert (
        first.command.decode_reply(read_answer(first.reply)).partition_id
        == messages.RESYNC_PARTITION
    )
    assert again.told["returned"] == shown_of(again.name)


# Errors: how the answer came, what it says, and what the SDK made of it.

LOST = "Disconnected"  # where the SDK would log in again, if it had not been told to stay away

ERRORS: dict[str, tuple[str, Code | EvictionReason, str]] = {
    "stream_name_taken": (
        "result",
        Code.STREAM_NAME_ALREADY_EXISTS,
        "Stream with name:  already exists.",
    ),
    "stream_not_found": ("result", Code.STREAM_ID_NOT_FOUND, "Stream with ID: 0 was not found."),
    "topic_name_taken": (
        "result",
        Code.TOPIC_NAME_ALREADY_EXISTS,
        "Topic with name:  for stream with ID: 0 already exists.",
    ),
    "topic_options_refused": ("status", Code.UNSUPPORTED_OPTION_KEY, "Unsupported option key: "),
    "topic_not_found": (
        "result",
        Code.TOPIC_ID_NOT_FOUND,
        "Topic with ID: 0 for stream with ID: 0 was not found.",
    ),
    "too_many_partitions": ("status", Code.TOO_MANY_PARTITIONS, "Too many partitions"),
    "user_exists": ("result", Code.USER_ALREADY_EXISTS, "User already exists"),
    "user_not_found": ("result", Code.RESOURCE_NOT_FOUND, "Resource with key:  was not found."),
    "wrong_password": ("result", Code.INVALID_CREDENTIALS, "Invalid credentials"),
    "token_exists": (
        "result",
        Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS,
        "Personal access token:  for user with ID: 0 already exists",
    ),
    "unknown_code": ("status", Code.INVALID_COMMAND, "Invalid command"),
    "send_partition_not_found": (
        "status",
        Code.PARTITION_NOT_FOUND,
        "Partition with ID: 0 for topic with ID: 0 for stream with ID: 0 was not found.",
    ),
    "send_checksum_refused": (
        "status",
        Code.INVALID_BATCH_CHECKSUM,
        "Invalid batch checksum: 0, expected: 0, for base offset: 0",
    ),
    "send_unauthorized": ("status", Code.UNAUTHORIZED, "Unauthorized"),
    "send_error_number_unknown": ("status", Code.ERROR, "Error"),
    "poll_partition_not_found": (
        "status",
        Code.PARTITION_NOT_FOUND,
        "Partition with ID: 0 for topic with ID: 0 for stream with ID: 0 was not found.",
    ),
    "poll_cannot_read": ("status", Code.CANNOT_READ_MESSAGE, "Cannot read message"),
    "flush_unavailable": ("status", Code.FEATURE_UNAVAILABLE, "Feature is unavailable"),
    "group_name_taken": (
        "result",
        Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS,
        "Consumer group with name:  for topic with ID: 0 already exists.",
    ),
    "group_left_by_stranger": (
        "result",
        Code.CONSUMER_GROUP_MEMBER_NOT_FOUND,
        (
            "Consumer group member with client ID: 0 for group with ID: 0 for topic with ID: 0 "
            "was not found."
        ),
    ),
    "group_not_found": (
        "result",
        Code.CONSUMER_GROUP_ID_NOT_FOUND,
        "Consumer group with ID: 0 for topic with ID: 0 was not found.",
    ),
    # The SDK's text for a full topic speaks of something else.
    "producer_send": (
        "status",
        Code.TOPIC_FULL,
        "Producer send failed: Cannot read partitions for topic with ID: 0 for stream with ID: 0",
    ),
    "offset_not_stored": (
        "result",
        Code.CONSUMER_OFFSET_NOT_FOUND,
        "Consumer offset for consumer with ID: 0 was not found.",
    ),
    "offset_beyond_end": ("result", Code.INVALID_OFFSET, "Invalid offset: 0"),
    "unauthenticated": ("status", Code.UNAUTHENTICATED, LOST),
    "evicted_invalid_credentials": (
        "eviction",
        EvictionReason.INVALID_CREDENTIALS,
        "Invalid credentials",
    ),
    "evicted_invalid_token": (
        "eviction",
        EvictionReason.INVALID_TOKEN,
        "Invalid personal access token",
    ),
    "evicted_incompatible_protocol": (
        "eviction",
        EvictionReason.INCOMPATIBLE_PROTOCOL,
        "Incompatible binary protocol version: client 0.11.0, server accepts [0.11.0, 0.11.0]",
    ),
    "evicted_malformed_login": ("eviction", EvictionReason.MALFORMED_LOGIN, "Invalid format"),
    "evicted_invalid_operation": (
        "eviction",
        EvictionReason.INVALID_REQUEST_OPERATION,
        "Invalid command",
    ),
    "evicted_no_session": ("eviction", EvictionReason.NO_SESSION, LOST),
    "evicted_stale_client": ("eviction", EvictionReason.STALE_CLIENT, "Stale client"),
}
EVICTED_AS = {
    EvictionReason.NO_SESSION: Code.UNAUTHENTICATED,
    EvictionReason.INVALID_REQUEST_OPERATION: Code.INVALID_COMMAND,
    EvictionReason.INVALID_CREDENTIALS: Code.INVALID_CREDENTIALS,
    EvictionReason.INVALID_TOKEN: Code.INVALID_PERSONAL_ACCESS_TOKEN,
    EvictionReason.STALE_CLIENT: Code.STALE_CLIENT,
    EvictionReason.INCOMPATIBLE_PROTOCOL: Code.INCOMPATIBLE_PROTOCOL_VERSION,
    EvictionReason.MALFORMED_LOGIN: Code.INVALID_FORMAT,
}


def test_every_error_is_explained() -> None:
    assert {vector.name for vector in FAILED} == {f"error/{name}" for name in ERRORS}


@each(FAILED)
def test_the_answer_is_read_as_the_error_that_the_sdk_raised(vector: Vector) -> None:
    channel, told, text = ERRORS[vector.name.removeprefix("error/")]
    assert vector.told["raised"]["text"] == text
    with pytest.raises((RefusedError, EvictedError)) as caught:
        read_answer(vector.reply)
    error = caught.value
    if isinstance(told, EvictionReason):
        assert isinstance(error, EvictedError)
        assert (channel, error.reason, error.code) == ("eviction", told, EVICTED_AS[told])
        assert error.client == vector.header.client
        assert vector.reply == encode_eviction(told, vector.header.client)
        return
    assert isinstance(error, RefusedError)
    assert error.code == told
    header = REPLY.decode(vector.reply)
    rejection = encode_rejection(told) if channel == "result" else b""
    assert vector.reply == encode_reply(
        vector.header,
        rejection,
        operation=Operation(header.operation),
        op=header.op,
        commit=header.commit,
        status=header.status,
    )
    assert bool(header.status) == (channel == "status")
