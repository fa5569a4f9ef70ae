"""What decides a run of any workload, besides the code."""

import msgspec

from headrace.base.limits import KIB
from headrace.sim.agenda import SECOND
from headrace.sim.disk import DiskOptions
from headrace.sim.faults import FaultOptions
from headrace.sim.network import NetworkOptions


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How small a journal and what it serves are, so that both fill up in every run."""

    journal_files: int = 5
    journal_bytes: int = 5 * 32 * KIB
    record_bytes_max: int = 8 * KIB
    pipeline_max: int = 32
    chunk_bytes: int = 512
    slice_groups_max: int = 256
    offsets_reserved: int = 65_536


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What every run has; each workload adds its own."""

    seed: int
    replica_count: int = 1
    atlas: tuple[int, ...] = ()  # nodes whose disk may be damaged or wiped
    is_atlas_broken: bool = False  # the same op may be damaged everywhere: a safe halt is enough
    safety_limit: int = 6 * SECOND
    liveness_limit: int = 60 * SECOND
    events_max: int = 300_000
    heartbeat_ticks: int = 4
    network: NetworkOptions = NetworkOptions()
    disk: DiskOptions = DiskOptions()
    faults: FaultOptions = FaultOptions()
    canary: bool = False  # later answers are changed as they are applied: checkers must see it

    @property
    def is_power_for_all(self) -> bool:
        """Whether a power cut may strike any node: where all ops wait for syncs."""
        return True
