"""The counters of a node, a command of our own (O8): the protocol's statistics have no room."""

import msgspec

from headrace.wire.codec import TEXT, U16, U32, U64, Counted, Maybe, Record
from headrace.wire.commands.command import Command
from headrace.wire.numbers import Operation


class GetCounters(msgspec.Struct, frozen=True):
    """Asks for the counters of one shard; without it those of all shards are added up."""

    shard: int


class Counter(msgspec.Struct, frozen=True):
    """How often something has happened since the node started, or how much of it there is now."""

    name: str
    value: int


class NodeCounters(msgspec.Struct, frozen=True):
    """How a node was started (`dev` or `serve`), and its counters in the order of their names.

    What has never happened may be missing. `missing` are the shards whose counters are not here,
    because they did not answer in time (O5.9).
    """

    profile: str
    counters: tuple[Counter, ...]
    missing: tuple[int, ...] = ()


NODE_COUNTERS = Record(
    NodeCounters,
    profile=TEXT,
    counters=Counted(U32, Record(Counter, name=TEXT, value=U64)),
    missing=Counted(U16, U16),
)

GET_COUNTERS = Command(
    90_002,
    "get node counters",
    Operation.NON_REPLICATED,
    Maybe(Record(GetCounters, shard=U16)),
    NODE_COUNTERS,
)

COMMANDS = (GET_COUNTERS,)
