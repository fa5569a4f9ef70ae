"""One partition that is on this shard."""

from headrace.base.ids import unpack_namespace
from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.vsr.replica import Replica


class Local:
    """What metadata says of it, its group, and its machine."""

    __slots__ = ("lost_until", "machine", "replica", "target")

    def __init__(
        self, target: PartitionTarget, replica: Replica, machine: PartitionMachine
    ) -> None:
        self.target = target
        self.replica = replica
        self.machine = machine
        self.lost_until = 0  # offsets below this may have been given out and lost (FM-7)

    @property
    def name(self) -> str:
        """What people call it."""
        stream, topic, partition = unpack_namespace(self.target.group)
        return f"stream {stream} topic {topic} partition {partition}"

    @property
    def fence(self) -> str | None:
        """Why nothing is served from it, if so."""
        return self.machine.fence

    @property
    def is_short(self) -> bool:
        """Whether offsets that were given out before a power cut could be given again."""
        return self.lost_until > self.machine.next_offset

    def check(self) -> None:
        """Assert that metadata, group and machine speak of one incarnation of one partition."""
        options = self.machine.options
        assert self.replica.group == self.target.group, "its group has its number"
        assert options.namespace == self.target.group, "its machine has its number"
        assert self.replica.origin == self.target.created_revision, "one incarnation"
        assert options.created_revision == self.target.created_revision, "one incarnation"
        assert self.machine.first_offset <= self.machine.next_offset, "a log ends behind its start"
