"""The envelope of a request that is served elsewhere, and its reply."""

from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind


class ForwardedRequestHeader(Header, frozen=True):
    """The envelope: who asks, for whom it is, and where its reply goes.

    `replica` is the home node, `origin` the `created_revision` that the home saw.
    """

    client: int = 0
    ticket: int = 0  # under which it waits at its home
    timeout: int = 0  # microseconds until its home answers by itself
    commit: int = 0  # of the metadata by which its home has judged it
    request: int = 0
    operation: int = 0
    is_anew: int = 0
    home: int = 0  # the member that has the connection
    transport: int = 0  # of the connection
    session: int = 0
    user_id: int = 0
    code: int = 0
    connection: int = 0
    group: int = 0


class ForwardedReplyHeader(Header, frozen=True):
    """The answer to an envelope; its body is the whole frame for the client."""

    client: int = 0
    ticket: int = 0
    commit: int = 0  # of the metadata where it was answered
    request: int = 0
    home: int = 0
    connection: int = 0


FORWARDED_REQUEST = Layout(
    FrameKind.FORWARDED_REQUEST,
    ForwardedRequestHeader,
    reserved_zero=True,
    client=(128, 16),
    ticket=(144, 8),
    timeout=(152, 8),
    commit=(160, 8),
    request=(168, 8),
    operation=(176, 1),
    is_anew=(177, 1),
    home=(178, 2),
    transport=(180, 1),
    session=(184, 8),
    user_id=(192, 4),
    code=(196, 4),
    connection=(200, 16),
    group=(248, 8),
)
FORWARDED_REPLY = Layout(
    FrameKind.FORWARDED_REPLY,
    ForwardedReplyHeader,
    reserved_zero=True,
    client=(128, 16),
    ticket=(144, 8),
    commit=(160, 8),
    request=(168, 8),
    home=(178, 2),
    connection=(200, 16),
)
