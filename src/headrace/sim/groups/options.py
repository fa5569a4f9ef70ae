"""From one seed to the options of one run of groups alone: sizes, load, and the mix of faults."""

import msgspec

from headrace.base.ids import (
    METADATA_GROUP,
    Namespace,
    PartitionId,
    StreamId,
    TopicId,
    pack_namespace,
)
from headrace.base.limits import KIB
from headrace.base.prng import Prng
from headrace.sim.agenda import MILLISECOND, SECOND
from headrace.sim.chance import RATE
from headrace.sim.disk import DiskOptions
from headrace.sim.faults import FaultOptions
from headrace.sim.groups.clients import WorkloadOptions
from headrace.sim.network import NetworkOptions
from headrace.sim.options import RunOptions, StoreOptions
from headrace.sim.swarm import (
    Table,
    draw,
    draw_atlas,
    draw_slice,
    millis,
    sometimes,
    tells_all,
)

_REPLICAS = (1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 5, 5, 5, 4, 6)
_NETWORK: Table = {
    "delay_min": (50, 200, 1_000),
    "delay_mean": (100, 1_000, 1_000, 5_000, 20_000),
    "loss": (0, 0, RATE // 100, RATE // 20, RATE // 5),
    "duplicate": (0, 0, RATE // 50, RATE // 10, RATE // 2),
    "corrupt": (0,) * 9 + (RATE // 100,),
    "stale": (0, RATE // 50),
    "is_ordered": (True, False),
    "capacity": (1_000, 1_000, 24),
}
_DISK: Table = {
    "write_mean": (20, 200),
    "sync_mean": (300, 2_000, 10_000, 30_000),
    "slow": (0, 0, RATE // 200),
    "slow_mean": millis(100, 1_000),
    "lost": (0, 0, RATE // 200),
    "misdirected": (0, 0, RATE // 200),
    "read_error": (0, RATE // 50),
    "write_error": (0, 0, 0, RATE // 2_000),
}
_FAULTS: Table = {
    "crash_mean": sometimes(80, 500, 1_500, 4_000),
    "crash_all_mean": sometimes(25, 2_500, 6_000),
    "restart_mean": millis(50, 300, 1_500),
    "power": (0, 30, 70, 100),
    "between_effects": (0, 50, 90),
    "wipe": (0, 0, 30, 60),
    "pause_mean": sometimes(40, 1_000, 3_000),
    "pause_length": millis(50, 500, 2_000),
    "partition_mean": sometimes(60, 1_000, 3_000),
    "partition_length": millis(200, 1_000, 3_000),
    "kind_mean": sometimes(5, 1_000, 2_000),
    "clog_mean": sometimes(30, 500, 2_000),
    "clog_length": millis(50, 500, 2_000),
    "rot_mean": sometimes(50, 100, 500, 2_000),
    "full_mean": sometimes(20, 1_000, 3_000),
    "full_length": millis(100, 1_000),
    "clock_mean": sometimes(40, 300, 2_000),
}


class Options(RunOptions, frozen=True, kw_only=True):
    """All that decides a run, besides the code."""

    replica_count: int = 3
    groups: tuple[int, ...] = (METADATA_GROUP,)
    replicated_groups: tuple[int, ...] = ()  # of the class that waits for no sync
    safety_limit: int = 12 * SECOND
    events_max: int = 400_000
    heartbeat_ticks: int = 5
    workload: WorkloadOptions = WorkloadOptions()
    store: StoreOptions = StoreOptions()

    @property
    def is_power_for_all(self) -> bool:
        """Whether a power cut may strike any node: where all ops wait for syncs."""
        return not self.replicated_groups


def draw_options(seed: int) -> Options:
    """Return the options of a seed."""
    prng = Prng(seed).fork("swarm")
    replica_count = prng.choice(_REPLICAS)
    group_count = prng.choice((1, 1, 2, 2, 3, 4, 8))
    groups = (METADATA_GROUP, *(_partition(number) for number in range(group_count - 1)))
    replicated = groups[1 : 1 + prng.below(2)] if group_count > 1 and prng.chance(1, 4) else ()
    atlas = draw_atlas(prng, replica_count)
    is_atlas_broken = replica_count > 1 and prng.chance(1, 24)
    safety_limit = prng.between(3, 10) * SECOND
    heartbeat_ticks = prng.choice((2, 4, 8))
    return Options(
        seed=seed,
        replica_count=replica_count,
        groups=groups,
        replicated_groups=replicated,
        atlas=tuple(range(replica_count)) if is_atlas_broken else atlas,
        is_atlas_broken=is_atlas_broken,
        safety_limit=safety_limit,
        liveness_limit=8 * heartbeat_ticks * SECOND,
        heartbeat_ticks=heartbeat_ticks,
        workload=msgspec.structs.replace(
            _draw_workload(prng, group_count), reuse=_draw_reuse(Prng(seed))
        ),
        network=draw(NetworkOptions, prng, _NETWORK),
        disk=msgspec.structs.replace(draw(DiskOptions, prng, _DISK), tells_all=tells_all(seed)),
        faults=msgspec.structs.replace(
            draw(FaultOptions, prng, _FAULTS), kill_at=safety_limit // 2
        ),
        store=msgspec.structs.replace(_draw_store(prng), slice_groups_max=draw_slice(seed)),
    )


def _partition(number: int) -> int:
    return pack_namespace(Namespace(StreamId(1), TopicId(1), PartitionId(number)))


def _draw_workload(prng: Prng, group_count: int) -> WorkloadOptions:
    client_count = prng.between(1, 8)
    requests = prng.choice((60, 120, 240, 400)) + 20 * group_count
    span = prng.choice((200, 1_500, 4_000)) * MILLISECOND  # if clients did nothing but think
    return WorkloadOptions(
        client_count=client_count,
        requests=requests,
        value_bytes_max=prng.choice((16, 200, 600, 1200)),
        keys=prng.choice((1, 4, 16)),
        think_mean=span * client_count // requests,
        timeout=prng.choice((150, 300, 600)) * MILLISECOND,
        logout=prng.choice((0, 1, 4)),
        malformed=prng.choice((0, 1, 5)),
        replay=prng.choice((0, 2, 10)),
    )


def _draw_reuse(prng: Prng) -> int:
    """Draw from a generator of its own: seeds without it mean what they meant before."""
    return prng.fork("swarm reuse").choice((0, 0, 4))


def _draw_store(prng: Prng) -> StoreOptions:
    files = prng.between(4, 6)
    return StoreOptions(
        journal_files=files,
        journal_bytes=files * prng.choice((32, 48, 64)) * KIB,
        pipeline_max=prng.choice((4, 16, 32)),
        chunk_bytes=prng.choice((300, 1_000, 4_000)),
    )
