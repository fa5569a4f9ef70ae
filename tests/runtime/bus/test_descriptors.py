"""SH-24: accepted sockets change hands, and none is left open."""

import os
import socket
from collections.abc import Iterator

import pytest

from headrace.ports.bus import BusRefused, DropReason, FrameLost
from headrace.runtime.bus.bus import Bus
from headrace.runtime.bus.descriptors import DescriptorReceiver, DescriptorSender, Handed
from headrace.runtime.bus.ends import make_bus
from headrace.wire.bus.handover import ConnectionSetupHeader, SlotHeader
from headrace.wire.bus.prefix import encode_prefix
from headrace.wire.numbers import FrameKind
from tests.wire.bus_frames import CONNECTION, bus_frame

SETUP = bus_frame(FrameKind.CONNECTION_SETUP)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no path is made of them


class Pair:
    """Both ends, and the raw one that shard 0 writes to."""

    def __init__(self) -> None:
        made = make_bus(3)
        self._buses = [Bus(made.keep(0)), Bus(made.keep(2))]
        made.close()
        self.raw = self._buses[0].take_handover(2)
        self.sender = DescriptorSender(self.raw, own=0, member=2)
        self.receiver = DescriptorReceiver(self._buses[1].take_handover(0), own=2)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        for bus in self._buses:
            bus.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    before = open_descriptors()
    pair = Pair()
    yield pair
    pair.close()
    assert open_descriptors() == before


def accepted() -> tuple[socket.socket, socket.socket]:
    """Return a client's socket, and that of the server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    return client, server


def test_a_client_is_served_by_the_shard_that_got_it(pair: Pair) -> None:
    client, server = accepted()
    client.sendall(b"not read before")
    assert pair.sender.hand_over(SETUP, server) is None
    assert server.fileno() == -1  # No copy stays.
    (handed,) = pair.receiver.receive()
    assert isinstance(handed, Handed)
    assert handed.kind == FrameKind.CONNECTION_SETUP
    assert isinstance(handed.header, ConnectionSetupHeader)
    assert handed.header.connection == CONNECTION
    assert handed.address == "127.0.0.1:8090"
    assert not handed.socket.get_inheritable()
    with client, handed.socket:
        assert handed.socket.recv(100) == b"not read before"
        handed.socket.sendall(b"answer")
        assert client.recv(100) == b"answer"
    assert list(pair.receiver.receive()) == []
    assert pair.receiver.is_open


def test_a_replica_is_handed_over_with_its_slot(pair: Pair) -> None:
    client, server = accepted()
    assert pair.sender.hand_over(bus_frame(FrameKind.REPLICA_INBOUND_SETUP), server) is None
    (handed,) = pair.receiver.receive()
    assert isinstance(handed, Handed)
    assert handed.header == SlotHeader(slot=255)
    handed.socket.close()
    client.close()


def test_a_shard_that_takes_none_is_refused_and_the_client_sees_the_end(pair: Pair) -> None:
    refused: list[BusRefused] = []
    clients = []
    before = open_descriptors()
    while not refused:
        client, server = accepted()
        clients.append(client)
        answer = pair.sender.hand_over(SETUP, server)
        assert server.fileno() == -1
        if answer is not None:
            refused.append(answer)
        assert len(clients) < 2000
    kind = int(FrameKind.CONNECTION_SETUP)
    assert refused == [BusRefused(2, kind, 0, DropReason.FULL)]
    assert clients[-1].recv(10) == b""  # Both copies are closed.
    assert open_descriptors() == before + len(clients)
    taken = [handed for handed in pair.receiver.receive() if isinstance(handed, Handed)]
    assert len(taken) == len(clients) - 1
    for each in (*clients, *(handed.socket for handed in taken)):
        each.close()


def test_a_shard_that_does_not_keep_up_has_no_room_before_it_refuses(pair: Pair) -> None:
    """SH-24: so a burst of connections finds other homes."""
    clients = []
    while pair.sender.has_room():
        client, server = accepted()
        clients.append(client)
        assert pair.sender.hand_over(SETUP, server) is None
        assert len(clients) < 2000
    taken = [handed for handed in pair.receiver.receive() if isinstance(handed, Handed)]
    assert len(taken) == len(clients) > 1
    assert pair.sender.has_room()
    for each in (*clients, *(handed.socket for handed in taken)):
        each.close()


def test_a_shard_that_is_gone_gets_none(pair: Pair) -> None:
    pair.receiver.close()
    assert not pair.sender.has_room()
    client, server = accepted()
    kind = int(FrameKind.CONNECTION_SETUP)
    assert pair.sender.hand_over(SETUP, server) == BusRefused(2, kind, 0, DropReason.DISCONNECTED)
    assert server.fileno() == -1
    with client:
        assert client.recv(10) == b""


def test_sockets_that_nobody_received_are_closed_with_the_end(pair: Pair) -> None:
    client, server = accepted()
    assert pair.sender.hand_over(SETUP, server) is None
    pair.receiver.close()
    with client:
        assert client.recv(10) == b""


def test_the_end_of_shard_0_is_seen(pair: Pair) -> None:
    client, server = accepted()
    pair.sender.hand_over(SETUP, server)
    pair.sender.close()
    (handed,) = pair.receiver.receive()
    assert isinstance(handed, Handed)
    assert list(pair.receiver.receive()) == []
    assert not pair.receiver.is_open
    handed.socket.close()
    client.close()


def message(frame: bytes, *, target: int = 2, sender: int = 0) -> bytes:
    return encode_prefix(len(frame), target=target, sender=sender) + frame


@pytest.mark.parametrize(
    ("data", "count", "kind"),
    [
        (message(SETUP), 0, 40),
        (message(SETUP), 2, 40),
        (message(SETUP), 7, 40),
        (message(SETUP, target=1), 1, 40),
        (message(SETUP, sender=1), 1, 40),
        (message(SETUP) + b"x", 1, 40),
        (message(SETUP)[:-1], 1, 40),
        (message(bus_frame(FrameKind.GATHER)), 1, 50),
        (message(bus_frame(FrameKind.REPLICA_INBOUND_DONE)), 1, 42),
        (message(bus_frame(FrameKind.CONNECTION_SETUP, connection=0)), 1, 40),
        (message(bytes(256)), 1, 0),
        (b"x", 1, 0),
        (bytes(5000), 1, 0),
    ],
)
def test_what_cannot_be_used_is_closed(pair: Pair, data: bytes, count: int, kind: int) -> None:
    client, server = accepted()
    before = open_descriptors()
    socket.send_fds(pair.raw, [data], [server.fileno()] * count)
    (lost,) = pair.receiver.receive()
    assert lost == FrameLost(0, kind, DropReason.DELIVERY_FAILED)
    assert open_descriptors() == before
    server.close()
    with client:
        assert client.recv(10) == b""
    assert pair.receiver.is_open


def test_a_descriptor_that_is_no_socket_is_closed(pair: Pair) -> None:
    reading, writing = os.pipe()
    before = open_descriptors()
    socket.send_fds(pair.raw, [message(SETUP)], [reading])
    (lost,) = pair.receiver.receive()
    assert isinstance(lost, FrameLost)
    assert open_descriptors() == before
    os.close(reading)
    os.close(writing)
