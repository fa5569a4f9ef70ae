"""What the node tells of itself, through the released SDK."""

import io
import os
import socket
import zipfile
from datetime import timedelta

import pytest
from apache_iggy import SendMessage

from headrace import __version__
from headrace.wire.commands.clients import GET_CLIENT, GET_ME, GetClient
from headrace.wire.commands.system import (
    GET_CLUSTER_METADATA,
    GET_SNAPSHOT,
    GetSnapshot,
)
from headrace.wire.errors import Code
from headrace.wire.numbers import NodeStatus, Role, SnapshotCompression, SnapshotType
from tests.interop.answers import refused, told
from tests.interop.conftest import Connect
from tests.interop.test_topics import DEFAULTS
from tests.node import Node

pytestmark = pytest.mark.slow


async def test_stats(node: Node, connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", 2)
    await client.create_consumer_group(stream, "topic", "group")
    before = await client.get_stats()
    await client.send_messages(stream, "topic", 1, [SendMessage("x" * 1000)])
    stats = await client.get_stats()
    assert stats.messages_count == before.messages_count + 1
    assert 1000 < stats.messages_size_bytes - before.messages_size_bytes < 2000
    assert stats.streams_count >= 1
    assert stats.topics_count >= 1
    assert stats.partitions_count >= 2
    assert stats.segments_count >= 2
    assert stats.clients_count >= 1
    assert stats.consumer_groups_count >= 1
    assert stats.process_id in node.pids
    assert stats.hostname == socket.gethostname()
    assert stats.iggy_server_version == __version__
    semver = stats.iggy_server_semver or 0
    assert f"{semver // 1_000_000}.{semver // 1000 % 1000}.{semver % 1000}" == __version__
    assert stats.kernel_version == os.uname().release
    assert stats.os_name != ""
    assert stats.os_version is not None
    assert 0 < stats.memory_usage < stats.total_memory
    assert 0 < stats.available_memory <= stats.total_memory
    assert 0 < stats.free_disk_space <= stats.total_disk_space
    assert timedelta(0) < stats.run_time < timedelta(hours=1)
    assert stats.start_time > 1_700_000_000_000_000
    assert stats.threads_count >= 1
    assert stats.cpu_usage >= 0
    assert stats.total_cpu_usage >= 0
    assert stats.written_bytes > 0
    assert stats.read_bytes >= 0
    assert stats.cache_metrics == {}


async def test_options(connect: Connect) -> None:
    client = await connect()
    described = await client.describe_options("topic")
    ours = {"retention_consumers": "server_default"}  # not filled in when a topic is made
    assert {each.key: _plain(each.default_value) for each in described} == DEFAULTS | ours
    assert {each.kind for each in described} == {"string", "uint64", "uint32", "bool"}
    assert all(each.description for each in described)
    assert await client.describe_options("stream") == []
    assert await client.describe_options(scope="user") == []
    with pytest.raises(ValueError, match="unknown options scope"):
        await client.describe_options("node")


def _plain(value: object) -> object:
    return getattr(value, "value", None)


async def test_cluster_metadata(node: Node, connect: Connect) -> None:
    """The node names itself as the leader, so that a client stays with it.

    Behind its HTTP port nothing but a ping is served, so no client is sent there.
    """
    client = await connect()
    told_of = GET_CLUSTER_METADATA.decode_reply(await client.send_binary_request(12, b""))
    (only,) = told_of.nodes
    assert node.http.port > 0
    assert (only.ip, only.tcp_port) == ("127.0.0.1", node.tcp.port)
    assert (only.http_port, only.quic_port, only.websocket_port) == (0, 0, 0)
    assert (only.role, only.status) == (Role.LEADER, NodeStatus.HEALTHY)


async def test_clients(connect: Connect) -> None:
    client = await connect()
    me = GET_ME.decode_reply(await client.send_binary_request(20, b""))
    found = await client.send_binary_request(
        21, GET_CLIENT.encode_request(GetClient(me.client.client_id))
    )
    assert GET_CLIENT.decode_reply(found) == me
    nobody = GET_CLIENT.encode_request(GetClient(4_000_000_000))
    assert await client.send_binary_request(21, nobody) == b""


@pytest.mark.parametrize("compression", [SnapshotCompression.STORED, SnapshotCompression.DEFLATED])
async def test_snapshot(connect: Connect, compression: SnapshotCompression) -> None:
    client = await connect()
    request = GET_SNAPSHOT.encode_request(GetSnapshot(compression, (SnapshotType.ALL,)))
    archive = zipfile.ZipFile(io.BytesIO(await client.send_binary_request(11, request)))
    assert archive.testzip() is None
    assert len(archive.namelist()) > 1
    one = GET_SNAPSHOT.encode_request(GetSnapshot(compression, (SnapshotType.PROCESS_LIST,)))
    archive = zipfile.ZipFile(io.BytesIO(await client.send_binary_request(11, one)))
    assert len(archive.namelist()) == 1


async def test_codes_that_are_not_known(connect: Connect) -> None:
    client = await connect()
    with refused(Code.INVALID_COMMAND):
        await client.send_binary_request(9999, b"anything")
    with refused(Code.FEATURE_UNAVAILABLE):
        await client.send_binary_request(code=99_999, payload=b"")
    with refused(Code.INVALID_COMMAND):
        await client.send_binary_request(200, b"\xff")  # a stream of no known kind
    assert told(await client.get_stats())["process_id"]
