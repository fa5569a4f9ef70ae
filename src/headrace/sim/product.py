"""How the code that ships is configured in a simulation: small sizes and short waits."""

from headrace.shard.config import PlaneConfig
from headrace.sim.options import RunOptions, StoreOptions
from headrace.storage.config import StoreConfig
from headrace.vsr.timeouts import Timeouts

CLUSTER = 0x5EED


def plane_config(
    options: RunOptions, sizes: StoreOptions, node: int, seed: int, journal: int = 0
) -> PlaneConfig:
    """Return the configuration of one plane of groups."""
    return PlaneConfig(
        cluster=CLUSTER,
        replica=node,
        replica_count=options.replica_count,
        timeouts=short_timeouts(options.heartbeat_ticks),
        seed=seed,
        journal=journal,
        pipeline_max=sizes.pipeline_max,
        chunk_bytes=sizes.chunk_bytes,
        offsets_reserved=sizes.offsets_reserved,
        slice_groups_max=sizes.slice_groups_max,
    )


def store_config(
    options: RunOptions, sizes: StoreOptions, node: int, boot_identity: int, journal: int = 0
) -> StoreConfig:
    """Return the configuration of one store."""
    return StoreConfig(
        cluster=CLUSTER,
        replica=node,
        replica_count=options.replica_count,
        journal_bytes_max=sizes.journal_bytes,
        journal_files=sizes.journal_files,
        record_bytes_max=sizes.record_bytes_max,
        boot_identity=boot_identity,
        journal=journal,
    )


def short_timeouts(beat: int) -> Timeouts:
    """Return short waits in the proportions of the long ones."""
    return Timeouts(
        heartbeat_interval=beat,
        heartbeat_timeout=10 * beat,
        prepare_retransmit_interval=max(1, beat // 2),
        view_change_retransmit_interval=beat,
        view_change_status_timeout=10 * beat,
        request_start_view_retransmit_interval=2 * beat,
        repair_retry_interval=2 * beat,
        transfer_retry_interval=2 * beat,
    )
