"""The errors that a client raises, as one tree.

```
HeadraceError
├── Unavailable         no connection, or no answer in time; the outcome may be unknown
├── RefusedByServer     the server refused the request; `code` says why
│   ├── NotFound        ├── AlreadyExists     ├── Unauthenticated
│   ├── Unauthorized    ├── AlreadyApplied    ├── NotOwned
│   └── Unreadable      the next messages are damaged at the server, with their range
├── ProtocolBroken      the peer does not speak the protocol
├── DataLost            messages to be read are no longer there, with their exact range
├── OffsetsReset        a partition ends before its consumer's position: it was purged
├── DataDamaged         messages arrived with a wrong checksum
├── BufferFull          a producer's buffer did not empty in time
└── ClientClosed        used after it was closed
```

Wrong arguments are `ValueError` and `TypeError`, as everywhere in Python.
"""

# ruff: noqa: N818 - users write these names in `except`; each says what happened.

from headrace.client.rules import RULES
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError

NO_NODE_ADVICE = "is a node running there, and is that its TCP port? `headrace dev` starts one"


class HeadraceError(Exception):
    """The base of all errors that a client raises itself."""


class Unavailable(HeadraceError):
    """No server could be reached, or none answered in time.

    `is_outcome_unknown` means that the request was sent: the server may have carried it out.
    """

    def __init__(self, message: str, *, is_outcome_unknown: bool = False) -> None:
        self.is_outcome_unknown = is_outcome_unknown
        super().__init__(message)


class RefusedByServer(HeadraceError):
    """The server refused the request; `code` says why."""

    def __init__(self, code: Code, asked: str, why: str = "") -> None:
        self.code = code
        told = f" ({why})" if why else ""
        super().__init__(f"{asked}: {_words(code)} [{code.value}]{told}")


class NotFound(RefusedByServer):
    """The object does not exist, or this user may not see it."""


class AlreadyExists(RefusedByServer):
    """The name is in use."""


class Unauthenticated(RefusedByServer):
    """The credentials are wrong, or the user is not active."""


class Unauthorized(RefusedByServer):
    """This user lacks the permission."""


class AlreadyApplied(RefusedByServer):
    """The request was already carried out, and its answer is no longer known."""


class NotOwned(RefusedByServer):
    """The partition is assigned to another member of the consumer group.

    After a lost connection the offset may still have been stored by the first attempt, while this
    member owned the partition.
    """


class Unreadable(RefusedByServer):
    """The next messages of a consumer are damaged in the server's storage.

    The server cannot read the offsets from `first` up to, not including, `end`. The consumer keeps
    its position before them; its method `skip` moves it past them.
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
    """The peer does not speak the protocol."""


class DataLost(HeadraceError):
    """The next messages of a consumer are no longer there.

    The offsets from `first` up to, not including, `end` are gone: retention removed them, or they
    were deleted or purged. The consumer's position is `resume`: iteration continues there.
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
    """A partition ends before the position of its consumer: it was purged or created anew.

    The consumer's next offset was `position`, but the last one that exists is `last`. The unread
    messages before the reset are gone; iteration continues at the oldest message.
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
    """Messages arrived with a wrong checksum."""


class BufferFull(HeadraceError):
    """A producer's buffer did not empty in time; the message was not accepted."""


class ClientClosed(HeadraceError):
    """The client, producer or consumer is closed."""


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
    """Return the error for a refusal; `asked` names the request."""
    why = str(error) if isinstance(error, EvictedError) else ""
    return refused(error.code, asked, why)


def refused(code: Code, asked: str, why: str = "") -> RefusedByServer:
    """Return a refusal of the class that its code belongs to."""
    return _CLASSES.get(code, RefusedByServer)(code, asked, why or RULES.get(code, ""))


def _words(code: Code) -> str:
    return code.name.lower().replace("_", " ")
