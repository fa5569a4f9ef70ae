"""Events about the machine of the core, and effects beside files and sockets."""

from typing import TypeAlias

import msgspec

from headrace.wire.numbers import SnapshotCompression, SnapshotType


class LaneFacts(msgspec.Struct, frozen=True):
    """What waits for one other member of the bus, in frames."""

    member: int
    main: int  # on the main lane
    reply: int  # on the lane of replies
    places: int  # of replies that are taken: requests to it that wait for one


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
    cpus: tuple[int, ...] = ()  # that the process is pinned to; none if it is not
    lanes: tuple[LaneFacts, ...] = ()  # to the other members, if there are any


class HostSampled(msgspec.Struct, frozen=True):
    """The current facts, about once a second."""

    facts: HostFacts


class MakeSnapshot(msgspec.Struct, frozen=True):
    """Pack a diagnostic archive; answered by `SnapshotMade`.

    `texts` are entries that the core has made, each with its name.
    """

    token: int
    compression: SnapshotCompression
    types: tuple[SnapshotType, ...]
    texts: tuple[tuple[str, str], ...] = ()


class SnapshotMade(msgspec.Struct, frozen=True):
    """The archive, or None if it could not be made."""

    token: int
    data: bytes | None


class NodeOpened(msgspec.Struct, frozen=True):
    """All stores of all shards of the node know of this start: their groups may begin (DK16).

    A shard that is alone is not told: it knows its stores.
    """


class StopWanted(msgspec.Struct, frozen=True):
    """The node must stop: make everything durable and mark the stop as clean (SH-23)."""


class WantTurn(msgspec.Struct, frozen=True):
    """Begin another turn soon, after what has arrived meanwhile; answered by `TurnBegun`."""


class TurnBegun(msgspec.Struct, frozen=True):
    """The turn that was wanted: it takes what waits inside the core, and nothing else."""


HostEffect: TypeAlias = MakeSnapshot | WantTurn
HostEvent: TypeAlias = HostSampled | SnapshotMade | NodeOpened | StopWanted | TurnBegun
