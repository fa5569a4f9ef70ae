"""The simulated network."""

from collections.abc import Callable

import msgspec

from headrace.base.prng import Prng
from headrace.sim.agenda import Agenda, exponential
from headrace.sim.network import Network, NetworkOptions
from headrace.wire.layout import CLUSTER_OFFSET, KIND_OFFSET
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.prepares import PREPARE_OK, PrepareOkHeader
from headrace.wire.replica.seals import is_sealed, seal

CLIENT = 1_000
EVERYTHING = 1 << 14


class Bench:
    """Three replicas and a client, and what reached whom."""

    def __init__(self, seed: int = 1, **options: int) -> None:
        self.agenda = Agenda()
        bad = msgspec.structs.replace(NetworkOptions(), **options)
        self.network = Network(bad, Prng(seed), self.agenda, 3)
        self.arrived: list[tuple[int, int, int, bytes]] = []
        for endpoint in (0, 1, 2, CLIENT):
            self.network.attach(endpoint, self.receiver(endpoint))

    def receiver(self, target: int) -> Callable[[int, bytes, int], None]:
        return lambda source, frame, _: self.arrived.append(
            (self.agenda.now, source, target, frame)
        )

    def drain(self) -> list[bytes]:
        while self.agenda:
            self.agenda.run_next()
        frames = [frame for *_, frame in self.arrived]
        self.arrived.clear()
        return frames


def frame(number: int, kind: int = FrameKind.PREPARE_OK) -> bytes:
    data = bytearray(seal(PREPARE_OK.encode(PrepareOkHeader(op=number))))
    data[KIND_OFFSET] = kind
    return bytes(data)


def test_a_good_network_delivers_everything_later() -> None:
    bench = Bench(delay_min=100, delay_mean=0)
    bench.network.send(0, 1, frame(1))
    assert bench.arrived == []
    assert bench.drain() == [frame(1)]
    assert bench.agenda.now == 100


def test_delays_have_the_mean_they_should_and_reorder() -> None:
    bench = Bench(delay_min=0, delay_mean=1_000)
    for number in range(1, 2_000):
        bench.network.send(0, 1, frame(number))
    while bench.agenda:
        bench.agenda.run_next()
    times = [now for now, *_ in bench.arrived]
    assert 900 < sum(times) / len(times) < 1_100
    assert [row[3] for row in bench.arrived] != [frame(number) for number in range(1, 2_000)]
    assert max(exponential(draw, 1_000) for draw in range(1024)) > 6_000


def test_an_ordered_link_keeps_the_order() -> None:
    bench = Bench(delay_mean=1_000)
    bench.network.heal(NetworkOptions(delay_mean=1_000, is_ordered=True))
    for number in range(1, 200):
        bench.network.send(0, 1, frame(number))
    assert bench.drain() == [frame(number) for number in range(1, 200)]


def test_loss_duplication_and_capacity() -> None:
    lossy = Bench(loss=EVERYTHING // 2)
    twice = Bench(duplicate=EVERYTHING)
    narrow = Bench(capacity=3)
    for number in range(1, 201):
        for bench in (lossy, twice, narrow):
            bench.network.send(0, 1, frame(number))
    assert 60 < len(lossy.drain()) < 140
    assert len(twice.drain()) == 400
    assert len(narrow.drain()) == 3
    assert narrow.network.events["network.overflowed"] == 197


def test_a_damaged_frame_is_never_sealed_and_never_a_clients() -> None:
    bench = Bench(corrupt=EVERYTHING)
    for number in range(1, 301):
        bench.network.send(0, 1, frame(number))
        bench.network.send(CLIENT, 1, frame(number))
    while bench.agenda:
        bench.agenda.run_next()
    for _, source, _, data in bench.arrived:
        is_whole = len(data) == 256 and is_sealed(data)
        assert is_whole == (source == CLIENT)


def test_partitions_one_way_and_of_one_kind() -> None:
    bench = Bench()
    bench.network.cut([(0, 1)])
    bench.network.send(0, 1, frame(1))
    bench.network.send(1, 0, frame(2))
    assert bench.drain() == [frame(2)]
    bench.network.heal()
    bench.network.cut_kind(FrameKind.PREPARE)
    bench.network.send(0, 1, frame(3, FrameKind.PREPARE))
    bench.network.send(0, 1, frame(4))
    assert bench.drain() == [frame(4)]
    bench.network.heal()
    bench.network.isolate([0, 1])
    for target in (1, 2):
        bench.network.send(0, target, frame(target))
    bench.network.send(CLIENT, 2, frame(5))
    assert sorted(bench.drain()) == sorted([frame(1), frame(5)])


def test_a_clogged_link_bursts() -> None:
    bench = Bench()
    bench.network.clog((0, 1), 50_000)
    for number in (1, 2, 3):
        bench.network.send(0, 1, frame(number))
    assert len(bench.drain()) == 3
    assert bench.agenda.now == 50_000
    assert bench.network.events["network.clogged"] == 3


def test_frames_of_an_earlier_life_come_back() -> None:
    bench = Bench(stale=EVERYTHING)
    for number in range(1, 100):
        bench.network.send(0, 1, frame(number))
        bench.network.send(1, 2, frame(number))
    sent = bench.drain()
    bench.network.replay(0)
    again = bench.drain()
    assert again
    foreign = [data for data in again if data not in sent]
    assert foreign
    assert all(is_sealed(data) and data[CLUSTER_OFFSET] for data in foreign)


def test_equal_seeds_give_equal_arrivals() -> None:
    rows = []
    for seed in (5, 5, 6):
        bench = Bench(seed, loss=3_000, duplicate=3_000, corrupt=3_000, delay_mean=900)
        for number in range(1, 100):
            bench.network.send(0, 1, frame(number))
        while bench.agenda:
            bench.agenda.run_next()
        rows.append(bench.arrived)
    assert rows[0] == rows[1] != rows[2]
