"""What ops do to streams. Each refuses first and changes then, so a refusal changes nothing.

Flow: apply.
"""

from headrace.base.limits import STREAMS_MAX
from headrace.metadata import resolve
from headrace.metadata.admission import check_no_options
from headrace.metadata.describe import describe_stream, nothing_stored
from headrace.metadata.grants import without_stream
from headrace.metadata.names import check_name
from headrace.metadata.state import State, Stream
from headrace.metadata.topic_changes import forget_topic, purge
from headrace.wire.commands.streams import (
    CREATE_STREAM,
    CreateStream,
    DeleteStream,
    PurgeStream,
    UpdateStream,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.replica.prepares import PrepareHeader


def create_stream(state: State, header: PrepareHeader, request: CreateStream) -> bytes:
    """Add a stream; reply with its record."""
    check_no_options(request.options)
    check_name(request.name, Code.INVALID_STREAM_NAME)
    if state.streams.find(request.name) is not None:
        raise RefusedError(Code.STREAM_NAME_ALREADY_EXISTS, name=request.name)
    if len(state.streams) >= STREAMS_MAX:
        raise RefusedError(Code.TOO_MANY_STREAMS, limit=STREAMS_MAX)
    stream = Stream(id=state.stream_keys.take(), name=request.name, created_at=header.timestamp)
    state.streams.add(stream)
    return CREATE_STREAM.encode_reply(describe_stream(stream, nothing_stored))


def update_stream(state: State, _header: PrepareHeader, request: UpdateStream) -> bytes:
    """Rename a stream."""
    stream = resolve.stream(state, request.stream)
    check_no_options(request.options)
    check_name(request.name, Code.INVALID_STREAM_NAME)
    if state.streams.is_taken(request.name, but_for=stream):
        raise RefusedError(Code.STREAM_NAME_ALREADY_EXISTS, name=request.name)
    state.streams.rename(stream, request.name)
    return b""


def delete_stream(state: State, _header: PrepareHeader, request: DeleteStream) -> bytes:
    """Remove a stream with its topics and their groups."""
    stream = resolve.stream(state, request.stream)
    for topic in stream.topics:
        forget_topic(state, topic)
    for user in state.users:
        if user.permissions is not None and stream.id in user.grants.streams:
            user.permit(without_stream(user.permissions, stream.id))
    assert all(stream.id not in user.grants.streams for user in state.users), "none inherits"
    state.streams.remove(stream)
    state.stream_keys.give_back(stream.id)
    state.raise_revision()
    for topic in stream.topics:
        state.note_change(topic)
    return b""


def purge_stream(state: State, _header: PrepareHeader, request: PurgeStream) -> bytes:
    """Empty every partition of a stream."""
    stream = resolve.stream(state, request.stream)
    state.raise_revision()
    for topic in stream.topics:
        purge(state, topic)
    return b""
