"""Files of partitions that are not here: deleted ones go, strange ones are kept (FM-11)."""

from headrace.ports.segments import SegmentFile
from headrace.wire.commands import topics
from tests.partitions.fake_files import FakeFiles
from tests.shard.test_node import poll, with_topic
from tests.shard.whole import Whole


def stored(node: Whole) -> dict[SegmentFile, bytes]:
    node.tick(20)
    return {file: bytes(data) for file, data in node.segments.logs.items()}


def put(files: FakeFiles, held: dict[SegmentFile, bytes]) -> None:
    for file, data in held.items():
        files.logs[file] = bytearray(data)


def test_files_of_a_deleted_partition_go_at_the_next_start() -> None:
    """A crash between the end of the partition and the removal of its files."""
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"gone"])
    held = stored(node)
    assert len(held) == 1
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    client.send("s", "t", [b"new"])
    node.tick(20)
    put(node.segments, held)
    for _ in range(2):
        node.crash()
        assert not set(held) & set(node.segments.logs)
        assert b"new" in bytes(poll(node.client(client=9)).batches)
    assert node.segments.quarantined == []
    assert node.shard.marks.counts.get("partitions.left_over_removed", 0) == 0


def test_files_that_metadata_has_not_seen_are_kept() -> None:
    """DK16: segments newer than both stores."""
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"one"])
    [(file, data)] = stored(node).items()
    strange = SegmentFile(file.namespace + 1, 99, 0, 0)
    put(node.segments, {strange: data})
    node.crash()
    assert list(node.segments.logs) == [file]
    assert node.segments.quarantined == [(strange, 0, data)]
    assert node.shard.marks.counts["partitions.orphaned"] == 1
    assert poll(node.client(client=9)).messages_count == 1


def test_stores_older_than_the_segments_give_no_offset_twice() -> None:
    """DK16: the partition is fenced until the right stores are back."""
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"one"])
    node.tick(20)
    older = [disk.image() for disk in node.disks]
    client.send("s", "t", [b"two"])
    held = stored(node)
    newer = [disk.image() for disk in node.disks]
    node.set_files(older)
    node.crash()
    [local] = node.shard.partitions.locals.values()
    assert local.fence is not None
    assert stored(node) == held
    node.set_files(newer)
    node.crash()
    assert poll(node.client(client=9)).messages_count == 2
