"""What a client raises: one tree, plain names.

```
HeadraceError
├── Unavailable         no connection, no answer in time; may say that the outcome is not known
├── RefusedByServer     the server said no; `code` says why
│   ├── NotFound        ├── AlreadyExists     ├── Unauthenticated
│   ├── Unauthorized    ├── AlreadyApplied    ├── NotOwned
│   └── Unreadable      messages that come next are damaged at the server, with their range
├── ProtocolBroken      the other side does not speak the protocol
├── DataLost            messages that were wanted are no longer there, with their exact range
├── OffsetsReset        a partition ends before where its consumer stood: it was purged
├── DataDamaged         messages came with a wrong checksum
├── BufferFull          a producer's buffer did not empty in time
└── ClientClosed        used after it was closed
```

Wrong arguments are `ValueError` and `TypeError`, as everywhere in Python.
"""

# ruff: noqa: N818 - these are words that users write in `except`; each says what happened.

from headrace.client.rules import RULES
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError

NO_NODE_ADVICE = "is a node running there, and is that its TCP port? `headrace dev` starts one"


class HeadraceError(Exception):
    """Everything that a client raises by itself."""


class Unavailable(HeadraceError):
    """No server could be reached, or none answered in time.

    `is_outcome_unknown` says that the request had left: the server may have carried it out.
    """

    def __init__(self, message: str, *, is_outcome_unknown: bool = False) -> None:
        self.is_outcome_unknown = is_outcome_unknown
        super().__init__(message)


class RefusedByServer(HeadraceError):
    """The server said no."""

    def __init__(self, code: Code, asked: str, why: str = "") -> None:
        self.code = code
        told = f" ({why})" if why else ""
        super().__init__(f"{asked}: {_words(code)} [{code.value}]{told}")


class NotFound(RefusedByServer):
    """What the request names does not exist, or may not be seen by this user."""


class AlreadyExists(RefusedByServer):
    """The name is taken."""


class Unauthenticated(RefusedByServer):
    """The credentials are wrong, or the user is not active."""


class Unauthorized(RefusedByServer):
    """This user may not do that."""


class AlreadyApplied(RefusedByServer):
    """The request was carried out before, and its answer is no longer known."""


class NotOwned(RefusedByServer):
    """The partition belongs to another member of the consumer group.

    After a lost connection the offset may still have been stored: by the first try, while the
    partition was ours.
    """


class Unreadable(RefusedByServer):
    """Messages that a consumer would have read next are damaged where the server keeps them.

    The server cannot read the offsets from `first` up to, not including, `end`. The consumer stays
    before them; its method `skip` goes past them.
    """

    def __init__(self, topic: str, partition: int, *, first: int, end: int) -> None:
        self.topic = topic
        self.partition = partition
        self.first = first
        self.end = end
        super().__init__(
            Code.CANNOT_READ_MESSAGE,
            f"{topic}, partition {partition}",
            f"the {end - first} offsets {first} to {end - 1} are damaged; see the node's log",
        )


class ProtocolBroken(HeadraceError):
    """Whatever answered does not speak the protocol."""


class DataLost(HeadraceError):
    """Messages that a consumer would have read next are no longer there.

    The offsets from `first` up to, not including, `end` are gone: retention removed them, or they
    were deleted or purged. The consumer stands at `resume`: iterating on continues there.
    """

    def __init__(self, topic: str, partition: int, *, first: int, end: int, resume: int) -> None:
        self.topic = topic
        self.partition = partition
        self.first = first
        self.end = end
        self.resume = resume
        super().__init__(
            f"{topic}, partition {partition}: the {end - first} offsets {first} to {end - 1}"
            f" are gone; reading goes on at {resume}"
        )


class OffsetsReset(HeadraceError):
    """A partition ends before the place where its consumer stood: it began anew.

    The consumer wanted the offset `position`, and the last one there is is `last`. What had not
    been read of the earlier history is gone; iterating on continues at the oldest message.
    """

    def __init__(self, topic: str, partition: int, *, position: int, last: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.last = last
        super().__init__(
            f"{topic}, partition {partition}: it ends at offset {last}, and {position} was to come"
            " next: it was purged or made anew; reading goes on at its oldest message"
        )


class DataDamaged(HeadraceError):
    """Messages arrived with a wrong checksum: they are not what was sent."""


class BufferFull(HeadraceError):
    """A producer's buffer did not empty in time; nothing was taken."""


class ClientClosed(HeadraceError):
    """The client, producer or consumer was closed before."""


_CLASSES: dict[Code, type[RefusedByServer]] = {
    Code.RESOURCE_NOT_FOUND: NotFound,
    Code.CLIENT_NOT_FOUND: NotFound,
    Code.STREAM_ID_NOT_FOUND: NotFound,
    Code.STREAM_NAME_NOT_FOUND: NotFound,
    Code.TOPIC_ID_NOT_FOUND: NotFound,
    Code.TOPIC_NAME_NOT_FOUND: NotFound,
    Code.PARTITION_NOT_FOUND: NotFound,
    Code.CONSUMER_OFFSET_NOT_FOUND: NotFound,
    Code.CONSUMER_GROUP_ID_NOT_FOUND: NotFound,
    Code.CONSUMER_GROUP_NAME_NOT_FOUND: NotFound,
    Code.CONSUMER_GROUP_MEMBER_NOT_FOUND: NotFound,
    Code.USER_ALREADY_EXISTS: AlreadyExists,
    Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS: AlreadyExists,
    Code.STREAM_NAME_ALREADY_EXISTS: AlreadyExists,
    Code.TOPIC_NAME_ALREADY_EXISTS: AlreadyExists,
    Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS: AlreadyExists,
    Code.UNAUTHENTICATED: Unauthenticated,
    Code.INVALID_CREDENTIALS: Unauthenticated,
    Code.USER_INACTIVE: Unauthenticated,
    Code.INVALID_PERSONAL_ACCESS_TOKEN: Unauthenticated,
    Code.PERSONAL_ACCESS_TOKEN_EXPIRED: Unauthenticated,
    Code.STALE_CLIENT: Unauthenticated,
    Code.UNAUTHORIZED: Unauthorized,
    Code.REQUEST_ALREADY_APPLIED: AlreadyApplied,
    Code.CONSUMER_GROUP_PARTITION_NOT_OWNED: NotOwned,
}


def refusal(error: RefusedError | EvictedError, asked: str) -> RefusedByServer:
    """Give what a user of the client is told about a refusal; `asked` names the request."""
    why = str(error) if isinstance(error, EvictedError) else ""
    return refused(error.code, asked, why)


def refused(code: Code, asked: str, why: str = "") -> RefusedByServer:
    """Give the refusal of the class that a code belongs to."""
    return _CLASSES.get(code, RefusedByServer)(code, asked, why or RULES.get(code, ""))


def _words(code: Code) -> str:
    return code.name.lower().replace("_", " ")
