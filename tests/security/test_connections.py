"""Connections that want nothing but harm: many, slow, idle, too large. Others do not notice."""

import resource
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from headrace.base.limits import KIB, MIB
from headrace.wire.commands import messages, streams, topics
from headrace.wire.commands.counters import GET_COUNTERS
from headrace.wire.commands.system import PING
from headrace.wire.commands.table import AnyCommand
from headrace.wire.layout import SIZE_OFFSET
from tests.e2e.raw import ANSWER_SECONDS_MAX, RawClient
from tests.node import Node, running_node
from tests.security.house import STREAM, TOPIC, House
from tests.security.requests import REQUESTS

pytestmark = pytest.mark.slow

LORIS = 1_000
BEFORE_LOGIN_MAX = 500  # the defaults, as the configuration page has them
PER_ADDRESS_MAX = 1_000
FRAME_BYTES_BEFORE_LOGIN = 64 * KIB
DESCRIPTORS = 4_096
AT_A_TIME = 50  # a shard that has been handed more than it can take loses them
BYTES_EACH = 20  # of a frame that never ends
# Where the caps are looked at, no deadline may close anybody, however slow the machine is.
PATIENT = {"HEADRACE_TCP_HANDSHAKE_TIMEOUT": "1 h", "HEADRACE_TCP_LOGIN_TIMEOUT": "1 h"}
WORK: tuple[AnyCommand, ...] = (PING, messages.SEND_MESSAGES, messages.POLL_MESSAGES)


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Let this process, and the nodes that it starts, have as many connections as they need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"this lane needs {DESCRIPTORS} descriptors, the hard limit is {hard}")
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect_from(node: Node, host: str) -> socket.socket:
    """Give a connection from an address of the loopback."""
    return socket.create_connection(node.tcp, timeout=ANSWER_SECONDS_MAX, source_address=(host, 0))


def is_closed(connection: socket.socket) -> bool:
    """Whether the node has ended a connection on which it says nothing."""
    waiting = select.poll()  # `select` itself knows only the first 1,024 descriptors.
    waiting.register(connection, select.POLLIN)
    if not waiting.poll(0):
        return False
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def wait_closed(connection: socket.socket) -> None:
    """Wait until the node ends a connection; what it still says before is passed over."""
    with suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass


def trickle(connections: list[socket.socket], byte: bytes) -> None:
    """Send one more byte on each; those that were closed do not matter."""
    for connection in connections:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.send(byte)


def hold_connections(house: House, opened: ExitStack, count: int) -> list[socket.socket]:
    """Open connections from one address, no more at a time than shards can be handed over."""
    held: list[socket.socket] = []
    for _ in range(0, count, AT_A_TIME):
        held += [
            opened.enter_context(connect_from(house.node, "127.0.0.2")) for _ in range(AT_A_TIME)
        ]
        open_connections(house)  # Every shard is asked, so every shard has had its turn.
    return held


def open_connections(house: House) -> int:
    counters = house.root.call(GET_COUNTERS, None).counters
    return next(each.value for each in counters if each.name == "connections.open")


def furnish(house: House) -> None:
    house.root.call(streams.CREATE_STREAM, streams.CreateStream(STREAM))
    house.root.call(topics.CREATE_TOPIC, topics.CreateTopic(STREAM, 1, TOPIC))


def work(house: House, client: RawClient) -> None:
    """Do what clients do; any answer but yes fails."""
    for command in WORK:
        client.call(command, REQUESTS[command.code](house))


