"""Cuts off whoever leads, long enough that the others go on without it.

Clients still reach such a node. It must not tell them as current what the others have changed by
then (O6.2), and by chance alone hardly any run comes to that.
"""

from headrace.base.prng import Prng
from headrace.sim.agenda import Agenda, draw_delay
from headrace.sim.nodes.cluster import Cluster
from headrace.sim.nodes.options import DeposeOptions


class Deposer:
    """Strikes as long as `is_over` is false."""

    def __init__(
        self, options: DeposeOptions, prng: Prng, agenda: Agenda, cluster: Cluster
    ) -> None:
        self.is_over = False
        self._options = options
        self._prng = prng
        self._agenda = agenda
        self._cluster = cluster
        if options.mean:
            self._agenda.after(draw_delay(prng, options.mean), self._cut_off, None)

    def _cut_off(self, _: None) -> None:
        leaders = [
            host.index
            for host in self._cluster.hosts
            if any(replica.is_serving for replica in host.replicas().values())
        ]
        if self.is_over:
            return
        if leaders:
            self._cluster.count("world.deposed")
            self._cluster.network.isolate([self._prng.choice(leaders)])
        length = self._prng.between(self._options.length, 2 * self._options.length)
        self._agenda.after(length, self._end, None)

    def _end(self, _: None) -> None:
        if not self.is_over:
            self._cluster.network.heal()
            self._agenda.after(draw_delay(self._prng, self._options.mean), self._cut_off, None)
