"""How many requests of a lane crossed the bus: a lane that stays on one shard proves nothing.

A lane asks its nodes before they end (`note`). The figures of all its workers are added up, are
printed at the end of the run, and fail it below one third (`conftest.py`).
"""

from contextlib import closing
from dataclasses import dataclass
from uuid import uuid4

from headrace.wire.commands.counters import GET_COUNTERS
from tests.e2e.raw import RawClient
from tests.node import SHARDS, Node


@dataclass
class Crossings:
    """What shards have received from clients, and what of it they have passed on to others."""

    received: int = 0
    forwarded: int = 0

    def add(self, *, received: int, forwarded: int) -> None:
        assert 0 <= forwarded <= received, f"{forwarded} of {received}"
        self.received += received
        self.forwarded += forwarded

    @property
    def are_enough(self) -> bool:
        """Whether the lane has used the bus; one that has noted nothing need not."""
        return 3 * self.forwarded >= self.received

    def describe(self) -> str:
        share = self.forwarded / max(self.received, 1)
        told = f"{self.forwarded} of {self.received} requests crossed the bus ({share:.0%})"
        return told if self.are_enough else f"FAILED: {told}, less than one third"


of_this_process = Crossings()


def note(node: Node) -> None:
    """Add what the shards of a node have counted since its last start; root logs in to ask."""
    if SHARDS == 1:
        return
    with closing(RawClient(node.tcp, uuid4().int)) as client:
        client.login()
        told = client.call(GET_COUNTERS, None)
    assert not told.missing, f"shards {told.missing} do not answer"
    counts = {each.name: each.value for each in told.counters}
    of_this_process.add(
        received=counts["requests.received"], forwarded=counts.get("requests.forwarded", 0)
    )
