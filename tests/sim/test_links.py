"""Connections of simulated clients: in order, and over with their node."""

from headrace.base.prng import Prng
from headrace.ports.network import ConnectionClosed, ConnectionOpened
from headrace.sim.agenda import Agenda
from headrace.sim.links import LinkOptions, Links


class Guest:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed: list[int] = []

    def on_frame(self, connection: int, frame: bytes) -> None:
        self.frames.append(frame)

    def on_closed(self, connection: int) -> None:
        self.closed.append(connection)


class Stage:
    def __init__(self, *, breaks: int = 0, seed: int = 1) -> None:
        self.agenda = Agenda()
        self.guest = Guest()
        self.is_up = True
        self.arrived: list[ConnectionOpened | ConnectionClosed | tuple[int, bytes]] = []
        self.links = Links(LinkOptions(breaks=breaks), Prng(seed), self.agenda, self._arrive)

    def _arrive(
        self, node: int, event: ConnectionOpened | ConnectionClosed | tuple[int, bytes]
    ) -> bool:
        if self.is_up:
            self.arrived.append(event)
        return self.is_up

    def run(self) -> None:
        while len(self.agenda):
            self.agenda.run_next()


def test_frames_arrive_in_order_after_the_connection() -> None:
    stage = Stage()
    number = stage.links.open(0, stage.guest)
    for name in b"abcdefgh":
        stage.links.send(number, bytes((name,)))
    stage.run()
    assert isinstance(stage.arrived[0], ConnectionOpened)
    assert stage.arrived[1:] == [(number, bytes((name,))) for name in b"abcdefgh"]


def test_answers_come_back_in_order_until_the_node_closes() -> None:
    stage = Stage()
    number = stage.links.open(0, stage.guest)
    stage.run()
    for name in b"abc":
        stage.links.reply(number, bytes((name,)))
    stage.links.closed_by_node(number)
    stage.run()
    assert stage.guest.frames == [b"a", b"b", b"c"]
    assert stage.guest.closed == [number]


def test_a_node_that_is_down_refuses() -> None:
    stage = Stage()
    stage.is_up = False
    number = stage.links.open(0, stage.guest)
    stage.links.send(number, b"lost")
    stage.run()
    assert stage.guest.closed == [number]
    assert stage.arrived == []


def test_a_client_that_closes_hears_no_more() -> None:
    stage = Stage()
    number = stage.links.open(0, stage.guest)
    stage.run()
    stage.links.reply(number, b"late")
    stage.links.close(number)
    stage.run()
    assert (stage.guest.frames, stage.guest.closed) == ([], [])
    assert stage.arrived[-1] == ConnectionClosed(number)


def test_what_has_left_a_node_may_arrive_after_its_end() -> None:
    heard = set()
    for seed in range(20):
        stage = Stage(seed=seed)
        number = stage.links.open(0, stage.guest)
        stage.run()
        stage.links.reply(number, b"last")
        stage.links.node_down(0)
        stage.run()
        assert stage.guest.closed == [number]
        heard.add(tuple(stage.guest.frames))
    assert heard == {(), (b"last",)}


def test_a_connection_that_breaks_is_over_for_both() -> None:
    stage = Stage(breaks=1 << 14)
    number = stage.links.open(0, stage.guest)
    stage.run()
    stage.links.send(number, b"lost")
    stage.run()
    assert stage.guest.closed == [number]
    assert stage.arrived[-1] == ConnectionClosed(number)
    assert stage.links.events == {"link.broken": 1}
