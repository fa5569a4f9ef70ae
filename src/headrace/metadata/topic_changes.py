"""What ops do to topics and their partitions. Each refuses first and changes then.

Flow: apply.
"""

from headrace.base.limits import PARTITIONS_PER_TOPIC_MAX, TOPICS_PER_STREAM_MAX
from headrace.groups.changes import redeal
from headrace.metadata import resolve
from headrace.metadata.admission import (
    check_partitions_count,
    check_topic_size,
    check_updatable,
    is_preallocation_bounded,
)
from headrace.metadata.describe import detail_topic, nothing_stored
from headrace.metadata.grants import without_topic
from headrace.metadata.names import check_name
from headrace.metadata.settings import read_settings
from headrace.metadata.state import Partition, State, Topic
from headrace.wire.commands.internal import CreateTopicWithAssignments
from headrace.wire.commands.topics import (
    CREATE_TOPIC,
    CreatePartitions,
    DeletePartitions,
    DeleteTopic,
    PurgeTopic,
    UpdateTopic,
)
from headrace.wire.errors import Code, CorruptError, RefusedError
from headrace.wire.options import Options, make_options
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.topic_options import IGNORE_CONSUMERS, SERVER_DEFAULT, canonical_option


def create_topic(state: State, header: PrepareHeader, request: CreateTopicWithAssignments) -> bytes:
    """Add a topic whose options the primary has resolved; reply with its details."""
    if request.assignments:
        raise CorruptError("partitions of a new topic are assigned by their count")
    asked = request.request
    stream = resolve.stream(state, asked.stream)
    check_name(asked.name, Code.INVALID_TOPIC_NAME)
    if stream.topics.find(asked.name) is not None:
        raise RefusedError(Code.TOPIC_NAME_ALREADY_EXISTS, name=asked.name)
    if len(stream.topics) >= TOPICS_PER_STREAM_MAX:
        raise RefusedError(Code.TOO_MANY_TOPICS, limit=TOPICS_PER_STREAM_MAX)
    if asked.partitions_count:
        check_partitions_count(asked.partitions_count)
    settings = read_settings(asked.options, request.derived)
    revision = state.raise_revision()
    topic = Topic(
        id=stream.topic_keys.take(),
        stream_id=stream.id,
        name=asked.name,
        created_at=header.timestamp,
        explicit=asked.options,
        derived=request.derived,
        settings=settings,
        changed_revision=revision,
    )
    topic.partitions = [Partition(header.timestamp, revision)] * asked.partitions_count
    stream.topics.add(topic)
    state.note_change(topic)
    return CREATE_TOPIC.encode_reply(detail_topic(topic, nothing_stored))


def update_topic(state: State, _header: PrepareHeader, request: UpdateTopic) -> bytes:
    """Rename a topic, and change the options that are given."""
    stream = resolve.stream(state, request.stream)
    topic = resolve.topic(stream, request.topic)
    check_name(request.name, Code.INVALID_TOPIC_NAME)
    if stream.topics.is_taken(request.name, but_for=topic):
        raise RefusedError(Code.TOPIC_NAME_ALREADY_EXISTS, name=request.name)
    explicit, derived = _changed_options(topic, request.options)
    settings = read_settings(explicit, derived)
    check_topic_size(settings)
    stream.topics.rename(topic, request.name)
    topic.explicit, topic.derived = explicit, derived
    if settings != topic.settings:
        topic.settings = settings
        state.raise_revision()
        state.note_change(topic)
    return b""


def keeps_less(state: State, request: UpdateTopic) -> bool:
    """Return whether a change has a topic keep its messages for a shorter time, or fewer of them.

    One that no longer waits for its consumers keeps fewer, too.

    Raises:
        RefusedError: There is no such topic, or an option cannot be changed so.
    """
    topic = resolve.route(state, request.stream, request.topic)
    before, after = topic.settings, read_settings(*_changed_options(topic, request.options))
    is_ignoring = before.retention_consumers != after.retention_consumers == IGNORE_CONSUMERS
    return (
        after.message_expiry < before.message_expiry
        or after.max_topic_size < before.max_topic_size
        or is_ignoring
    )


def delete_topic(state: State, _header: PrepareHeader, request: DeleteTopic) -> bytes:
    """Remove a topic with its groups."""
    stream = resolve.stream(state, request.stream)
    topic = resolve.topic(stream, request.topic)
    forget_topic(state, topic)
    for user in state.users:
        granted = user.grants.streams.get(stream.id)
        if user.permissions is not None and granted is not None and topic.id in granted.topics:
            kept = without_topic(user.permissions, stream_id=stream.id, topic_id=topic.id)
            user.permit(kept)
    stream.topics.remove(topic)
    stream.topic_keys.give_back(topic.id)
    state.raise_revision()
    state.note_change(topic)
    return b""


def purge_topic(state: State, _header: PrepareHeader, request: PurgeTopic) -> bytes:
    """Empty every partition of a topic."""
    topic = resolve.route(state, request.stream, request.topic)
    state.raise_revision()
    purge(state, topic)
    return b""


def create_partitions(state: State, header: PrepareHeader, request: CreatePartitions) -> bytes:
    """Add partitions above the highest; every group deals anew."""
    topic = resolve.route(state, request.stream, request.topic)
    check_partitions_count(request.partitions_count)
    count = len(topic.partitions) + request.partitions_count
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise RefusedError(Code.PARTITION_ID_SPACE_EXHAUSTED, count=count)
    if not is_preallocation_bounded(topic.settings, count):
        raise RefusedError(Code.INVALID_PARTITIONS_COUNT, count=count)
    revision = state.raise_revision()
    topic.partitions += [Partition(header.timestamp, revision)] * request.partitions_count
    _partitions_changed(state, topic)
    return b""


def delete_partitions(state: State, _header: PrepareHeader, request: DeletePartitions) -> bytes:
    """Remove the highest partitions; every group deals anew."""
    topic = resolve.route(state, request.stream, request.topic)
    check_partitions_count(request.partitions_count)
    if request.partitions_count > len(topic.partitions):
        raise RefusedError(Code.INVALID_PARTITIONS_COUNT, count=request.partitions_count)
    del topic.partitions[-request.partitions_count :]
    state.raise_revision()
    _partitions_changed(state, topic)
    return b""


def purge(state: State, topic: Topic) -> None:
    """Begin a new history in every partition (MD-5)."""
    topic.partitions = [
        Partition(part.created_at, part.created_revision, part.purge_generation + 1)
        for part in topic.partitions
    ]
    state.note_change(topic)


def forget_topic(state: State, topic: Topic) -> None:
    """Strike the members of all groups of a topic that goes."""
    for group in topic.groups:
        state.forget_group(topic, group)


def _partitions_changed(state: State, topic: Topic) -> None:
    state.note_change(topic)
    for group in topic.groups:
        group.roster = redeal(group.roster, partitions_count=len(topic.partitions))


def _changed_options(topic: Topic, given: Options) -> tuple[Options, Options]:
    """Return both blocks of a topic with the given options among its own."""
    check_updatable(given)
    changed = {option.key: canonical_option(option).value for option in given}
    for key, field in changed.items():
        # The primary has put its default in place of this value, which it alone can know.
        if field.value == SERVER_DEFAULT:
            raise RefusedError(Code.INVALID_OPTION_VALUE, key=key)
    explicit = {option.key: option.value for option in topic.explicit}
    derived = tuple([option for option in topic.derived if option.key not in changed])
    return make_options({**explicit, **changed}), derived
