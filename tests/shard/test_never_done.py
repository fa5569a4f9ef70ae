"""Requests for what the host cannot do: answered when that is known, and others are not held up."""

import pytest

from headrace.ports.host import SnapshotMade
from headrace.wire.commands import streams, system, topics
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import SnapshotCompression, SnapshotType
from headrace.wire.replies import read_answer
from tests.shard.whole import Client, Whole

FLUSH = topics.FlushUnsavedBuffer("s", "t", 0, fsync=True)
SNAPSHOT = system.GetSnapshot(SnapshotCompression.STORED, (SnapshotType.TEST,))


def refusal_of(frame: bytes) -> Code:
    with pytest.raises(RefusedError) as refused:
        read_answer(frame)
    return refused.value.code


def ask_for_snapshot(client: Client) -> None:
    client.post(client.make_frame(system.GET_SNAPSHOT, SNAPSHOT))


def test_a_flush_of_files_that_fail_is_refused() -> None:
    """O2.4: what is not durable is not said to be."""
    node = Whole()
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    client.send("s", "t", [b"unsaved"])
    node.segments.failing = "input/output error"
    client.post(client.make_frame(topics.FLUSH_UNSAVED_BUFFER, FLUSH))
    node.tick()
    assert refusal_of(client.take()) == Code.CANNOT_SYNC_FILE


def test_a_snapshot_that_cannot_be_made_is_refused() -> None:
    node = Whole()
    node.is_archiving = False
    client = node.client()
    ask_for_snapshot(client)
    node.step(SnapshotMade(node.unmade.pop().token, None))
    assert refusal_of(client.take()) == Code.SNAPSHOT_FILE_COMPLETION_FAILED


def test_only_a_few_snapshots_are_made_at_a_time() -> None:
    node = Whole()
    node.is_archiving = False
    clients = [node.client() for _ in range(5)]
    for client in clients:
        ask_for_snapshot(client)
    assert [client.has_answer() for client in clients] == [False] * 4 + [True]
    assert refusal_of(clients[4].take()) == Code.TRANSIENT_NOT_ACCEPTED
    for made in list(node.unmade):
        node.step(made)
    assert all(read_answer(client.take()) for client in clients[:4])
