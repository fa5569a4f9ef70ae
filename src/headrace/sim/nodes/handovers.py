"""Connections of nodes of several shards: shard 0 accepts, and hands each to its home (SH-24).

What a client does reaches the home alone. A descriptor travels on a way of its own, so its arrival
has no order among the frames of the lanes; it leaves once shard 0 knows of the connection. A home
that is gone, or whose queue is full, cannot be given one: both copies are closed.
"""

from collections import Counter
from collections.abc import Callable

from headrace.base.connection_numbers import home_of
from headrace.base.prng import Prng
from headrace.ports.network import ConnectionClosed, ConnectionOpened
from headrace.sim.agenda import Agenda, draw_delay
from headrace.sim.chance import strikes
from headrace.sim.inbox import Connected

_DELAY_MEAN = 150

Deliver = Callable[[int, Connected, int], bool]  # to a shard of a node; whether it is up


class Handovers:
    """The connections of all nodes that are not with their home yet."""

    def __init__(
        self,
        prng: Prng,
        agenda: Agenda,
        deliver: Deliver,
        close: Callable[[int], None],
        refused: int = 0,
    ) -> None:
        """Make it; `close` tells the client, `refused` is the rate of refused descriptors."""
        self.events: Counter[str] = Counter()
        self._prng = prng
        self._agenda = agenda
        self._deliver = deliver
        self._close = close
        self._refused = refused
        # By connection: its node, and what its client has done.
        self._waiting: dict[int, tuple[int, list[Connected]]] = {}

    def arrive(self, node: int, event: Connected) -> bool:
        """Take what a client does; return whether the node is up for it."""
        number = event[0] if isinstance(event, tuple) else event.connection
        home = home_of(number)
        if home == 0:
            return self._deliver(node, event, 0)
        if isinstance(event, ConnectionOpened):
            is_up = self._deliver(node, event, 0)
            if is_up:
                self._waiting[number] = (node, [event])
            return is_up
        if number in self._waiting:
            self._waiting[number][1].append(event)
            return True
        return self._deliver(node, event, home)

    def accepted(self, node: int, event: ConnectionOpened) -> None:
        """Hand over a connection that shard 0 has taken note of."""
        if event.connection in self._waiting:
            delay = draw_delay(self._prng, _DELAY_MEAN)
            self._agenda.after(delay, self._hand_over, (node, event.connection))

    def _hand_over(self, argument: tuple[int, int]) -> None:
        node, number = argument
        if number not in self._waiting:
            return  # Its node has ended meanwhile.
        _, waiting = self._waiting.pop(number)
        is_refused = strikes(self._prng, self._refused)
        if is_refused or not self._deliver(node, waiting[0], home_of(number)):
            self.events["handover.refused"] += 1
            self._deliver(node, ConnectionClosed(number), 0)
            self._close(number)
            return
        self.events["handover.done"] += 1
        for event in waiting[1:]:
            self._deliver(node, event, home_of(number))

    def node_down(self, node: int) -> None:
        """Forget the connections of a node that has ended, or whose shard 0 has."""
        for number in [each for each, waits in self._waiting.items() if waits[0] == node]:
            del self._waiting[number]
