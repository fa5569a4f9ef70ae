"""Events about the machine of the core, and effects beside files and sockets."""

from typing import TypeAlias

import msgspec

from headrace.wire.numbers import SnapshotCompression, SnapshotType


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the process and its machine; times in microseconds."""

    process_id: int = 0
    cpu_usage: float = 0.0
    total_cpu_usage: float = 0.0
    memory_usage: int = 0
    total_memory: int = 0
    available_memory: int = 0
    start_time: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    hostname: str = ""
    os_name: str = ""
    os_version: str = ""
    kernel_version: str = ""
    threads_count: int = 0
    free_disk_space: int = 0
    total_disk_space: int = 0
    counters: tuple[tuple[str, int], ...] = ()  # of work outside the core


class HostSampled(msgspec.Struct, frozen=True):
    """The current facts, about once a second."""

    facts: HostFacts


class MakeSnapshot(msgspec.Struct, frozen=True):
    """Pack a diagnostic archive; answered by `SnapshotMade`."""

    token: int
    compression: SnapshotCompression
    types: tuple[SnapshotType, ...]


class SnapshotMade(msgspec.Struct, frozen=True):
    """The archive, or None if it could not be made."""

    token: int
    data: bytes | None


class StopWanted(msgspec.Struct, frozen=True):
    """The node must stop: make everything durable and mark the stop as clean (SH-23)."""


class WantTurn(msgspec.Struct, frozen=True):
    """Begin another turn soon, after what has arrived meanwhile; answered by `TurnBegun`."""


class TurnBegun(msgspec.Struct, frozen=True):
    """The turn that was wanted: it takes what waits inside the core, and nothing else."""


HostEffect: TypeAlias = MakeSnapshot | WantTurn
HostEvent: TypeAlias = HostSampled | SnapshotMade | StopWanted | TurnBegun
