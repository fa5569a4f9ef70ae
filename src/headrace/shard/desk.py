"""What the parts of a shard share: the state to look at, and where effects are put."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headrace.metadata.machine import MetadataMachine
from headrace.metadata.state import State
from headrace.metadata.target import PartitionTarget
from headrace.ports.machine import StateMachine
from headrace.ports.probes import Probes
from headrace.shard.consensus.believed_time import BelievedTime
from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connections
from headrace.shard.logins.lockout import Lockout
from headrace.shard.settings import ShardSettings
from headrace.vsr.sessions import ClientTable
from headrace.vsr.state import Status
from headrace.wire.commands.system import ClusterMetadata
from headrace.wire.errors import Code, RefusedError

if TYPE_CHECKING:
    from headrace.shard.effects import ShardEffect
    from headrace.vsr.replica import Replica

# Gives what consensus is to drive in the place of a machine; of the metadata group without a
# target. A simulation so sees every op that is applied.
Watch: TypeAlias = Callable[[PartitionTarget | None, StateMachine], StateMachine]


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


def unwatched(_: PartitionTarget | None, machine: StateMachine) -> StateMachine:
    """Give a machine as it is."""
    return machine


class Desk:
    """One per shard."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata_plane: Plane,
        data_plane: Plane,
        watch: Watch = unwatched,
    ) -> None:
        self.settings = settings
        self.watch = watch
        self.metadata_plane = metadata_plane
        self.data_plane = data_plane
        self.metadata = MetadataMachine()
        self.sessions = ClientTable()
        self.metadata_replica: Replica  # set when the group is added
        self.boot_head = 0  # the end of the metadata log as the disk had it
        self.boot_told = 0  # the last op of it of which the audit log was surely told
        self.probes = Probes()
        self.out: list[ShardEffect] = []
        self.connections = Connections()
        self.answers = Answers(self.connections, self.out)
        self.lockout = Lockout(settings.lockout)
        self.cluster = ClusterMetadata("", ())  # what clients are told; the addresses come late
        self.now = 0  # in ticks
        self.time = BelievedTime(settings.clock_tolerance)
        self._token = 0

    @property
    def state(self) -> State:
        """What the metadata group has decided, as far as it is applied here."""
        return self.metadata.state

    @property
    def commit(self) -> int:
        """How far that is; whatever depends on metadata and is kept must be of this number."""
        return self.metadata_replica.commit_min

    @property
    def is_serving(self) -> bool:
        """Whether this node leads the metadata, as far as it knows."""
        return self.metadata_plane.has_begun and self.metadata_replica.is_serving

    @property
    def is_current(self) -> bool:
        """Whether metadata is current here: nobody else can have decided more (O6.2)."""
        plane = self.metadata_plane
        return plane.has_begun and plane.is_current(self.metadata_replica)

    def refusal(self, code: Code) -> Code:
        """Give what to say instead of a refusal that rests on metadata which may be old (O6.2).

        What is not found here, or is not allowed, may be by now: whoever leads knows.
        """
        if code in _RESTS_ON_METADATA and not self.is_current:
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

    @property
    def is_caught_up(self) -> bool:
        """Whether all that this node ever applied of the metadata is applied again (RC-16).

        Until then a partition that it has seen deleted may seem to exist.
        """
        replica = self.metadata_replica
        applied_min = min(self.boot_head, replica.op)  # What was not committed may be gone.
        return replica.status == Status.NORMAL and replica.commit_min >= applied_min

    @property
    def committed_time(self) -> int:
        """Give the time by which tokens expire, in microseconds: a clock set back revives none."""
        return max(self.time.now, self.state.timestamp)

    def next_token(self) -> int:
        """Give a number for something that will be answered later."""
        self._token += 1
        return self._token