def test_a_thousand_that_never_end_a_frame_do_not_stop_others() -> None:
    """Share: interop, about 10 s.

    The cap on those before login holds, the oldest are closed first, who is in goes on, and
    newcomers get in all the while.
    """
    with (
        running_node(environment=PATIENT) as node,
        House(node) as house,
        ExitStack() as opened,
    ):
        furnish(house)
        frame = house.root.make_frame(PING, None)
        loris = hold_connections(house, opened, LORIS)
        for position in range(BYTES_EACH):
            trickle(loris, frame[position : position + 1])
            work(house, house.root)
            with closing(house.connect()) as newcomer:
                newcomer.login()
                work(house, newcomer)
        while open_connections(house) > BEFORE_LOGIN_MAX + 1:  # Shards close them one by one.
            work(house, house.root)
        closed = [number for number, each in enumerate(loris) if is_closed(each)]
        assert len(loris) - len(closed) <= BEFORE_LOGIN_MAX
        # The oldest: of those in the middle some made room for the newcomers.
        assert closed == list(range(len(closed)))
        assert len(closed) <= LORIS - BEFORE_LOGIN_MAX + BYTES_EACH
        assert node.resident_bytes() < 256 * MIB


def test_one_address_has_a_thousand_and_others_get_in() -> None:
    """Share: interop, about 5 s."""
    more = PATIENT | {"HEADRACE_TCP_UNAUTHENTICATED_MAX": str(2 * PER_ADDRESS_MAX)}
    with running_node(environment=more) as node, House(node) as house, ExitStack() as opened:
        allowed = hold_connections(house, opened, PER_ADDRESS_MAX)
        refused = opened.enter_context(connect_from(node, "127.0.0.2"))
        wait_closed(refused)
        assert not any(map(is_closed, allowed))
        with closing(house.connect()) as elsewhere:
            elsewhere.login()
        # One that goes makes room for one.
        allowed.pop().close()
        while open_connections(house) > PER_ADDRESS_MAX:
            house.root.call(PING, None)
        again = opened.enter_context(connect_from(node, "127.0.0.2"))
        again.sendall(house.root.make_frame(PING, None))
        assert again.recv(1)


@pytest.fixture(scope="module")
def impatient() -> Iterator[House]:
    """A node with little patience, but enough to log in on a machine that has much to do."""
    short = {"HEADRACE_TCP_HANDSHAKE_TIMEOUT": "1 s", "HEADRACE_TCP_LOGIN_TIMEOUT": "4 s"}
    with running_node(environment=short) as node, House(node) as house:
        yield house


def test_who_never_sends_a_whole_frame_is_closed(impatient: House) -> None:
    frame = impatient.root.make_frame(PING, None)
    with ExitStack() as opened:
        silent = opened.enter_context(connect_from(impatient.node, "127.0.0.2"))
        begun = opened.enter_context(connect_from(impatient.node, "127.0.0.2"))
        begun.sendall(frame[:-1])
        for connection in (silent, begun):
            wait_closed(connection)


def test_who_never_logs_in_is_closed_however_busy(impatient: House) -> None:
    """Whole frames do not help: it must log in. Who has logged in stays, however idle."""
    with closing(impatient.connect()) as idle, closing(impatient.connect()) as stranger:
        idle.login()
        while True:
            stranger.connection.send(stranger.make_frame(PING, None))
            if stranger.connection.receive() is None:
                break
        idle.call(PING, None)


@pytest.mark.parametrize("is_in", [False, True], ids=["before login", "after login"])
def test_how_large_a_frame_may_be_depends_on_the_login(impatient: House, is_in: bool) -> None:
    """The size is told in the header: a frame that is too large is not waited for."""
    with closing(impatient.connect()) as client:
        if is_in:
            client.login()
        frame = bytearray(client.make_frame(PING, None))
        struct.pack_into("<I", frame, SIZE_OFFSET, FRAME_BYTES_BEFORE_LOGIN + 1)
        client.connection.send(bytes(frame))
        if is_in:
            client.connection.send(bytes(FRAME_BYTES_BEFORE_LOGIN + 1 - len(frame)))
            assert client.connection.receive() is not None
        else:
            assert client.connection.receive() is None


def test_the_largest_frame_before_login_is_taken(impatient: House) -> None:
    with closing(impatient.connect()) as client:
        frame = bytearray(client.make_frame(PING, None))
        struct.pack_into("<I", frame, SIZE_OFFSET, FRAME_BYTES_BEFORE_LOGIN)
        client.connection.send(bytes(frame) + bytes(FRAME_BYTES_BEFORE_LOGIN - len(frame)))
        assert client.connection.receive() is not None
