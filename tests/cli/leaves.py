"""Every verb of every noun: how it succeeds, as table and as JSON, and how it fails.

What is there before each, made by `test_leaves.py`:

```
shop/orders     2 partitions; "one" "two" "three" in partition 0
                group billing has stored 0, consumer report has stored 1
ada             a user without permissions, password "secret of ada"
laptop          a token of the root user
prod            a context, at 10.0.0.7:8090
```
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.cli.exits import Exit

if TYPE_CHECKING:
    from types import EllipsisType

# What JSON must be; `...` stands for any value. Objects have exactly the names that are given.
Wanted: TypeAlias = (
    "EllipsisType | bool | int | float | str | list[Wanted] | dict[str, Wanted] | None"
)

NOWHERE = ("--address", "127.0.0.1:1")


@dataclass(frozen=True)
class Leaf:
    """One command: arguments that succeed, what is shown for them, arguments that fail."""

    arguments: str
    table: tuple[str, ...]
    json: Wanted
    failure: str
    code: Exit
    words: str
    before: tuple[str, ...] = ()


STREAM: dict[str, Wanted] = {
    "id": ...,
    "name": "shop",
    "topics_count": 1,
    "messages_count": 3,
    "size_bytes": ...,
    "created_at": ...,
}
TOPIC: dict[str, Wanted] = {
    "id": ...,
    "name": "orders",
    "partitions_count": 2,
    "messages_count": 3,
    "size_bytes": ...,
    "created_at": ...,
    "message_expiry_micros": None,
    "max_topic_size_bytes": None,
    "compression": "none",
    "options": {},
}
PARTITION: dict[str, Wanted] = {
    "id": 0,
    "segments_count": 1,
    "messages_count": 3,
    "current_offset": 2,
    "size_bytes": ...,
    "created_at": ...,
}
EMPTY_PARTITION = PARTITION | {"id": 1, "messages_count": 0, "current_offset": None}
GROUP: dict[str, Wanted] = {
    "id": ...,
    "name": "billing",
    "partitions_count": 2,
    "members_count": 0,
}
USER: dict[str, Wanted] = {"id": ..., "name": "ada", "status": "active", "created_at": ...}
ROOT = USER | {"id": 0, "name": "iggy"}
MESSAGE: dict[str, Wanted] = {
    "partition": 0,
    "offset": 2,
    "timestamp_at": ...,
    "origin_timestamp_at": ...,
    "id": ...,
    "value": "three",
    "encoding": "utf-8",
    "headers": {},
}
CLIENT: dict[str, Wanted] = {
    "id": ...,
    "user_id": 0,
    "transport": "tcp",
    "address": ...,
    "groups_count": 0,
}
CONTEXT: dict[str, Wanted] = {
    "name": "prod",
    "is_current": False,
    "address": "10.0.0.7:8090",
    "username": "ada",
    "password": "***",
    "token": None,
    "token_name": None,
    "token_expires_at": None,
}
DEFAULT_CONTEXT = CONTEXT | {
    "name": "default",
    "is_current": True,
    "address": "127.0.0.1:8090",
    "username": None,
    "password": None,
}
NO_STREAM = "stream id not found"
NO_TOPIC = "topic id not found"
NO_GROUP = "consumer group id not found"
NOBODY = "127.0.0.1:1 cannot be reached"
NEEDS_YES = "say --yes if it is meant"

LEAVES = {
    "stream list": Leaf(
        "",
        ("name", "shop", "messages"),
        [STREAM],
        "--username ada --password secret-of-ada",
        Exit.AUTH,
        "it needs manage_streams or read_streams everywhere",
    ),
    "stream get": Leaf(
        "shop",
        ("shop", "orders"),
        STREAM
        | {
            "topics": [
                {
                    "id": ...,
                    "name": "orders",
                    "partitions_count": 2,
                    "messages_count": 3,
                    "size_bytes": ...,
                }
            ]
        },
        "nothing",
        Exit.NOT_FOUND,
        NO_STREAM,
    ),
    "stream create": Leaf(
        "mart",
        ("name", "mart"),
        STREAM | {"name": "mart", "topics_count": 0, "messages_count": 0, "size_bytes": 0},
        "shop",
        Exit.FAILED,
        "stream name already exists",
    ),
    "stream update": Leaf(
        "shop store",
        ("The stream shop is now named store.",),
        {"stream": "shop", "name": "store"},
        "nothing store",
        Exit.NOT_FOUND,
        NO_STREAM,
    ),
    "stream delete": Leaf(
        "shop --yes",
        ("The stream shop is deleted.",),
        {"stream": "shop", "is_deleted": True},
        "shop",
        Exit.USAGE,
        f"delete the stream shop with 1 topic and 3 messages: {NEEDS_YES}",
    ),
    "stream purge": Leaf(
        "shop --yes",
        ("The stream shop is empty now.",),
        {"stream": "shop", "is_purged": True},
        "nothing --yes",
        Exit.NOT_FOUND,
        NO_STREAM,
    ),
    "topic list": Leaf(
        "shop", ("orders", "partitions"), [TOPIC], "nothing", Exit.NOT_FOUND, NO_STREAM
    ),
    "topic get": Leaf(
        "shop/orders",
        ("orders", "partitions", "current offset"),
        TOPIC | {"partitions": [PARTITION, EMPTY_PARTITION]},
        "shop/nothing",
        Exit.NOT_FOUND,
        NO_TOPIC,
    ),
    "topic create": Leaf(
        "shop/sales --partitions 1 --expiry 7days --max-size 10GiB",
        ("sales", "7 d", "10 GiB"),
        TOPIC
        | {
            "name": "sales",
            "partitions_count": 1,
            "messages_count": 0,
            "message_expiry_micros": 604_800_000_000,
            "max_topic_size_bytes": 10 << 30,
            "options": {"max_topic_size": 10 << 30, "message_expiry": 604_800_000_000},
            "partitions": [EMPTY_PARTITION | {"id": 0, "segments_count": ...}],
        },
        "shop/sales --option segment_sise=1MiB --expiry soon",
        Exit.USAGE,
        "h or days; segment_sise is not known, did you mean segment_size (`headrace options`",
    ),
    "topic update": Leaf(
        "shop/orders --name sales --expiry never",
        ("The topic shop/orders is changed.",),
        {"topic": "shop/orders", "name": "sales", "options": {"message_expiry": "never"}},
        "shop/orders",
        Exit.USAGE,
        "say what is to change",
    ),
    "topic delete": Leaf(
        "shop/orders --yes",
        ("The topic shop/orders is deleted.",),
        {"topic": "shop/orders", "is_deleted": True},
        "shop/orders",
        Exit.USAGE,
        f"delete the topic shop/orders with 2 partitions and 3 messages: {NEEDS_YES}",
    ),
    "topic purge": Leaf(
        "shop/orders --yes",
        ("The topic shop/orders is empty now.",),
        {"topic": "shop/orders", "is_purged": True},
        "shop/nothing --yes",
        Exit.NOT_FOUND,
        NO_TOPIC,
    ),
    "partition list": Leaf(
        "shop/orders",
        ("id", "current offset"),
        [PARTITION, EMPTY_PARTITION],
        "shop/nothing",
        Exit.NOT_FOUND,
        NO_TOPIC,
    ),
    "partition create": Leaf(
        "shop/orders 2",
        ("2 partitions added to shop/orders.",),
        {"topic": "shop/orders", "created_count": 2},
        "shop/nothing 2",
        Exit.NOT_FOUND,
        NO_TOPIC,
    ),
    "partition delete": Leaf(
        "shop/orders 1 --yes",
        ("1 partition removed from shop/orders.",),
        {"topic": "shop/orders", "deleted_count": 1},
        "shop/orders 2",
        Exit.USAGE,
        f"delete 2 partitions of shop/orders with 3 messages: {NEEDS_YES}",
    ),
    "node accept-time": Leaf(
        "",
        ("The clock is not ahead of what the node goes by: there is nothing to accept.",),
        {"before_at": ..., "after_at": ...},
        "--username ada --password secret-of-ada",
        Exit.AUTH,
        "it needs manage_servers or read_servers everywhere",
    ),
    "node get": Leaf(
        "",
        ("shards", "1", "partitions", "2"),
        {
            "name": "headrace",
            "profile": "dev",
            "shards_count": 1,
            "missing_shards": [],
            "commit": ...,
            "lag": 0,
            "partitions_count": 2,
            "segments_count": 2,
            "messages_count": 3,
            "messages_size_bytes": ...,
            "connections_count": ...,
            "cpu_percent": ...,
            "memory_bytes": ...,
            "threads_count": ...,
            "journal_used_bytes": ...,
            "journal_bytes": ...,
            "drops_count": 0,
        },
        "--username ada --password secret-of-ada",
        Exit.AUTH,
        "it needs manage_servers or read_servers everywhere",
    ),
    "node shards": Leaf(
        "",
        ("process id", "image age", "journal used"),
        {
            "shards_count": 1,
            "missing_shards": [],
            "commit": ...,
            "shards": [
                {
                    "shard": 0,
                    "process_id": ...,
                    "cpus": None,
                    "cpu_percent": ...,
                    "memory_bytes": ...,
                    "partitions_count": 2,
                    "messages_count": 3,
                    "connections_count": ...,
                    "lag": 0,
                    "image_age_micros": 0,
                    "journal_used_bytes": ...,
                    "journal_bytes": ...,
                    "waiting_count": 0,
                    "drops_count": 0,
                }
            ],
            "lanes": [],
            "drops": [],
        },
        "--username ada --password secret-of-ada",
        Exit.AUTH,
        "it needs manage_servers or read_servers everywhere",
    ),
    "node reconcile": Leaf(
        "",
        ("wanted", "actual", "parked"),
        {
            "revision": ...,
            "missing_shards": [],
            "shards": [
                {
                    "shard": 0,
                    "revision": ...,
                    "passed_revision": ...,
                    "is_passing": False,
                    "wanted_count": 2,
                    "actual_count": 2,
                    "routed_count": 0,
                    "staged_count": 0,
                    "tombstoned_count": 0,
                    "failures_count": 0,
                    "doubted_count": 0,
                    "parked_count": 0,
                }
            ],
            "tombstoned": [],
            "failures": [],
        },
        "--username ada --password secret-of-ada",
        Exit.AUTH,
        "it needs manage_servers or read_servers everywhere",
    ),
    "segment delete": Leaf(
        "shop/orders 0 1 --yes",
        ("Deleted up to 1 segment of shop/orders, partition 0.",),
        {"topic": "shop/orders", "partition": 0, "segments_count_max": 1},
        "shop/orders 7 1 --yes",
        Exit.NOT_FOUND,
        "partition not found",
    ),
    "message send": Leaf(
        "shop/orders four five --partition 0",
        ("offset", "3"),
        {"topic": "shop/orders", "partition": 0, "offset": 3, "count": 2},
        "shop/nothing four",
        Exit.NOT_FOUND,
        NO_TOPIC,
    ),
    "message poll": Leaf(
        "shop/orders 0 --offset 2",
        ("offset", "three"),
        [MESSAGE],
        "shop/orders 7",
        Exit.NOT_FOUND,
        "partition not found",
    ),
    "message flush": Leaf(
        "shop/orders 0 --sync",
        ("Partition 0 of shop/orders is written out.",),
        {"topic": "shop/orders", "partition": 0, "is_synced": True},
        "shop/orders 7",
        Exit.NOT_FOUND,
        "partition not found",
    ),
    "group list": Leaf(
        "shop/orders", ("billing",), [GROUP], "shop/nothing", Exit.NOT_FOUND, NO_TOPIC
    ),
    "group get": Leaf(
        "shop/orders billing",
        ("billing", "members"),
        GROUP | {"members": []},
        "shop/orders nothing",
        Exit.NOT_FOUND,
        NO_GROUP,
    ),
    "group create": Leaf(
        "shop/orders audit",
        ("name", "audit"),
        GROUP | {"name": "audit"},
        "shop/orders billing",
        Exit.FAILED,
        "consumer group name already exists",
    ),
    "group delete": Leaf(
        "shop/orders billing --yes",
        ("The group billing is deleted.",),
        {"topic": "shop/orders", "group": "billing", "is_deleted": True},
        "shop/orders nothing --yes",
        Exit.NOT_FOUND,
        NO_GROUP,
    ),
    "group join": Leaf(
        "shop/orders billing",
        ("partitions", "0, 1"),
        {"topic": "shop/orders", "group": "billing", "partitions": [0, 1], "generation": ...},
        "shop/orders nothing",
        Exit.NOT_FOUND,
        NO_GROUP,
    ),
    "group lag": Leaf(
        "shop/orders billing",
        ("lag", "stored offset"),
        {
            "topic": "shop/orders",
            "group": "billing",
            "lag": 2,
            "held_bytes": 0,
            "partitions": [
                {
                    "partition": 0,
                    "current_offset": 2,
                    "stored_offset": 0,
                    "lag": 2,
                    "held_bytes": 0,
                },
                {
                    "partition": 1,
                    "current_offset": None,
                    "stored_offset": None,
                    "lag": 0,
                    "held_bytes": 0,
                },
            ],
        },
        "shop/orders nothing",
        Exit.NOT_FOUND,
        NO_GROUP,
    ),
    "offset get": Leaf(
        "shop/orders 0 --group billing",
        ("stored offset", "current offset"),
        {
            "topic": "shop/orders",
            "partition": 0,
            "group": "billing",
            "stored_offset": 0,
            "current_offset": 2,
        },
        "shop/orders 1 --consumer report",
        Exit.NOT_FOUND,
        "no offset is stored for consumer report in shop/orders, partition 1",
    ),
    "offset set": Leaf(
        "shop/orders 0 2 --consumer report",
        ("The offset of consumer report in shop/orders, partition 0 is 2.",),
        {"topic": "shop/orders", "partition": 0, "consumer": "report", "stored_offset": 2},
        "shop/orders 0 2",
        Exit.USAGE,
        "--consumer or by --group, one of the two",
    ),
    "offset delete": Leaf(
        "shop/orders 0 --consumer report --yes",
        ("The offset of consumer report in shop/orders, partition 0 is forgotten.",),
        {"topic": "shop/orders", "partition": 0, "consumer": "report", "is_deleted": True},
        "shop/orders 1 --consumer report --yes",
        Exit.NOT_FOUND,
        "consumer offset not found",
    ),
    "user list": Leaf(
        "",
        ("iggy", "ada", "active"),
        [ROOT, USER],
        "--username ada --password wrong",
        Exit.AUTH,
        "invalid credentials",
    ),
    "user get": Leaf(
        "ada",
        ("ada", "active"),
        USER | {"permissions": []},
        "nobody",
        Exit.NOT_FOUND,
        "resource not found",
    ),
    "user create": Leaf(
        "grace secret-of-grace --inactive --global r_str --stream shop:p_msg#orders:s_msg",
        ("grace", "inactive", "read_streams", "poll_messages", "send_messages"),
        USER
        | {
            "name": "grace",
            "status": "inactive",
            "permissions": [
                {"stream_id": None, "topic_id": None, "granted": ["read_streams"]},
                {"stream_id": ..., "topic_id": None, "granted": ["poll_messages"]},
                {"stream_id": ..., "topic_id": ..., "granted": ["send_messages"]},
            ],
        },
        "ada secret-of-ada",
        Exit.FAILED,
        "user already exists",
    ),
    "user delete": Leaf(
        "ada --yes",
        ("The user ada is deleted.",),
        {"user": "ada", "is_deleted": True},
        "ada",
        Exit.USAGE,
        f"delete the user ada: {NEEDS_YES}",
    ),
    "user name": Leaf(
        "ada grace",
        ("The user ada is now named grace.",),
        {"user": "ada", "name": "grace"},
        "nobody grace",
        Exit.NOT_FOUND,
        "resource not found",
    ),
    "user status": Leaf(
        "ada inactive",
        ("The user ada is inactive now.",),
        {"user": "ada", "status": "inactive"},
        "ada asleep",
        Exit.USAGE,
        "'asleep' is not one of 'active', 'inactive'",
    ),
    "user password": Leaf(
        "ada secret-of-ada another-secret",
        ("The password of ada is changed.",),
        {"user": "ada", "is_changed": True},
        "ada wrong another-secret",
        Exit.AUTH,
        "invalid credentials",
    ),
    "user permissions": Leaf(
        "ada --global p_msg",
        ("The permissions of ada are replaced.",),
        {
            "user": "ada",
            "permissions": [{"stream_id": None, "topic_id": None, "granted": ["poll_messages"]}],
        },
        "ada --global read_strems,p_msg,fly",
        Exit.USAGE,
        "read_strems, fly: not a permission everywhere; did you mean read_streams?",
    ),
    "pat list": Leaf(
        "",
        ("laptop", "never"),
        [{"name": "laptop", "expires_at": 0}],
        "--token nonsense",
        Exit.AUTH,
        "invalid personal access token",
    ),
    "pat create": Leaf(
        "phone --expiry 30days",
        ("name", "phone", "token"),
        {"name": "phone", "token": ...},
        "laptop",
        Exit.FAILED,
        "personal access token already exists",
    ),
    "pat delete": Leaf(
        "laptop --yes",
        ("The token laptop is revoked.",),
        {"name": "laptop", "is_deleted": True},
        "phone --yes",
        Exit.NOT_FOUND,
        "resource not found",
    ),
    "client list": Leaf(
        "",
        ("transport", "tcp"),
        [CLIENT, CLIENT],
        " ".join(NOWHERE),
        Exit.UNAVAILABLE,
        NOBODY,
    ),
    "client get": Leaf(
        "{owner}",
        ("transport", "tcp"),
        CLIENT | {"groups": []},
        "4294967295",
        Exit.NOT_FOUND,
        "client not found",
    ),
    "cluster metadata": Leaf(
        "",
        ("leader", "healthy"),
        {
            "name": ...,
            "nodes": [
                {
                    "name": ...,
                    "ip": "127.0.0.1",
                    "tcp_port": ...,
                    "http_port": ...,
                    "websocket_port": ...,
                    "quic_port": ...,
                    "role": "leader",
                    "status": "healthy",
                }
            ],
        },
        " ".join(NOWHERE),
        Exit.UNAVAILABLE,
        NOBODY,
    ),
    "context list": Leaf(
        "",
        ("default", "prod", "10.0.0.7:8090", "***"),
        [DEFAULT_CONTEXT, CONTEXT],
        "--no-such",
        Exit.USAGE,
        "No such option",
    ),
    "context show": Leaf(
        "prod",
        ("prod", "10.0.0.7:8090", "***"),
        CONTEXT | {"file": ...},
        "nothing",
        Exit.NOT_FOUND,
        "no context 'nothing'; there are default, prod",
    ),
    "context create": Leaf(
        "test --address 127.0.0.1:9 --token secret --use",
        ("test", "127.0.0.1:9", "***"),
        DEFAULT_CONTEXT | {"name": "test", "address": "127.0.0.1:9", "token": "***"},
        "prod",
        Exit.FAILED,
        "there is a context prod already",
    ),
    "context use": Leaf(
        "prod",
        ("The current context is prod, at 10.0.0.7:8090.",),
        {"current": "prod", "address": "10.0.0.7:8090"},
        "nothing",
        Exit.NOT_FOUND,
        "no context 'nothing'",
    ),
    "context delete": Leaf(
        "prod --yes",
        ("The context prod is deleted.",),
        {"context": "prod", "is_deleted": True},
        "prod",
        Exit.USAGE,
        f"delete the context prod: {NEEDS_YES}",
    ),
    "login": Leaf(
        "--expiry 1h",
        ("iggy is logged in at ", " UTC, in the context default."),
        {
            "context": "default",
            "address": ...,
            "username": "iggy",
            "token_name": ...,
            "expires_at": ...,
        },
        "--username ada --password wrong",
        Exit.AUTH,
        "invalid credentials",
    ),
    "logout": Leaf(
        "",
        ("iggy is logged out of ",),
        {"context": "default", "address": ..., "token_name": ..., "is_revoked": True},
        "--no-such",
        Exit.USAGE,
        "No such option",
        before=("login",),
    ),
    "session status": Leaf(
        "",
        ("iggy", "cli-"),
        {
            "context": "default",
            "address": ...,
            "username": "iggy",
            "token_name": ...,
            "expires_at": ...,
        },
        "--no-such",
        Exit.USAGE,
        "No such option",
        before=("login",),
    ),
}
