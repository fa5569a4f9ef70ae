"""From one seed to the options of one run: sizes, the mix of faults, and how often each strikes.

Every seed draws its own mix, so that over many seeds faults meet in all combinations, and no fault
hides behind another that always strikes first.
"""

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
from headrace.sim.disk import DiskOptions
from headrace.sim.faults import FaultOptions
from headrace.sim.groups.clients import WorkloadOptions
from headrace.sim.network import NetworkOptions
from headrace.vsr.quorum import quorums_of

CLUSTER = 0x5EED

_RATE = 1 << 14  # rates are parts of this
_REPLICAS = (1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 5, 5, 5, 4, 6)


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How small a journal is."""

    journal_files: int = 5
    journal_bytes: int = 5 * 32 * KIB
    record_bytes_max: int = 16 * KIB
    pipeline_max: int = 32
    chunk_bytes: int = 512
    slice_groups_max: int = 256


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides a run, besides the code."""

    seed: int
    replica_count: int = 3
    groups: tuple[int, ...] = (METADATA_GROUP,)
    replicated_groups: tuple[int, ...] = ()  # of the class that waits for no sync
    atlas: tuple[int, ...] = ()  # nodes whose disk may be damaged or wiped
    is_atlas_broken: bool = False  # the same op may be damaged everywhere: a safe halt is enough
    safety_limit: int = 12 * SECOND
    liveness_limit: int = 60 * SECOND
    events_max: int = 400_000
    heartbeat_ticks: int = 5
    workload: WorkloadOptions = WorkloadOptions()
    network: NetworkOptions = NetworkOptions()
    disk: DiskOptions = DiskOptions()
    faults: FaultOptions = FaultOptions()
    store: StoreOptions = StoreOptions()
    canary: bool = False  # one applied record is changed: the checkers must see it


def draw_options(seed: int) -> Options:
    """Give the options of a seed."""
    prng = Prng(seed).fork("swarm")
    replica_count = prng.choice(_REPLICAS)
    group_count = prng.choice((1, 1, 2, 2, 3, 4, 8))
    groups = (METADATA_GROUP, *(_partition(number) for number in range(group_count - 1)))
    replicated = groups[1 : 1 + prng.below(2)] if group_count > 1 and prng.chance(1, 4) else ()
    atlas = _draw_atlas(prng, replica_count)
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
        network=_draw_network(prng),
        disk=msgspec.structs.replace(_draw_disk(prng), tells_all=tells_all(seed)),
        faults=msgspec.structs.replace(_draw_faults(prng), kill_at=safety_limit // 2),
        store=msgspec.structs.replace(_draw_store(prng), slice_groups_max=draw_slice(seed)),
    )


def _partition(number: int) -> int:
    return pack_namespace(Namespace(StreamId(1), TopicId(1), PartitionId(number)))


def _draw_atlas(prng: Prng, replica_count: int) -> tuple[int, ...]:
    """Choose the nodes whose disk may be damaged, so that every op keeps a good copy."""
    nodes = list(range(replica_count))
    prng.shuffle(nodes)
    damaged_max = quorums_of(replica_count).replication - 1
    return tuple(sorted(nodes[:damaged_max]))


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


def _draw_network(prng: Prng) -> NetworkOptions:
    return NetworkOptions(
        delay_min=prng.choice((50, 200, 1_000)),
        delay_mean=prng.choice((100, 1_000, 1_000, 5_000, 20_000)),
        loss=prng.choice((0, 0, _RATE // 100, _RATE // 20, _RATE // 5)),
        duplicate=prng.choice((0, 0, _RATE // 50, _RATE // 10, _RATE // 2)),
        corrupt=prng.choice((0,) * 9 + (_RATE // 100,)),
        stale=prng.choice((0, _RATE // 50)),
        is_ordered=prng.chance(1, 2),
        capacity=prng.choice((1_000, 1_000, 24)),
    )


def tells_all(seed: int) -> bool:
    """Whether a disk tells of every write, or, as the real one does, only of those awaited.

    Both keep the port's word, and bugs that take the one answer for the other need the first.
    """
    return seed % 4 != 0


def draw_slice(seed: int) -> int:
    """Return how many groups a turn looks at of a walk over many: one, two, or all there are.

    It is not drawn from the generator of the rest, so that the other draws of a seed stay.
    """
    return (1, 2, 256)[seed % 3]


def _draw_disk(prng: Prng) -> DiskOptions:
    return DiskOptions(
        write_mean=prng.choice((20, 200)),
        sync_mean=prng.choice((300, 2_000, 10_000, 30_000)),
        slow=prng.choice((0, 0, _RATE // 200)),
        slow_mean=prng.choice((100, 1_000)) * MILLISECOND,
        lost=prng.choice((0, 0, _RATE // 200)),
        misdirected=prng.choice((0, 0, _RATE // 200)),
        read_error=prng.choice((0, _RATE // 50)),
        write_error=prng.choice((0, 0, 0, _RATE // 2_000)),
    )


def _draw_faults(prng: Prng) -> FaultOptions:
    def mean(chance: int, *choices: int) -> int:
        return prng.choice(choices) * MILLISECOND if prng.below(100) < chance else 0

    return FaultOptions(
        crash_mean=mean(80, 500, 1_500, 4_000),
        crash_all_mean=mean(25, 2_500, 6_000),
        restart_mean=prng.choice((50, 300, 1_500)) * MILLISECOND,
        power=prng.choice((0, 30, 70, 100)),
        between_effects=prng.choice((0, 50, 90)),
        wipe=prng.choice((0, 0, 30, 60)),
        pause_mean=mean(40, 1_000, 3_000),
        pause_length=prng.choice((50, 500, 2_000)) * MILLISECOND,
        partition_mean=mean(60, 1_000, 3_000),
        partition_length=prng.choice((200, 1_000, 3_000)) * MILLISECOND,
        kind_mean=mean(5, 1_000, 2_000),
        clog_mean=mean(30, 500, 2_000),
        clog_length=prng.choice((50, 500, 2_000)) * MILLISECOND,
        rot_mean=mean(50, 100, 500, 2_000),
        full_mean=mean(20, 1_000, 3_000),
        full_length=prng.choice((100, 1_000)) * MILLISECOND,
        clock_mean=mean(40, 300, 2_000),
    )


def _draw_store(prng: Prng) -> StoreOptions:
    files = prng.between(4, 6)
    return StoreOptions(
        journal_files=files,
        journal_bytes=files * prng.choice((32, 48, 64)) * KIB,
        record_bytes_max=8 * KIB,
        pipeline_max=prng.choice((4, 16, 32)),
        chunk_bytes=prng.choice((300, 1_000, 4_000)),
    )
