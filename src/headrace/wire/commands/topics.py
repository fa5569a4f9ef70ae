"""Topics, their partitions and segments."""

import msgspec

from headrace.wire.codec import (
    FLAG,
    NAME,
    NOTHING,
    U8,
    U32,
    U64,
    Counted,
    Enumerated,
    Headed,
    Maybe,
    Reader,
    Record,
)
from headrace.wire.commands.command import Command
from headrace.wire.identifiers import IDENTIFIER, Identifier
from headrace.wire.numbers import Compression, Operation
from headrace.wire.options import OPTIONS, SIZED_OPTIONS, Options


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as lists show it.

    `explicit` are the options that its creator sent, `derived` those that the server filled in.
    """

    id: int
    created_at: int
    partitions_count: int
    message_expiry: int
    compression: Compression
    max_topic_size: int
    size_bytes: int
    messages_count: int
    name: str
    explicit: Options = ()
    derived: Options = ()


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as its topic shows it."""

    id: int
    created_at: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int


class TopicDetails(msgspec.Struct, frozen=True):
    """A topic with its partitions."""

    topic: Topic
    partitions: tuple[Partition, ...]


class GetTopic(msgspec.Struct, frozen=True):
    """Asks for one topic."""

    stream: Identifier
    topic: Identifier


class GetTopics(msgspec.Struct, frozen=True):
    """Asks for the topics of a stream."""

    stream: Identifier


class CreateTopic(msgspec.Struct, frozen=True):
    """Adds a topic with a number of partitions, possibly none."""

    stream: Identifier
    partitions_count: int
    name: str
    options: Options = ()


class UpdateTopic(msgspec.Struct, frozen=True):
    """Renames a topic and changes the options that are given."""

    stream: Identifier
    topic: Identifier
    name: str
    options: Options = ()


class DeleteTopic(msgspec.Struct, frozen=True):
    """Removes a topic with its messages and groups."""

    stream: Identifier
    topic: Identifier


class PurgeTopic(msgspec.Struct, frozen=True):
    """Removes all messages of a topic; its offsets start again at 0."""

    stream: Identifier
    topic: Identifier


class CreatePartitions(msgspec.Struct, frozen=True):
    """Adds partitions to a topic."""

    stream: Identifier
    topic: Identifier
    partitions_count: int


class DeletePartitions(msgspec.Struct, frozen=True):
    """Removes partitions of a topic, the highest ids first."""

    stream: Identifier
    topic: Identifier
    partitions_count: int


class DeleteSegments(msgspec.Struct, frozen=True):
    """Removes the oldest sealed segments of a partition."""

    stream: Identifier
    topic: Identifier
    partition_id: int
    segments_count: int


class FlushUnsavedBuffer(msgspec.Struct, frozen=True):
    """Asks for a partition's memory to be written, and synced if `fsync` is set."""

    stream: Identifier
    topic: Identifier
    partition_id: int
    fsync: bool


TOPIC = Record(
    Topic,
    id=U32,
    created_at=U64,
    partitions_count=U32,
    message_expiry=U64,
    compression=Enumerated(U8, Compression),
    max_topic_size=U64,
    size_bytes=U64,
    messages_count=U64,
    name=NAME,
    explicit=SIZED_OPTIONS,
    derived=SIZED_OPTIONS,
)
_TOPIC_DETAILS = Headed(
    TopicDetails,
    TOPIC,
    lambda topic: topic.partitions_count,
    Record(
        Partition,
        id=U32,
        created_at=U64,
        segments_count=U32,
        current_offset=U64,
        size_bytes=U64,
        messages_count=U64,
    ),
)
_COUNTED_TOPICS = Counted(U32, TOPIC)


class _TopicsCodec:
    """Counted, unlike other lists; an empty body reads as no topics."""

    def read(self, reader: Reader) -> tuple[Topic, ...]:
        return _COUNTED_TOPICS.read(reader) if reader.remaining else ()

    def write(self, out: bytearray, value: tuple[Topic, ...]) -> None:
        _COUNTED_TOPICS.write(out, value)


CREATE_TOPIC_BODY = Record(
    CreateTopic, stream=IDENTIFIER, partitions_count=U32, name=NAME, options=OPTIONS
)
CREATE_PARTITIONS_BODY = Record(
    CreatePartitions, stream=IDENTIFIER, topic=IDENTIFIER, partitions_count=U32
)

GET_TOPIC = Command(
    300,
    "get topic",
    Operation.NON_REPLICATED,
    Record(GetTopic, stream=IDENTIFIER, topic=IDENTIFIER),
    Maybe(_TOPIC_DETAILS),
)
GET_TOPICS = Command(
    301,
    "get topics",
    Operation.NON_REPLICATED,
    Record(GetTopics, stream=IDENTIFIER),
    _TopicsCodec(),
)
CREATE_TOPIC = Command(
    302, "create topic", Operation.CREATE_TOPIC, CREATE_TOPIC_BODY, _TOPIC_DETAILS
)
DELETE_TOPIC = Command(
    303,
    "delete topic",
    Operation.DELETE_TOPIC,
    Record(DeleteTopic, stream=IDENTIFIER, topic=IDENTIFIER),
    NOTHING,
)
UPDATE_TOPIC = Command(
    304,
    "update topic",
    Operation.UPDATE_TOPIC,
    Record(UpdateTopic, stream=IDENTIFIER, topic=IDENTIFIER, name=NAME, options=OPTIONS),
    NOTHING,
)
PURGE_TOPIC = Command(
    305,
    "purge topic",
    Operation.PURGE_TOPIC,
    Record(PurgeTopic, stream=IDENTIFIER, topic=IDENTIFIER),
    NOTHING,
)
CREATE_PARTITIONS = Command(
    402, "create partitions", Operation.CREATE_PARTITIONS, CREATE_PARTITIONS_BODY, NOTHING
)
DELETE_PARTITIONS = Command(
    403,
    "delete partitions",
    Operation.DELETE_PARTITIONS,
    Record(DeletePartitions, stream=IDENTIFIER, topic=IDENTIFIER, partitions_count=U32),
    NOTHING,
)
DELETE_SEGMENTS = Command(
    503,
    "delete segments",
    Operation.DELETE_SEGMENTS,
    Record(
        DeleteSegments, stream=IDENTIFIER, topic=IDENTIFIER, partition_id=U32, segments_count=U32
    ),
    NOTHING,
)
FLUSH_UNSAVED_BUFFER = Command(
    102,
    "flush unsaved buffer",
    Operation.NON_REPLICATED,
    Record(FlushUnsavedBuffer, stream=IDENTIFIER, topic=IDENTIFIER, partition_id=U32, fsync=FLAG),
    NOTHING,
)

COMMANDS = (
    GET_TOPIC,
    GET_TOPICS,
    CREATE_TOPIC,
    DELETE_TOPIC,
    UPDATE_TOPIC,
    PURGE_TOPIC,
    CREATE_PARTITIONS,
    DELETE_PARTITIONS,
    DELETE_SEGMENTS,
    FLUSH_UNSAVED_BUFFER,
)
