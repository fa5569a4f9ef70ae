"""Connections of clients: ordered streams that take time, break, and end with their node.

A frame that has left its node may still arrive after the node has crashed, or may not.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

import msgspec

from headrace.base.connection_numbers import home_of, make_connection_id
from headrace.base.prng import Prng
from headrace.ports.network import ConnectionClosed, ConnectionOpened
from headrace.sim.agenda import Agenda, draw_delay
from headrace.sim.chance import strikes
from headrace.wire.numbers import Transport

_PORT_MASK = (1 << 32) - 1


class LinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How good connections are; delays in microseconds, rates in parts of 16,384."""

    delay_mean: int = 300
    breaks: int = 0  # rate of frames at which the connection breaks


class Guest(Protocol):
    """Who holds a connection."""

    def on_frame(self, connection: int, frame: bytes) -> None:
        """Take a frame."""

    def on_closed(self, connection: int) -> None:
        """Learn that a connection is gone."""


class _Link:
    __slots__ = ("due_back", "due_there", "guest", "is_open", "is_there", "node", "number")

    def __init__(self, number: int, node: int, guest: Guest) -> None:
        self.number = number
        self.node = node
        self.guest = guest
        self.is_open = True
        self.is_there = False  # whether the node knows of it
        self.due_there = self.due_back = 0


Arrive = Callable[[int, ConnectionOpened | ConnectionClosed | tuple[int, bytes]], bool]


class Links:
    """All connections; `arrive` hands something to a node and says whether it is up."""

    def __init__(
        self,
        options: LinkOptions,
        prng: Prng,
        agenda: Agenda,
        arrive: Arrive,
        choose_home: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """Make it; `choose_home` says on which shard of a node the next connection lives."""
        self.options = options
        self.events: Counter[str] = Counter()
        self._prng = prng
        self._agenda = agenda
        self._arrive = arrive
        self._links: dict[int, _Link] = {}
        self._number = 0
        self._choose_home = choose_home

    def open(self, node: int, guest: Guest) -> int:
        """Begin to connect; the guest is told if that fails."""
        self._number += 1
        number = make_connection_id(self._choose_home(node), self._number)
        link = self._links[number] = _Link(number, node, guest)
        self._there(link, self._opened, link)
        return link.number

    def send(self, number: int, frame: bytes) -> None:
        """Send a frame to a node."""
        link = self._links.get(number)
        if link is not None and not self._breaks(link):
            self._there(link, self._sent, (link, frame))

    def close(self, number: int) -> None:
        """Close a connection; its guest hears no more of it."""
        link = self._links.pop(number, None)
        if link is not None:
            link.is_open = False
            self._there(link, self._closed_there, link)

    def reply(self, number: int, frame: bytes) -> None:
        """Send a frame of a node back."""
        link = self._links.get(number)
        if link is not None and not self._breaks(link):
            self._back(link, self._replied, (link, frame))

    def closed_by_node(self, number: int) -> None:
        """Close a connection from the node's side, once what was sent has arrived."""
        link = self._links.get(number)
        if link is not None:
            self._back(link, self._closed_here, link)

    def node_down(self, node: int, home: int | None = None) -> None:
        """End all connections of a node, or of one shard; what is under way may still arrive."""
        ended = [link for link in self._links.values() if link.node == node]
        if home is not None:
            ended = [link for link in ended if home_of(link.number) == home]
        for link in ended:
            link.is_there = False
            if self._prng.chance(1, 2):
                link.is_open = False
            self._back(link, self._closed_here, link)

    def _breaks(self, link: _Link) -> bool:
        if not strikes(self._prng, self.options.breaks):
            return False
        self.events["link.broken"] += 1
        link.is_open = False
        self._there(link, self._closed_there, link)
        self._back(link, self._closed_here, link)
        return True

    def _there(self, link: _Link, call: Callable[..., None], argument: object) -> None:
        due = max(link.due_there, self._agenda.now + draw_delay(self._prng, self._mean))
        link.due_there = due
        self._agenda.after(due - self._agenda.now, call, argument)

    def _back(self, link: _Link, call: Callable[..., None], argument: object) -> None:
        due = max(link.due_back, self._agenda.now + draw_delay(self._prng, self._mean))
        link.due_back = due
        self._agenda.after(due - self._agenda.now, call, argument)

    @property
    def _mean(self) -> int:
        return self.options.delay_mean

    def _opened(self, link: _Link) -> None:
        opened = ConnectionOpened(
            link.number, Transport.TCP, f"10.0.0.1:{link.number & _PORT_MASK}"
        )
        link.is_there = link.is_open and self._arrive(link.node, opened)
        if not link.is_there:
            self._back(link, self._closed_here, link)

    def _sent(self, argument: tuple[_Link, bytes]) -> None:
        link, frame = argument
        if link.is_there:
            self._arrive(link.node, (link.number, frame))

    def _closed_there(self, link: _Link) -> None:
        if link.is_there:
            link.is_there = False
            self._arrive(link.node, ConnectionClosed(link.number))

    def _replied(self, argument: tuple[_Link, bytes]) -> None:
        link, frame = argument
        if link.is_open:
            link.guest.on_frame(link.number, frame)

    def _closed_here(self, link: _Link) -> None:
        link.is_open = False
        if self._links.pop(link.number, None) is not None:
            link.guest.on_closed(link.number)
