"""What the parts of a shard share: the state to look at, and where effects are put."""

from collections.abc import Callable

from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connections
from headrace.shard.logins.lockout import Lockout
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.wire.commands.system import ClusterMetadata
from headrace.wire.errors import Code, RefusedError

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
        self, settings: ShardSettings, turn: Turn, metadata: MetadataGroup, data_plane: Plane
    ) -> None:
        self.settings = settings
        self.turn = turn
        self.clock = turn.clock
        self.metadata = metadata
        self.data_plane = data_plane
        self.probes = turn.probes
        self.out = turn.out
        self.connections = Connections()
        self.answers = Answers(self.connections, self.out)
        self.lockout = Lockout(settings.lockout)
        self.cluster = ClusterMetadata("", ())  # what clients are told; the addresses come late
        self.next_token = turn.new_token

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
