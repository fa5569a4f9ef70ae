import pytest

from headrace.base.ids import Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.base.limits import FRAME_BYTES_MAX, GIB, MIB
from headrace.metadata import topic_changes
from headrace.metadata.lookups import count
from headrace.wire.codec import encode
from headrace.wire.commands import internal, topics
from headrace.wire.errors import Code, CorruptError
from headrace.wire.numbers import Compression, Operation
from headrace.wire.topic_options import UNLIMITED
from tests.metadata.stage import Stage, code_of, topic_options


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.create_stream("shop")
    return stage


def group_of(stream: int, topic: int, partition: int) -> int:
    return pack_namespace(Namespace(StreamId(stream), TopicId(topic), PartitionId(partition)))


def test_a_topic_is_answered_with_its_details(stage: Stage) -> None:
    details = stage.create_topic(partitions=2, options=topic_options(message_expiry="1 h"))
    assert (details.topic.id, details.topic.name, details.topic.partitions_count) == (
        0,
        "orders",
        2,
    )
    assert details.topic.message_expiry == 3600 * 1_000_000
    assert details.topic.max_topic_size == UNLIMITED
    assert details.topic.compression == Compression.NONE
    assert [option.key for option in details.topic.explicit] == ["message_expiry"]
    assert [part.id for part in details.partitions] == [0, 1]
    assert all(part.created_at == details.topic.created_at for part in details.partitions)
    assert not any(part.messages_count or part.segments_count for part in details.partitions)


def test_a_topic_may_have_no_partition(stage: Stage) -> None:
    assert stage.create_topic(partitions=0).partitions == ()
    assert stage.machine.target().partitions == ()


def test_numbers_of_topics_are_the_lowest_free_of_their_stream(stage: Stage) -> None:
    stage.create_stream("other")
    for name in "abc":
        stage.create_topic(name=name)
    assert stage.create_topic("other", "a").topic.id == 0
    stage.delete_topic("shop", "a")
    assert stage.create_topic(name="d").topic.id == 0
    assert stage.create_topic(name="e").topic.id == 3


def test_a_number_that_comes_back_is_another_partition(stage: Stage) -> None:
    stage.create_topic(partitions=2)
    first = stage.machine.target().partitions
    stage.delete_topic("shop", "orders")
    stage.create_topic(partitions=2)
    second = stage.machine.target().partitions
    assert [part.group for part in first] == [part.group for part in second]
    assert all(
        after.created_revision > before.created_revision
        for before, after in zip(first, second, strict=True)
    )


def test_partitions_come_and_go_at_the_end(stage: Stage) -> None:
    stage.create_topic(partitions=2)
    stage.purge_topic("shop", "orders")
    stage.create_partitions("shop", "orders", 2)
    before = stage.machine.target().partitions
    assert [part.group for part in before] == [group_of(0, 0, number) for number in range(4)]
    assert [part.purge_generation for part in before] == [1, 1, 0, 0]
    assert before[1].created_revision < before[2].created_revision
    stage.delete_partitions("shop", "orders", 3)
    stage.create_partitions("shop", "orders", 1)
    after = stage.machine.target().partitions
    assert after[0] == before[0]
    assert after[1].created_revision > before[3].created_revision
    assert len(after) == 2


@pytest.mark.parametrize("wanted", [0, 1001])
def test_no_partition_or_too_many_at_once(stage: Stage, wanted: int) -> None:
    stage.create_topic()
    for call in (stage.create_partitions, stage.delete_partitions):
        assert code_of(call, "shop", "orders", wanted) == Code.TOO_MANY_PARTITIONS


def test_more_partitions_than_there_are_cannot_go(stage: Stage) -> None:
    stage.create_topic(partitions=3)
    assert code_of(stage.delete_partitions, "shop", 0, 4) == Code.INVALID_PARTITIONS_COUNT
    stage.delete_partitions("shop", 0, 3)
    assert stage.machine.target().partitions == ()


def test_the_numbers_of_partitions_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_changes, "PARTITIONS_PER_TOPIC_MAX", 4)
    stage.create_topic(partitions=3)
    refused = code_of(stage.create_partitions, "shop", 0, 2)
    assert refused == Code.PARTITION_ID_SPACE_EXHAUSTED
    stage.create_partitions("shop", 0, 1)


def test_space_taken_beforehand_is_bounded(stage: Stage) -> None:
    stage.create_topic(partitions=64, options=topic_options(preallocate_segments=True))
    assert code_of(stage.create_partitions, "shop", 0, 1) == Code.INVALID_PARTITIONS_COUNT


def test_topics_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_changes, "TOPICS_PER_STREAM_MAX", 3)
    for number in range(3):
        stage.create_topic(name=f"t{number}", partitions=0)
    assert code_of(stage.create_topic, name="more") == Code.TOO_MANY_TOPICS


def test_names_of_topics(stage: Stage) -> None:
    stage.create_topic(name="a")
    stage.create_topic(name="b")
    assert code_of(stage.create_topic, name="a") == Code.TOPIC_NAME_ALREADY_EXISTS
    assert code_of(stage.update_topic, "shop", "b", "a") == Code.TOPIC_NAME_ALREADY_EXISTS
    assert code_of(stage.create_topic, name="a\t") == Code.INVALID_TOPIC_NAME
    assert code_of(stage.update_topic, "shop", "b", "\r") == Code.INVALID_TOPIC_NAME
    stage.update_topic("shop", "b", "c")
    assert stage.create_topic(name="b").topic.id == 2


