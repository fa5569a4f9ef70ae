"""The counters of a node, a command of our own (O8): the protocol's statistics have no room."""

import msgspec

from headrace.wire.codec import NOTHING, TEXT, U32, U64, Counted, Record
from headrace.wire.commands.command import Command
from headrace.wire.numbers import Operation


class Counter(msgspec.Struct, frozen=True):
    """How often something has happened since the node started, or how much of it there is now."""

    name: str
    value: int


class NodeCounters(msgspec.Struct, frozen=True):
    """How a node was started (`dev` or `serve`), and its counters in the order of their names.

    What has never happened may be missing.
    """

    profile: str
    counters: tuple[Counter, ...]


GET_COUNTERS = Command(
    90_002,
    "get node counters",
    Operation.NON_REPLICATED,
    NOTHING,
    Record(
        NodeCounters,
        profile=TEXT,
        counters=Counted(U32, Record(Counter, name=TEXT, value=U64)),
    ),
)

COMMANDS = (GET_COUNTERS,)
