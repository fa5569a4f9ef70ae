"""Settles which shards a node starts with, before it touches a file or a port (SH-8).

What is given wins; else a folder keeps its count, and a new one gets that of `NEW_FOLDER`. On a
machine that does not show its NUMA nodes a new folder gets a shard for every allowed CPU instead.
"""

import logging
from pathlib import Path

from headrace.runtime.pinning import allowed_cpus
from headrace.server.allocation import (
    NEW_FOLDER,
    SYSTEM,
    AllCpus,
    Allocation,
    AllocationError,
    Count,
    Numa,
    Wanted,
    allocate,
    read_topology,
)
from headrace.server.config.sections import ServerConfig
from headrace.server.folders import read_shard_count

__all__ = ["AllocationError", "settle_shards"]

_log = logging.getLogger(__name__)


def settle_shards(config: ServerConfig, *, folder: Path | None) -> Allocation:
    """Return the shards of a node, and log what its operator should know of them.

    The folder is only read; without one the node's folder is new. It is not locked yet: who opens
    it compares its count again.

    Raises:
        AllocationError: They cannot be; the sentence names key, value, origin and numbers.
    """
    wanted, origin = _want(config, folder)
    try:
        allocation = _allocate(config, wanted)
    except AllocationError as error:
        raise AllocationError(f"server.shards = {wanted} ({origin}): {error}") from None
    for warning in allocation.warnings:
        _log.warning("%s", warning)
    return allocation


def _want(config: ServerConfig, folder: Path | None) -> tuple[Wanted, str]:
    if config.server.shards is not None:
        return config.server.shards, config.origin("server.shards")
    kept = None if folder is None else read_shard_count(folder)
    if kept is not None:
        return Count(kept), f"of the folder {folder}"
    return _default(config), "default of a new folder"


def _default(config: ServerConfig) -> Wanted:
    wanted = NEW_FOLDER[config.profile]
    if isinstance(wanted, Numa):
        try:
            read_topology(SYSTEM, allowed_cpus())
        except AllocationError:
            return AllCpus()  # Nobody has asked for NUMA nodes: their lack is no error.
    return wanted


def _allocate(config: ServerConfig, wanted: Wanted) -> Allocation:
    cpus = allowed_cpus()
    return allocate(
        wanted,
        allowed=cpus,
        topology=read_topology(SYSTEM, cpus) if isinstance(wanted, Numa) else None,
        pin_cores=config.server.pin_cores,
        is_given=config.server.shards is not None,
    )
