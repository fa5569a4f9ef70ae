"""Streams."""

import msgspec

from headrace.wire.codec import NAME, NOTHING, U32, U64, Headed, Maybe, Record, Repeated
from headrace.wire.commands.command import Command
from headrace.wire.commands.topics import TOPIC, Topic
from headrace.wire.identifiers import IDENTIFIER, Identifier
from headrace.wire.numbers import Operation
from headrace.wire.options import OPTIONS, SIZED_OPTIONS, Options


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as lists show it."""

    id: int
    created_at: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str
    options: Options = ()


class StreamDetails(msgspec.Struct, frozen=True):
    """A stream with its topics."""

    stream: Stream
    topics: tuple[Topic, ...]


class GetStream(msgspec.Struct, frozen=True):
    """Asks for one stream."""

    stream: Identifier


class CreateStream(msgspec.Struct, frozen=True):
    """Adds a stream."""

    name: str
    options: Options = ()


class UpdateStream(msgspec.Struct, frozen=True):
    """Renames a stream."""

    stream: Identifier
    name: str
    options: Options = ()


class DeleteStream(msgspec.Struct, frozen=True):
    """Removes a stream with all its topics."""

    stream: Identifier


class PurgeStream(msgspec.Struct, frozen=True):
    """Removes all messages of a stream."""

    stream: Identifier


_STREAM = Record(
    Stream,
    id=U32,
    created_at=U64,
    topics_count=U32,
    size_bytes=U64,
    messages_count=U64,
    name=NAME,
    options=SIZED_OPTIONS,
)

GET_STREAM = Command(
    200,
    "get stream",
    Operation.NON_REPLICATED,
    Record(GetStream, stream=IDENTIFIER),
    Maybe(Headed(StreamDetails, _STREAM, lambda stream: stream.topics_count, TOPIC)),
)
GET_STREAMS = Command(201, "get streams", Operation.NON_REPLICATED, NOTHING, Repeated(_STREAM))
CREATE_STREAM = Command(
    202,
    "create stream",
    Operation.CREATE_STREAM,
    Record(CreateStream, name=NAME, options=OPTIONS),
    _STREAM,
)
DELETE_STREAM = Command(
    203, "delete stream", Operation.DELETE_STREAM, Record(DeleteStream, stream=IDENTIFIER), NOTHING
)
UPDATE_STREAM = Command(
    204,
    "update stream",
    Operation.UPDATE_STREAM,
    Record(UpdateStream, stream=IDENTIFIER, name=NAME, options=OPTIONS),
    NOTHING,
)
PURGE_STREAM = Command(
    205, "purge stream", Operation.PURGE_STREAM, Record(PurgeStream, stream=IDENTIFIER), NOTHING
)

COMMANDS = (GET_STREAM, GET_STREAMS, CREATE_STREAM, DELETE_STREAM, UPDATE_STREAM, PURGE_STREAM)
