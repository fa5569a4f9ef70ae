"""The metadata group, which a shard may have: its plane, its machine, and its client table.

Flow: replicate, apply.
"""

from collections.abc import Callable

from headrace.base.ids import METADATA_GROUP
from headrace.metadata.applied import Applied
from headrace.metadata.machine import MetadataMachine
from headrace.metadata.state import State
from headrace.ports.network import Buffer
from headrace.shard.config import GroupConfig, PlaneConfig
from headrace.shard.consensus.clock import Clock
from headrace.shard.consensus.plane import Plane
from headrace.shard.consensus.reserve import metadata_reserve_parts
from headrace.shard.watch import Watch
from headrace.storage.store import Opened
from headrace.vsr.events import OwnOp
from headrace.vsr.sessions import ClientTable
from headrace.vsr.state import Status
from headrace.wire.requests import RequestHeader


class MetadataGroup:
    """See `Metadata` for what all rooms ask; the rest is for `logins` and the shard."""

    def __init__(
        self,
        config: PlaneConfig,
        opened: Opened,
        clock: Clock,
        *,
        may_begin: Callable[[], bool],
        watch: Watch,
        machine: MetadataMachine | None = None,
    ) -> None:
        """Take up the group with its past; it begins to live when `may_begin` says so."""
        self._clock = clock
        self.machine = machine or MetadataMachine()
        self.sessions = ClientTable()
        self.plane = Plane(config, opened, may_begin=may_begin, reserve_parts=self._reserve_parts)
        watched = watch(None, self.machine)
        self.plane.add_group(GroupConfig(METADATA_GROUP), watched, self.sessions)
        self.replica = self.plane.groups[METADATA_GROUP]
        self._replica_state = self.replica.state
        self.boot_head = self.replica.op  # the end of the log as the disk had it
        assert self.replica.commit_min <= self.boot_head, "what is applied is in the log"

    @property
    def state(self) -> State:
        """Return what the group has decided, as far as it is applied here."""
        return self.machine.state

    @property
    def commit(self) -> int:
        """Return how far that is."""
        return self._replica_state.commit_min

    @property
    def log_stamp(self) -> int:
        """Return the newest stamp of the log, committed or not."""
        return self.replica.timestamp

    @property
    def is_primary(self) -> bool:
        """Whether this node leads the group, or would if it had begun."""
        return self.replica.is_primary

    @property
    def is_serving(self) -> bool:
        """Whether this node leads the group, as far as it knows."""
        return self.plane.has_begun and self.replica.is_serving

    @property
    def is_current(self) -> bool:
        """Whether metadata is current here: nobody else can have decided more (O6.2)."""
        plane = self.plane
        return plane.has_begun and plane.is_current(self.replica)

    @property
    def is_caught_up(self) -> bool:
        """Whether all that this node ever applied of the metadata is applied again (RC-16)."""
        replica = self.replica
        applied_min = min(self.boot_head, replica.op)  # What was not committed may be gone.
        return replica.status == Status.NORMAL and replica.commit_min >= applied_min

    @property
    def is_without_space(self) -> bool:
        """Whether the store of the group waits for space on the disk."""
        return self.plane.store.is_without_space

    @property
    def committed_time(self) -> int:
        """Return when tokens expire, in microseconds: a clock that is set back revives none."""
        return max(self._clock.time.now, self.state.timestamp)

    def take_applied(self) -> list[Applied]:
        """Return the ops about users and removals that were applied since the last call."""
        return self.machine.take_applied()

    def put_request(self, header: RequestHeader, body: Buffer) -> None:
        """Hand a request to the group; its reply comes with the end of a turn."""
        self.plane.put_request(self.replica, header, body)

    def answer_again(self, header: RequestHeader, body: Buffer) -> bool:
        """Have a request that was applied answered again; return whether it was applied."""
        return self.plane.answer_again(self.replica, header, body)

    def propose(self, own: OwnOp) -> None:
        """Propose an op of the server itself; before the group lives it finds no place."""
        self.plane.propose(METADATA_GROUP, own)

    def _reserve_parts(self, operation: int, body: Buffer) -> int:
        return metadata_reserve_parts(self.state, operation, body)

    def check(self) -> None:
        """Assert that the group is the only one of its plane, and its parts are of one state."""
        assert list(self.plane.groups) == [METADATA_GROUP], "metadata is one group"
        assert self.plane.groups[METADATA_GROUP] is self.replica, "the group stays the same"
        assert self._replica_state is self.replica.state, "the commit is that of the group"
        assert self.state.revision <= self.commit, "only an op changes what partitions must be"
        assert self.commit <= self.replica.op, "what is applied is in the log"
        assert self.replica.group == METADATA_GROUP, "it is found by its number"
        assert not self.is_serving or self.is_primary, "who serves leads"
        assert not self.is_serving or self.plane.has_begun, "who serves lives"
        self.sessions.check(self.commit)
        for user in self.state.users:
            assert user.created_op <= self.commit, "a user was made by an applied op"
