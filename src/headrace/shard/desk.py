"""What the parts of a shard share: the state to look at, and where effects are put."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.ports.probes import Probes
from headrace.shard.consensus.clock import Clock
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connections
from headrace.shard.logins.lockout import Lockout
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.settings import ShardSettings
from headrace.shard.watch import Watch
from headrace.wire.commands.system import ClusterMetadata
from headrace.wire.errors import Code, RefusedError

if TYPE_CHECKING:
    from headrace.shard.consensus.plane import Plane
    from headrace.shard.effects import ShardEffect

_RESTS_ON_METADATA = (
    Code.UNAUTHORIZED,
    Code.RESOURCE_NOT_FOUND,
    Code.STREAM_ID_NOT_FOUND,
    Code.STREAM_NAME_NOT_FOUND,
    Code.TOPIC_ID_NOT_FOUND,
    Code.TOPIC_NAME_NOT_FOUND,
    Code.PARTITION_NOT_FOUND,
    Code.CONSUMER_GROUP_ID_NOT_FOUND,
    Code.CONSUMER_GROUP_NAME_NOT_FOUND,
    Code.CONSUMER_GROUP_MEMBER_NOT_FOUND,
    Code.CONSUMER_GROUP_PARTITION_NOT_OWNED,
)


class Desk:
    """One per shard."""

    def __init__(
        self, settings: ShardSettings, clock: Clock, metadata: MetadataGroup, watch: Watch
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.metadata = metadata
        self.watch = watch
        self.data_plane: Plane  # set when it is made
        self.probes = Probes()
        self.out: list[ShardEffect] = []
        self.connections = Connections()
        self.answers = Answers(self.connections, self.out)
        self.lockout = Lockout(settings.lockout)
        self.cluster = ClusterMetadata("", ())  # what clients are told; the addresses come late
        self._token = 0

    def refusal(self, code: Code) -> Code:
        """Give what to say instead of a refusal that rests on metadata which may be old (O6.2).

        What is not found here, or is not allowed, may be by now: whoever leads knows.
        """
        if code in _RESTS_ON_METADATA and not self.metadata.is_current:
            self.probes.hit("refusal.may_be_old")
            return Code.TRANSIENT_NOT_ACCEPTED
        return code

    def resume(self, ticket: int, go_on: Callable[[], bool]) -> None:
        """Go on with a request that waited, unless nobody waits for it any more.

        `go_on` answers it or has it wait again, and returns whether it is answered; what it raises
        is the answer.
        """
        if not self.answers.is_waiting(ticket):
            return
        try:
            if go_on():
                self.answers.end(ticket)
        except RefusedError as error:
            self.refuse(ticket, error.code)

    def refuse(self, ticket: int, code: Code) -> None:
        """Refuse a request that waits, if it still does."""
        waiting = self.answers.end(ticket)
        if waiting is not None:
            self.answers.refuse(waiting.connection, waiting.header, self.refusal(code))

    def next_token(self) -> int:
        """Give a number for something that will be answered later."""
        self._token += 1
        return self._token
