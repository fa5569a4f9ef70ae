"""From one seed to the options of one run of whole nodes: sizes, load, and the mix of faults."""

import msgspec

from headrace.base.limits import KIB
from headrace.base.prng import Prng
from headrace.sim.agenda import MILLISECOND, SECOND
from headrace.sim.chance import RATE
from headrace.sim.disk import DiskOptions
from headrace.sim.faults import FaultOptions
from headrace.sim.folder import FolderOptions
from headrace.sim.lanes import LaneOptions
from headrace.sim.links import LinkOptions
from headrace.sim.network import NetworkOptions
from headrace.sim.nodes.actions import WorkloadOptions
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

NEVER_IDLE_TICKS = 1_000_000  # longer than any run
_REPLICAS = (1, 1, 1, 3, 3, 3, 3, 5)
_SHARDS = (1, 1, 1, 1, 2, 2, 3, 4)
IS_ASTRAY_DRAWN = True  # whether disks that mix up segments and indexes are drawn at all

_NETWORK: Table = {
    "delay_min": (50, 500),
    "delay_mean": (100, 1_000, 5_000),
    "loss": (0, 0, RATE // 100, RATE // 20),
    "duplicate": (0, RATE // 50, RATE // 10),
    "corrupt": (0,) * 9 + (RATE // 100,),
    "stale": (0, RATE // 50),
    "is_ordered": (True, False),
    "capacity": (1_000, 1_000, 48),
}
_DISK: Table = {
    "write_mean": (20, 200),
    "sync_mean": (300, 2_000, 10_000),
    "slow": (0, 0, RATE // 200),
    "lost": (0, 0, RATE // 200),
    "misdirected": (0, 0, RATE // 200),
    "read_error": (0, RATE // 50),
    "write_error": (0, 0, 0, RATE // 2_000),
}
_FAULTS: Table = {
    "crash_mean": sometimes(85, 400, 1_200, 3_000),
    "crash_all_mean": sometimes(20, 2_500, 5_000),
    "restart_mean": millis(50, 300, 1_000),
    "power": (0, 40, 80, 100),
    "between_effects": (0, 50, 90),
    "wipe": (0, 0, 30, 60),
    "pause_mean": sometimes(30, 1_000, 3_000),
    "pause_length": millis(50, 500),
    "partition_mean": sometimes(50, 1_000, 3_000),
    "partition_length": millis(200, 1_000),
    "kind_mean": sometimes(5, 1_000, 2_000),
    "clog_mean": sometimes(25, 500, 2_000),
    "clog_length": millis(50, 500),
    "rot_mean": sometimes(50, 100, 300, 1_000),
    "full_mean": sometimes(20, 1_000, 2_000),
    "full_length": millis(100, 500),
    "clock_mean": sometimes(30, 500, 2_000),
}


class SizeOptions(StoreOptions, frozen=True, kw_only=True):
    """How small everything is, so that it rolls, fills and is checkpointed in every run."""

    pipeline_max: int = 16
    chunk_bytes: int = 1_000
    offsets_reserved: int = 32
    segment_bytes: int = 4_000
    piece_bytes: int = 1_000
    retained_bytes: int = 8_000
    tail_bytes: int = 4_000
    store_bytes: int = 1_500
    store_ticks: int = 3
    retention_ticks: int = 40
    clock_tolerance: int = 2 * SECOND  # below every leap that clocks make here
    consumers_idle_ticks: int = NEVER_IDLE_TICKS
    index_step_bytes: int = 600
    indexes_max: int = 256


class NodeOptions(RunOptions, frozen=True, kw_only=True):
    """All that decides a run, besides the code."""

    workload: WorkloadOptions = WorkloadOptions()
    links: LinkOptions = LinkOptions()
    folder: FolderOptions = FolderOptions()
    sizes: SizeOptions = SizeOptions()
    shard_count: int = 1
    lanes: LaneOptions = LaneOptions()
    segment_rot: int = 0  # percent of rot that strikes segments instead of journals

    @property
    def is_power_for_all(self) -> bool:
        """Whether a power cut may strike any node: where all ops wait for syncs, or one alone."""
        workload = self.workload
        is_persisted = not (workload.replicated or workload.replicated_offsets)
        return is_persisted or self.replica_count == 1

    @property
    def has_segment_errors(self) -> bool:
        """Whether any node may be told that a segment cannot be written or synced."""
        return bool(self.folder.write_error or self.folder.sync_error)


def draw_node_options(seed: int) -> NodeOptions:
    """Return the options of a seed."""
    prng = Prng(seed).fork("nodes")
    replica_count = prng.choice(_REPLICAS)
    atlas = draw_atlas(prng, replica_count)
    is_alone = replica_count == 1
    if is_alone and prng.chance(1, 3):
        atlas = (0,)  # Only its segments rot: nothing is repaired, and nothing wrong served.
    safety_limit = prng.between(2, 8) * SECOND
    heartbeat_ticks = prng.choice((2, 4))
    faults = draw(FaultOptions, prng, _FAULTS)
    errors = Prng(seed).fork("segment errors")  # apart, so that it changes no other draw
    registers = Prng(seed).fork("shared names").choice((0, 0, 60))  # apart, too
    astray = Prng(seed).fork("astray")  # and apart, too
    removals = Prng(seed).fork("removals")  # and this
    unnumbered = Prng(seed).fork("unnumbered").choice((0, 0, 1))  # and this
    is_astray = IS_ASTRAY_DRAWN and astray.chance(1, 3)
    if is_astray and is_alone:
        atlas = (0,)
    if registers:
        # Others must elect soon, and no other partition may end what deposes a primary.
        heartbeat_ticks = 2
        faults = msgspec.structs.replace(faults, partition_mean=0, kind_mean=0)
    options = NodeOptions(
        seed=seed,
        replica_count=replica_count,
        atlas=atlas,
        safety_limit=safety_limit,
        liveness_limit=(30 + 10 * heartbeat_ticks) * SECOND,
        heartbeat_ticks=heartbeat_ticks,
        workload=_add_unnumbered(_draw_workload(prng, safety_limit, registers), unnumbered),
        network=draw(NetworkOptions, prng, _NETWORK),
        links=LinkOptions(
            delay_mean=prng.choice((100, 1_000, 5_000)), breaks=prng.choice((0, 0, RATE // 100))
        ),
        disk=msgspec.structs.replace(
            draw(DiskOptions, prng, _DISK), slow_mean=100 * MILLISECOND, tells_all=tells_all(seed)
        ),
        folder=FolderOptions(
            write_mean=prng.choice((20, 500)),
            sync_mean=prng.choice((500, 5_000, 40_000, 150_000)),
            read_mean=prng.choice((100, 3_000, 30_000)),
            index_lost=prng.choice((0, RATE // 4)),
            write_error=errors.choice((0, 0, 0, RATE // 100)),
            sync_error=errors.choice((0, 0, 0, RATE // 50)),
            remove_error=removals.choice((0, 0, RATE // 4, RATE // 2)),
            remove_mean=removals.choice((50, 50, 20_000)),
        ),
        faults=msgspec.structs.replace(
            faults,
            kill_at=safety_limit // 2,
            wipe=0 if is_alone else faults.wipe,
            depose_mean=700 * MILLISECOND if registers and not is_alone else 0,
            depose_length=600 * MILLISECOND,
        ),
        sizes=msgspec.structs.replace(_draw_sizes(prng), slice_groups_max=draw_slice(seed)),
        segment_rot=100 if is_alone else prng.choice((0, 40, 80)),
    )
    options = _add_astray(options, astray) if is_astray else options
    return _add_shards(options, Prng(seed).fork("shard count"))  # apart, too


def _add_shards(options: NodeOptions, prng: Prng) -> NodeOptions:
    """Let half of the seeds have nodes of several shards, and trouble between them."""
    shard_count = prng.choice(_SHARDS)
    if shard_count == 1:
        return options
    is_troubled = prng.chance(2, 3)
    replace = msgspec.structs.replace
    lanes = LaneOptions(
        delay_mean=prng.choice((30, 300, 3_000)),
        capacity=prng.choice((8, 1_000)) if is_troubled else 1_000,
        reply_capacity=prng.choice((2, 1_000)) if is_troubled else 1_000,
        handover_refused=prng.choice((0, RATE // 20)) if is_troubled else 0,
    )
    faults = options.faults
    if is_troubled:
        faults = replace(
            faults,
            part_kill_mean=prng.choice((0, 1_000, 3_000)) * MILLISECOND,
            part_pause_mean=prng.choice((0, 500, 2_000)) * MILLISECOND,
            part_pause_length=prng.choice((50, 400, 1_500)) * MILLISECOND,
            lane_mean=prng.choice((0, 100, 500)) * MILLISECOND,
            lane_length=prng.choice((20, 300)) * MILLISECOND,
        )
    options = replace(options, shard_count=shard_count, lanes=lanes, faults=faults)
    return _add_restless(options, prng) if is_troubled and prng.chance(1, 2) else options


def _add_restless(options: NodeOptions, prng: Prng) -> NodeOptions:
    """Let several clients make, delete and purge the same topics all the time, with slow feeds.

    So what one shard has heard of the metadata and another has not is asked for all the time.
    """
    replace = msgspec.structs.replace
    workload = replace(
        options.workload,
        client_count=max(3, options.workload.client_count),
        requests=prng.choice((180, 260)),
        topics=1,
        partitions_max=3,
        churn=prng.choice((30, 50)),
        leave=0,
        consume=20,
        registers=0,
    )
    think_mean = options.safety_limit * workload.client_count // (4 * workload.requests)
    return replace(
        options,
        workload=replace(workload, think_mean=think_mean),
        faults=replace(
            options.faults,
            depose_mean=0,
            lane_mean=prng.choice((40, 100)) * MILLISECOND,
            lane_length=prng.choice((30, 150)) * MILLISECOND,
        ),
    )


def _add_astray(options: NodeOptions, prng: Prng) -> NodeOptions:
    """Let disks of the atlas mix up segments and indexes, and have nodes look at them often.

    Segments are long and memory is short, so that polls find their way by many entries of an index.
    """
    replace = msgspec.structs.replace
    is_uniform = prng.chance(2, 3)
    workload = replace(
        options.workload,
        topics=2,
        requests=prng.choice((120, 200)),
        is_uniform=is_uniform,
        messages_max=prng.choice((1, 3)) if is_uniform else options.workload.messages_max,
        consume=prng.choice((40, 60)),
        churn=prng.choice((2, 8)),
        registers=0,
    )
    workload = replace(
        workload, think_mean=options.safety_limit * workload.client_count // (2 * workload.requests)
    )
    segment_bytes = prng.choice((3_000, 8_000, 24_000))
    return replace(
        options,
        workload=workload,
        folder=replace(
            options.folder,
            read_astray=prng.choice((0, RATE // 32, RATE // 8)),
            write_astray=prng.choice((0, RATE // 64, RATE // 16)),
            index_astray=prng.choice((0, RATE // 3, RATE // 2)),
            misplaced=prng.choice((0, 50, 100)),
        ),
        faults=replace(options.faults, rot_mean=prng.choice((0, 150, 400, 1_000)) * MILLISECOND),
        sizes=replace(
            options.sizes,
            segment_bytes=segment_bytes,
            retained_bytes=segment_bytes * prng.choice((2, 6)),
            tail_bytes=prng.choice((0, 0, 1_500)),
            piece_bytes=prng.choice((700, 1_500, 4_000)),
            index_step_bytes=prng.choice((300, 700, 2_000)),
            indexes_max=prng.choice((1, 3)),
        ),
        segment_rot=100 if options.replica_count == 1 else 80,
    )


def _draw_workload(prng: Prng, safety_limit: int, registers: int) -> WorkloadOptions:
    client_count = prng.between(1, 6)
    requests = prng.choice((50, 100, 180, 260))
    return WorkloadOptions(
        client_count=client_count,
        requests=requests,
        think_mean=safety_limit * client_count // (2 * requests),
        timeout=prng.choice((200, 500)) * MILLISECOND,
        topics=prng.between(1, 2),
        partitions_max=prng.between(1, 2),
        messages_max=prng.choice((1, 4, 8)),
        payload_bytes_max=prng.choice((40, 200, 400)),
        replicated=prng.choice((0, 0, 50, 100)),
        replicated_offsets=prng.choice((0, 0, 50)),
        expiry=prng.choice((0, 300, 1_500, 3_600_000)) * MILLISECOND,
        is_bounded=prng.chance(1, 2),
        replay=prng.choice((0, 5, 20)),
        churn=prng.choice((2, 8, 20)),
        leave=prng.choice((0, 2, 8)),
        consume=prng.choice((20, 40)),
        registers=registers,
    )


def _add_unnumbered(workload: WorkloadOptions, count: int) -> WorkloadOptions:
    """Let some clients not number, and send equal messages often."""
    if not count:
        return workload
    return msgspec.structs.replace(
        workload, unnumbered=count, replay=20, client_count=max(2, workload.client_count)
    )


def _draw_sizes(prng: Prng) -> SizeOptions:
    files = prng.between(4, 6)
    segment_bytes = prng.choice((1_500, 4_000, 12_000))
    return SizeOptions(
        journal_files=files,
        journal_bytes=files * prng.choice((12, 16, 32)) * KIB,
        pipeline_max=prng.choice((4, 16)),
        chunk_bytes=prng.choice((500, 2_000, 8_000)),
        segment_bytes=segment_bytes,
        piece_bytes=prng.choice((700, 1_500, 4_000)),
        retained_bytes=segment_bytes * prng.choice((1, 3)),
        tail_bytes=prng.choice((0, 3_000, 20_000)),
        store_bytes=prng.choice((500, 4_000)),
        store_ticks=prng.choice((1, 4, 12)),
        retention_ticks=prng.choice((20, 60)),
        offsets_reserved=prng.choice((16, 64)),
        consumers_idle_ticks=prng.choice((NEVER_IDLE_TICKS, NEVER_IDLE_TICKS, 100)),
    )
