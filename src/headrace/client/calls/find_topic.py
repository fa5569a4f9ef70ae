"""Looks up a topic with its partitions; distinguishes a missing stream from a missing topic."""

from headrace.client.calls.names import TopicName, split_topic
from headrace.client.calls.streams import get_stream, get_topic
from headrace.client.errors import NotFound, RefusedByServer, refused
from headrace.client.session.call import Flow, ask
from headrace.wire.commands.topics import TopicDetails
from headrace.wire.errors import Code


def find_topic(topic: TopicName) -> Flow[TopicDetails]:
    """Return a topic and its partitions.

    The server's answer is empty in both cases, so a second request finds out which is missing.

    Raises:
        NotFound: The topic or the stream does not exist; the code says which.
    """
    call = get_topic(topic)
    try:
        return (yield from ask(call))
    except NotFound as error:
        missing: RefusedByServer = error
    try:
        yield from ask(get_stream(split_topic(topic)[0]))
    except NotFound:
        missing = refused(Code.STREAM_ID_NOT_FOUND, call.asked)
    except RefusedByServer:
        pass  # This user may not see the stream: keep the first answer.
    raise missing
