"""Members of a bus in one process, or as processes of their own, that turn by hand."""

import selectors
import time
from collections.abc import Callable
from typing import Any

from headrace.base.limits import HEADER_BYTES
from headrace.ports.bus import BusEvent, BusFrames, BusRefused, SendToMember
from headrace.ports.network import Buffer
from headrace.runtime.bus.bus import Bus
from headrace.runtime.bus.ends import BusEnds
from headrace.wire.bus.decode import BUS_LAYOUTS
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.numbers import FrameKind
from headrace.wire.replies import REPLY, ReplyHeader
from tests.wire.bus_frames import LAWFUL

WAIT_SECONDS = 20
EVICTED = encode_eviction(EvictionReason.NO_SESSION, client=7)


class Loop:
    """A watcher over a selector, turned by hand."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> None:
        self._set(fd, selectors.EVENT_READ, (callback, args))

    def remove_reader(self, fd: int) -> bool:
        return self._unset(fd, selectors.EVENT_READ)

    def add_writer(self, fd: int, callback: Callable[..., Any], *args: Any) -> None:
        self._set(fd, selectors.EVENT_WRITE, (callback, args))

    def remove_writer(self, fd: int) -> bool:
        return self._unset(fd, selectors.EVENT_WRITE)

    def turn(self, seconds: float = 0) -> None:
        for key, ready in self._selector.select(seconds):
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                if ready & event and event in key.data:
                    callback, args = key.data[event]
                    callback(*args)

    def close(self) -> None:
        self._selector.close()

    def watched(self) -> int:
        return len(self._selector.get_map())

    def _set(self, fd: int, event: int, call: object) -> None:
        known = self._selector.get_map().get(fd)
        if known is None:
            self._selector.register(fd, event, {event: call})
        else:
            self._selector.modify(fd, known.events | event, {**known.data, event: call})

    def _unset(self, fd: int, event: int) -> bool:
        known = self._selector.get_map().get(fd)
        if known is None or not known.events & event:
            return False
        if known.events == event:
            self._selector.unregister(fd)
        else:
            data = {each: call for each, call in known.data.items() if each != event}
            self._selector.modify(fd, known.events & ~event, data)
        return True


class Member:
    """A bus with a loop of its own; remembers what it got."""

    def __init__(self, ends: BusEnds) -> None:
        self.loop = Loop()
        self.bus = Bus(ends)
        self.announced = 0
        self.events: list[BusEvent] = []
        self.bus.attach(self.loop, self._on_news)

    def _on_news(self) -> None:
        self.announced += 1

    def send(self, member: int, *parts: Buffer) -> BusRefused | None:
        return self.bus.send(SendToMember(member, parts))

    def turn(self, seconds: float = 0) -> None:
        self.bus.flush()
        self.loop.turn(seconds)
        self.events += self.bus.take_events()

    def until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_done():
            self.turn(0.01)
            assert time.monotonic() < deadline

    @property
    def frames(self) -> list[tuple[int, Buffer]]:
        return [
            frame for event in self.events if isinstance(event, BusFrames) for frame in event.frames
        ]

    def close(self) -> None:
        self.bus.close()
        self.loop.close()


def request(ticket: int, body: bytes = b"") -> tuple[bytes, bytes]:
    """Return the parts of an envelope."""
    return _parts(FrameKind.FORWARDED_REQUEST, body, ticket=ticket)


def reply(ticket: int, body: bytes = b"") -> tuple[bytes, bytes]:
    """Return the parts of the reply to an envelope; its body is a reply with this body."""
    inner = REPLY.encode(ReplyHeader(size=HEADER_BYTES + len(body))) + body
    return _parts(FrameKind.FORWARDED_REPLY, inner, ticket=ticket)


def gathered(number: int, body: bytes = b"") -> tuple[bytes, bytes]:
    """Return the parts of an answer that carries any body."""
    return _parts(FrameKind.GATHERED, body, number=number)


def _parts(kind: FrameKind, body: bytes, **fields: int) -> tuple[bytes, bytes]:
    layout = BUS_LAYOUTS[kind]
    own = {"size": HEADER_BYTES + len(body), **LAWFUL[kind][0], **fields}
    return layout.encode(layout.made(**own)), body


def number_of(frame: Buffer) -> int:
    """Return the number or the ticket of a frame."""
    at = BUS_LAYOUTS[frame[60]].at("number" if frame[60] == FrameKind.GATHERED else "ticket")
    return int.from_bytes(frame[at : at + 8], "little")
