import pytest

from headrace.metadata import lookups, resolve
from headrace.metadata.describe import PartitionStats, nothing_stored
from headrace.wire.commands import groups, streams, topics, users
from headrace.wire.commands.groups import GetGroup, GetGroups, SyncGroup
from headrace.wire.commands.topics import GetTopic
from headrace.wire.errors import Code
from tests.metadata.stage import Stage, code_of


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.create_stream("bank")
    stage.create_stream("shop")
    stage.create_topic("shop", "orders", 2)
    stage.create_topic("shop", "parcels", 1)
    stage.create_group("shop", "orders", "billing")
    stage.join(5)
    return stage


def stats_of(namespace: int) -> PartitionStats | None:
    """Partition p of topic t holds 10 t + p + 1 messages of 100 bytes; one has no answer."""
    topic, partition = namespace >> 20 & 0xFFF, namespace & 0xFFFFF
    if topic == 0 and partition == 1:
        return None
    messages_count = 10 * topic + partition + 1
    return PartitionStats(
        segments_count=1,
        current_offset=messages_count - 1,
        size_bytes=100 * messages_count,
        messages_count=messages_count,
    )


def test_streams_add_up_their_partitions(stage: Stage) -> None:
    bank, shop = lookups.get_streams(stage.state, stats_of)
    assert (bank.id, bank.name, bank.messages_count) == (0, "bank", 0)
    assert (shop.topics_count, shop.messages_count, shop.size_bytes) == (2, 12, 1200)
    details = lookups.get_stream(stage.state, "shop", stats_of)
    assert details is not None
    assert details.stream == shop
    assert [(topic.name, topic.messages_count) for topic in details.topics] == [
        ("orders", 1),
        ("parcels", 11),
    ]
    assert details.topics == lookups.get_topics(stage.state, 1, stats_of)


def test_a_topic_shows_its_partitions(stage: Stage) -> None:
    details = lookups.get_topic(stage.state, GetTopic("shop", "orders"), stats_of)
    assert details is not None
    assert [part.messages_count for part in details.partitions] == [1, 0]
    assert [part.segments_count for part in details.partitions] == [1, 0]
    assert details.topic.size_bytes == 100


def test_what_is_not_there(stage: Stage) -> None:
    state = stage.state
    assert lookups.get_stream(state, "none", nothing_stored) is None
    assert lookups.get_topic(state, GetTopic("none", 0), nothing_stored) is None
    assert lookups.get_topic(state, GetTopic("shop", 9), nothing_stored) is None
    assert lookups.get_topics(state, 9, nothing_stored) == ()
    assert lookups.get_group(state, GetGroup("shop", "orders", "none")) is None
    assert code_of(lookups.get_group, state, GetGroup(9, 0, 0)) == Code.STREAM_ID_NOT_FOUND
    assert code_of(lookups.get_groups, state, GetGroups(9, 0)) == Code.STREAM_ID_NOT_FOUND
    assert code_of(lookups.get_groups, state, GetGroups(1, 9)) == Code.TOPIC_ID_NOT_FOUND
    for missing in (("shop", "orders", 9), ("shop", "none", 0), ("none", "orders", 0)):
        assert lookups.sync_group(state, SyncGroup(*missing), 5) is None
    assert lookups.sync_group(state, SyncGroup("shop", "orders", 0), 6) is None


def test_groups_show_their_members(stage: Stage) -> None:
    details = lookups.get_group(stage.state, GetGroup(1, 0, "billing"))
    assert details is not None
    assert details.members == (groups.Member(0, (0, 1)),)
    assert lookups.get_groups(stage.state, GetGroups("shop", "orders")) == (details.group,)


def test_replies_fit_the_wire(stage: Stage) -> None:
    """What reads give can be written and read back."""
    stream = lookups.get_stream(stage.state, "shop", stats_of)
    assert streams.GET_STREAM.decode_reply(streams.GET_STREAM.encode_reply(stream)) == stream
    topic = lookups.get_topic(stage.state, GetTopic(1, 0), stats_of)
    assert topics.GET_TOPIC.decode_reply(topics.GET_TOPIC.encode_reply(topic)) == topic
    group = lookups.get_group(stage.state, GetGroup(1, 0, 0))
    assert groups.GET_GROUP.decode_reply(groups.GET_GROUP.encode_reply(group)) == group
    user = lookups.get_user(stage.state, 0)
    assert users.GET_USER.decode_reply(users.GET_USER.encode_reply(user)) == user


def test_everything_is_counted(stage: Stage) -> None:
    assert lookups.count(stage.state) == lookups.Counts(
        streams=2, topics=2, partitions=3, consumer_groups=1, users=1
    )


@pytest.mark.parametrize("stream", [1, "shop"])
@pytest.mark.parametrize("topic", [0, "orders"])
def test_a_route_is_found_by_number_and_by_name(
    stage: Stage, stream: int | str, topic: int | str
) -> None:
    assert resolve.route(stage.state, stream, topic) is stage.topic()
    assert resolve.stream(stage.state, stream).name == "shop"


def test_a_route_names_the_missing_level(stage: Stage) -> None:
    assert code_of(resolve.route, stage.state, "none", 0) == Code.STREAM_ID_NOT_FOUND
    assert code_of(resolve.route, stage.state, "bank", 0) == Code.TOPIC_ID_NOT_FOUND


def test_root_shows_what_it_may_do(stage: Stage) -> None:
    found = lookups.get_user(stage.state, 0)
    assert found is not None
    assert found.permissions is not None
    everywhere = found.permissions.everywhere
    assert all(getattr(everywhere, key) for key in everywhere.__struct_fields__)
    assert found.permissions.streams == ()
