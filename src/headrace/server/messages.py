"""What the supervisor and a shard tell each other on their line (`runtime/control.py`)."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from headrace.base.endpoints import Endpoint
from headrace.base.placement import Placement
from headrace.runtime.bus.ends import BusEnds
from headrace.server.config.sections import ServerConfig
from headrace.server.opening import Prepared
from headrace.storage.moments import Moment

# From the supervisor.


class Setup(msgspec.Struct, frozen=True, tag=True):
    """The first message: what the shard is, and what it has inherited."""

    config: ServerConfig
    placement: Placement
    prepared: Prepared
    ends: BusEnds
    flag: int  # the descriptor of the stop flag
    cpus: tuple[int, ...]
    boot_identity: int


class Go(msgspec.Struct, frozen=True, tag=True):
    """All stores of the node are open and of one moment: they may be written."""


class Begin(msgspec.Struct, frozen=True, tag=True):
    """All stores know of this start: groups may begin."""


class Listen(msgspec.Struct, frozen=True, tag=True):
    """All shards have loaded their partitions: accept clients. For shard 0."""

    tcp: Endpoint  # those of the configuration, with the ports that an earlier life has got
    http: Endpoint


# From a shard.


class Opened(msgspec.Struct, frozen=True, tag=True):
    """Its stores are open, and not changed yet."""

    moments: dict[Path, Moment]


class StoresOpen(msgspec.Struct, frozen=True, tag=True):
    """Its stores know of this start."""


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """It has the metadata, and all that its stores and segments hold."""


class Listening(msgspec.Struct, frozen=True, tag=True):
    """The addresses of the node; none where a listener is off."""

    tcp: Endpoint | None
    http: Endpoint | None


class Finished(msgspec.Struct, frozen=True, tag=True):
    """It takes no more requests, and has answered those in flight."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why it ends: a sentence for the operator."""

    sentence: str


FromSupervisor: TypeAlias = Setup | Go | Begin | Listen
FromShard: TypeAlias = Opened | StoresOpen | Loaded | Listening | Finished | Failed
