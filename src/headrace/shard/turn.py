"""What every part of a shard has at hand in a turn, and how a stage of it is woken."""

from itertools import count
from typing import TYPE_CHECKING

from headrace.ports.probes import Probes
from headrace.shard.consensus.clock import Clock
from headrace.shard.drops import Drops

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.shard.effects import ShardEffect


class Turn:
    """The time, the effects of this turn, marks, drops, and numbers for what is answered later."""

    __slots__ = ("clock", "drops", "new_token", "out", "probes")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.out: list[ShardEffect] = []
        self.probes = Probes()
        self.drops = Drops()
        self.new_token: Callable[[], int] = count(1).__next__


class Wake:
    """Whether a stage of the turn has work; whoever makes work for it sets this."""

    __slots__ = ("is_awake",)

    def __init__(self, *, is_awake: bool = False) -> None:
        self.is_awake = is_awake
