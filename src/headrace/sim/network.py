"""The network of a simulation: it carries encoded bytes, late, twice, damaged or not at all.

Invariants: a frame that arrives unchanged was sent on that link; what is drawn depends on the order
            of sends alone.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.sim.agenda import Agenda, exponential
from headrace.sim.chance import RATE
from headrace.wire.layout import CLUSTER_OFFSET, KIND_OFFSET
from headrace.wire.replica.seals import seal

_KEPT_MAX = 64

Packet = tuple[int, int, bytes, int]  # source, target, frame, and which part of them
Receiver = Callable[[int, bytes, int], None]


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How bad the network is; delays in microseconds, rates in parts of 16,384."""

    delay_min: int = 100
    delay_mean: int = 500
    loss: int = 0
    duplicate: int = 0
    corrupt: int = 0
    stale: int = 0
    is_ordered: bool = False  # frames of one link stay in order, as on a connection
    capacity: int = 1_000  # packets under way on one link; what comes on top is dropped


class Network:
    """Links between endpoints; every endpoint is a number with a receiver."""

    def __init__(
        self,
        options: NetworkOptions,
        prng: Prng,
        agenda: Agenda,
        replica_count: int,
    ) -> None:
        self.options = options
        self.events: Counter[str] = Counter()
        self._prng = prng
        self._agenda = agenda
        self._replica_count = replica_count
        self._receivers: dict[int, Receiver] = {}
        self._cut: dict[tuple[int, int], None] = {}
        self._cut_kinds: dict[int, None] = {}
        self._clogged: dict[tuple[int, int], int] = {}
        self._under_way: dict[tuple[int, int, int], int] = {}  # each part has links of its own
        self._due: dict[tuple[int, int, int], int] = {}
        self._kept: list[Packet] = []

    def attach(self, endpoint: int, receiver: Receiver) -> None:
        """Attach the receiver of an endpoint: it is called with sender, frame and part."""
        self._receivers[endpoint] = receiver

    def send(self, source: int, target: int, frame: bytes, part: int = 0) -> None:
        """Take a frame between equal parts; it arrives later, once, twice, changed, or never."""
        options = self.options
        draw = self._prng.u64()  # one draw decides all: 14 bits a rate, 10 a delay, 12 a copy
        if draw & RATE - 1 < options.loss:
            self.events["network.lost"] += 1
            return
        between_replicas = source < self._replica_count and target < self._replica_count
        if between_replicas:
            if draw >> 14 & RATE - 1 < options.corrupt:
                self.events["network.corrupted"] += 1
                frame = self._corrupt(frame)
            if draw >> 28 & RATE - 1 < options.stale:
                self._keep((source, target, frame, part))
        delay = options.delay_min + exponential(draw >> 42, options.delay_mean)
        self._plan(delay, (source, target, frame, part))
        if draw >> 52 < options.duplicate >> 2:
            self.events["network.duplicated"] += 1
            again = exponential(self._prng.u64(), 4 * options.delay_mean)
            self._plan(options.delay_min + again, (source, target, frame, part))

    def cut(self, links: list[tuple[int, int]]) -> None:
        """Let nothing pass on these links, until `heal`."""
        self._cut = dict.fromkeys(links)

    def cut_kind(self, kind: int) -> None:
        """Let no frame of this kind pass between replicas, until `heal` (NW5)."""
        self._cut_kinds[kind] = None

    def clog(self, link: tuple[int, int], until: int) -> None:
        """Hold everything on a link until then; it bursts out after (NW6)."""
        self._clogged[link] = until

    def heal(self, options: NetworkOptions | None = None) -> None:
        """End cuts and clogs; maybe with other rates from now on."""
        self._cut.clear()
        self._cut_kinds.clear()
        self._clogged.clear()
        if options is not None:
            self.options = options

    def isolate(self, keep: list[int]) -> None:
        """Cut every link between replicas that leads out of the group that is kept, or into it."""
        everyone = range(self._replica_count)
        self.cut([(a, b) for a in everyone for b in everyone if (a in keep) != (b in keep)])

    def replay(self, replica: int) -> None:
        """Bring frames of an earlier life, and of another cluster, to a replica (NW8)."""
        for source, target, frame, part in self._kept:
            if replica not in (source, target):
                continue
            self.events["network.stale"] += 1
            self._plan(exponential(self._prng.u64(), 2_000), (source, target, frame, part))
            if self._prng.chance(1, 8):
                self._plan(0, (source, target, _of_another_cluster(frame), part))

    def _plan(self, delay: int, packet: Packet) -> None:
        link = (packet[0], packet[1], packet[3])
        under_way = self._under_way.get(link, 0)
        if under_way >= self.options.capacity:
            self.events["network.overflowed"] += 1
            return
        self._under_way[link] = under_way + 1
        if self.options.is_ordered:
            due = max(self._due.get(link, 0), self._agenda.now + delay)
            self._due[link] = due
            delay = due - self._agenda.now
        self._agenda.after(delay, self._arrive, packet)

    def _arrive(self, packet: Packet) -> None:
        source, target, frame, part = packet
        link = (source, target)
        self._under_way[source, target, part] -= 1
        if self._clogged:
            until = self._clogged.get(link, 0)
            if until > self._agenda.now:
                self.events["network.clogged"] += 1
                self._plan(until - self._agenda.now, packet)
                return
        if link in self._cut or (
            self._cut_kinds
            and frame[KIND_OFFSET] in self._cut_kinds
            and source < self._replica_count
            and target < self._replica_count
        ):
            self.events["network.cut"] += 1
            return
        self._receivers[target](source, frame, part)

    def _corrupt(self, frame: bytes) -> bytes:
        changed = bytearray(frame)
        bit = self._prng.below(8 * len(changed))
        changed[bit >> 3] ^= 1 << (bit & 7)
        if self._prng.chance(1, 8):
            del changed[self._prng.between(KIND_OFFSET + 1, len(changed)) :]
        return bytes(changed)

    def _keep(self, packet: Packet) -> None:
        if len(self._kept) < _KEPT_MAX:
            self._kept.append(packet)
        else:
            self._kept[self._prng.below(_KEPT_MAX)] = packet


def _of_another_cluster(frame: bytes) -> bytes:
    if len(frame) < HEADER_BYTES:
        return frame
    header = bytearray(frame[:HEADER_BYTES])
    header[CLUSTER_OFFSET] ^= 0xFF
    return seal(bytes(header)) + frame[HEADER_BYTES:]
