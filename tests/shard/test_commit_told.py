"""What replies say of the metadata log is a position of that log: clients remember the highest.

A client sends it along when it attaches to another node, which waits for it. The position of a
partition's log, which may be far ahead, would have it wait for ever.
"""

from headrace.base.limits import KIB, MIB
from headrace.metadata.admission import TopicDefaults
from headrace.wire.commands import streams, topics
from headrace.wire.errors import Code
from headrace.wire.numbers import Operation
from headrace.wire.replies import REPLY
from tests.shard.whole import Client, Whole, hold

CUT = topics.DeleteSegments("s", "t", 0, 1)


def far_ahead(count: int = 30) -> tuple[Whole, Client]:
    """Give a partition of several segments whose log is ahead of that of the metadata."""
    node = Whole(topic_defaults=TopicDefaults(segment_size=MIB))
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    for _ in range(count):
        client.send("s", "t", [b"x" * 100 * KIB])
    shard = node.shard
    (replica,) = shard.data_plane.groups.values()
    assert replica.commit_min > shard.metadata.commit
    return node, client


def test_segments_that_are_deleted_tell_of_the_metadata_log() -> None:
    node, client = far_ahead()
    frame = client.make_frame(topics.DELETE_SEGMENTS, CUT)
    for _ in range(2):  # the second time it is answered from memory
        reply = REPLY.decode(client.send_frame(frame))
        assert (reply.operation, reply.status) == (Operation.DELETE_SEGMENTS, 0)
        assert reply.commit <= node.shard.metadata.commit


def test_a_refusal_tells_of_the_metadata_log() -> None:
    node, client = far_ahead()
    data = node.shard.settings.data
    hold(node)
    for _ in range(data.pipeline_max + data.queue_max):
        client.post(client.send_frame_of("s", "t", [b"x"]))
    assert not client.has_answer()
    reply = REPLY.decode(client.send_frame(client.make_frame(topics.DELETE_SEGMENTS, CUT)))
    assert (reply.operation, reply.status) == (
        Operation.DELETE_SEGMENTS,
        Code.TRANSIENT_NOT_ACCEPTED,
    )
    assert reply.commit <= node.shard.metadata.commit


def test_metadata_that_changes_tells_its_own_position() -> None:
    node, client = far_ahead()
    made = client.make_frame(streams.CREATE_STREAM, streams.CreateStream("other"))
    assert REPLY.decode(client.send_frame(made)).commit == node.shard.metadata.commit
    again = client.make_frame(streams.CREATE_STREAM, streams.CreateStream("other"))
    assert REPLY.decode(client.send_frame(again)).commit == node.shard.metadata.commit
