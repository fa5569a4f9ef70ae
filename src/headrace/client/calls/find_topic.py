"""A topic with its partitions, where a missing stream is told from a missing topic."""

from headrace.client.calls.names import TopicName, split_topic
from headrace.client.calls.streams import get_stream, get_topic
from headrace.client.errors import NotFound, RefusedByServer, refused
from headrace.client.session.call import Flow, ask
from headrace.wire.commands.topics import TopicDetails
from headrace.wire.errors import Code


def find_topic(topic: TopicName) -> Flow[TopicDetails]:
    """Return a topic and its partitions.

    The server answers with nothing in both cases, so a second question tells them apart.

    Raises:
        NotFound: There is no such topic, or no such stream; the code says which of them.
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
        pass  # This user may not see the stream: the answer stays as it was.
    raise missing
