"""The configuration in the terms of those who are configured: ticks, threads, records."""

from headrace.base.ids import Micros
from headrace.runtime.credentials import HashParameters
from headrace.server.config_sections import TICK, ServerConfig
from headrace.vsr.timeouts import Timeouts


def consensus_timeouts(config: ServerConfig) -> Timeouts:
    """Give the timers of consensus, in ticks."""
    cluster = config.cluster
    return Timeouts(
        heartbeat_interval=to_ticks(cluster.heartbeat_interval),
        heartbeat_timeout=to_ticks(cluster.heartbeat_timeout),
        prepare_retransmit_interval=to_ticks(cluster.prepare_retransmit_interval),
        view_change_retransmit_interval=to_ticks(cluster.view_change_retransmit_interval),
        view_change_status_timeout=to_ticks(cluster.view_change_status_timeout),
        request_start_view_retransmit_interval=to_ticks(
            cluster.request_start_view_retransmit_interval
        ),
        view_probe_attempts_max=cluster.view_probe_attempts_max,
        repair_retry_interval=to_ticks(cluster.repair_retry_interval),
        transfer_retry_interval=to_ticks(cluster.transfer_retry_interval),
    )


def hash_parameters(config: ServerConfig) -> HashParameters:
    """Give what a password hash costs, and how many are made at once."""
    security = config.security
    return HashParameters(
        time_cost=security.argon2_time_cost,
        memory_bytes=security.argon2_memory,
        parallelism=security.argon2_parallelism,
        at_once=security.hashes_at_once,
        waiting_max=security.hashes_waiting_max,
    )


def to_ticks(time: Micros) -> int:
    """Give a duration in ticks; what is less than one counts as one."""
    assert time > 0
    return max(1, time // TICK)