def test_the_missing_level_is_named(stage: Stage) -> None:
    for of_topic in (stage.delete_topic, stage.purge_topic):
        assert code_of(of_topic, "none", 0) == Code.STREAM_ID_NOT_FOUND
        assert code_of(of_topic, "shop", 0) == Code.TOPIC_ID_NOT_FOUND
    for of_partitions in (stage.create_partitions, stage.delete_partitions):
        assert code_of(of_partitions, 9, 0, 1) == Code.STREAM_ID_NOT_FOUND
        assert code_of(of_partitions, 0, "none", 1) == Code.TOPIC_ID_NOT_FOUND
    assert code_of(stage.update_topic, 9, 0, "x") == Code.STREAM_ID_NOT_FOUND
    assert code_of(stage.update_topic, 0, 0, "x") == Code.TOPIC_ID_NOT_FOUND
    assert code_of(stage.create_topic, "none") == Code.STREAM_ID_NOT_FOUND


def test_an_update_changes_what_is_given(stage: Stage) -> None:
    stage.create_topic(options=topic_options(message_expiry=5_000_000))
    revision = stage.machine.revision
    stage.update_topic("shop", "orders", "orders")
    assert stage.machine.revision == revision
    stage.update_topic(
        "shop",
        "orders",
        "orders",
        topic_options(max_topic_size="2 GiB", compression_algorithm="gzip"),
    )
    assert stage.machine.revision > revision
    topic = stage.topic()
    assert topic.settings.compression == Compression.GZIP
    assert topic.settings.message_expiry == 5_000_000
    assert [option.key for option in topic.explicit] == [
        "compression_algorithm",
        "max_topic_size",
        "message_expiry",
    ]
    assert len(topic.explicit) + len(topic.derived) == 9


def test_zero_leaves_what_a_topic_has(stage: Stage) -> None:
    stage.create_topic(options=topic_options(message_expiry=5_000_000, max_topic_size="2 GiB"))
    stage.update_topic("shop", "orders", "sales", topic_options(message_expiry=0, max_topic_size=0))
    settings = stage.topic("shop", "sales").settings
    assert (settings.message_expiry, settings.max_topic_size) == (5_000_000, 2 * GIB)


def test_an_update_that_is_refused_changes_nothing(stage: Stage) -> None:
    stage.create_topic()
    before = stage.topic().settings
    small = topic_options(max_topic_size=1)
    assert code_of(stage.update_topic, 0, 0, "new", small) == Code.INVALID_TOPIC_SIZE
    # Past admission, as if a primary had let them through.
    fixed = topics.UpdateTopic(0, 0, "new", topic_options(segment_size=MIB))
    assert code_of(stage.run, topics.UPDATE_TOPIC, fixed) == Code.UNSUPPORTED_OPTION_KEY
    default = topics.UpdateTopic(0, 0, "new", topic_options(max_topic_size="server_default"))
    assert code_of(stage.run, topics.UPDATE_TOPIC, default) == Code.INVALID_OPTION_VALUE
    topic = stage.topic(0, 0)
    assert (topic.name, topic.settings) == ("orders", before)


def test_what_partitions_must_be(stage: Stage) -> None:
    options = topic_options(
        message_expiry=7,
        max_topic_size=8 * GIB,
        segment_size=MIB,
        durability="replicated",
        consumer_offset_durability="persisted",
    )
    stage.create_topic(partitions=4, options=options)
    (first, *_rest) = stage.machine.target().partitions
    assert (first.is_persisted, first.is_offset_persisted) == (False, True)
    assert (first.segment_bytes, first.message_expiry) == (MIB, 7)
    assert first.bytes_max == 2 * GIB
    assert first.retention_consumers == "server_default"
    stage.create_partitions("shop", "orders", 996)
    # Each partition keeps room for a whole segment.
    assert stage.machine.target().partitions[0].bytes_max == MIB + FRAME_BYTES_MAX


def test_no_limit_is_zero(stage: Stage) -> None:
    stage.create_topic(partitions=1)
    (part,) = stage.machine.target().partitions
    assert (part.message_expiry, part.bytes_max) == (0, 0)
    assert (part.is_persisted, part.is_offset_persisted) == (True, True)


def test_the_view_is_ordered_and_kept_while_nothing_changes(stage: Stage) -> None:
    stage.create_stream("b")
    stage.create_topic("b", "y", 2)
    stage.create_topic("b", "x", 2)
    stage.create_topic("shop", "z", 2)
    target = stage.machine.target()
    numbers = [part.group for part in target.partitions]
    assert numbers == sorted(numbers)
    assert target.revision == stage.machine.revision
    stage.create_stream("c")
    assert stage.machine.target() is target
    stage.purge_topic("shop", "z")
    changed = stage.machine.target()
    assert changed.revision > target.revision
    assert changed.partitions[2:] == target.partitions[2:]
    assert changed.partitions[:2] != target.partitions[:2]


def test_bytes_that_no_primary_wrote_are_damage(stage: Stage) -> None:
    body = encode(
        internal.CREATE_TOPIC_WITH_ASSIGNMENTS,
        internal.CreateTopicWithAssignments(topics.CreateTopic("shop", 1, "t"), (), ()),
    )
    with pytest.raises(CorruptError, match="without option"):
        stage.raw(Operation.CREATE_TOPIC_WITH_ASSIGNMENTS, body)
    with pytest.raises(CorruptError):
        stage.raw(Operation.CREATE_TOPIC_WITH_ASSIGNMENTS, body[:-1])
    assigned = encode(
        internal.CREATE_TOPIC_WITH_ASSIGNMENTS,
        internal.CreateTopicWithAssignments(
            topics.CreateTopic("shop", 1, "t"), (), (internal.PartitionAssignment(0, 0),)
        ),
    )
    with pytest.raises(CorruptError, match="assigned"):
        stage.raw(Operation.CREATE_TOPIC_WITH_ASSIGNMENTS, assigned)
    assert count(stage.state).topics == 0
