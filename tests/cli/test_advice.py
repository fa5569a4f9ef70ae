"""Messages that help: what went wrong, and the way out, in one sentence each.

Beside these: a taken port and a locked folder name their holder (test_commands), `python -O` is
refused (test_node), a secret that everybody can read is refused (test_config).
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

import headrace
from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal
from tests.known_secrets import make_password
from tests.node import Node

pytestmark = pytest.mark.slow  # They share one node; about 3 s of the check.

PASSWORD = make_password("ada").decode()


@pytest.fixture
def shop(clean: headrace.Client) -> None:
    clean.create_stream("shop")
    clean.create_topic("shop/orders", partitions=1)
    clean.create_topic("shop/invoices", partitions=1)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topic", "get", "shop/odrers"), "the topic most like it is shop/orders"),
        (("topic", "get", "shpo/orders"), "the stream most like it is shop"),
        (("stream", "get", "shp"), "the stream most like it is shop"),
        (("group", "list", "shop/invoice"), "the topic most like it is shop/invoices"),
    ],
)
def test_what_is_missing_names_what_is_nearest(
    terminal: Terminal, arguments: tuple[str, ...], words: str
) -> None:
    told = terminal(*arguments)
    assert (told.code, told.out) == (Exit.NOT_FOUND, "")
    assert told.err.endswith(f"; {words}\n")


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("name", ["shop/zzzzz", "qqqqq/orders", "shop/9"])
def test_nothing_is_guessed_where_nothing_is_near(terminal: Terminal, name: str) -> None:
    told = terminal("topic", "get", name)
    assert told.code == Exit.NOT_FOUND
    assert "most like it" not in told.err


@pytest.mark.usefixtures("shop")
def test_who_may_not_look_is_told_no_names(terminal: Terminal, clean: headrace.Client) -> None:
    clean.create_user("ada", PASSWORD)
    for topic in ("shop/odrers", "shpo/orders"):
        told = terminal("topic", "get", topic, "--username", "ada", "--password", PASSWORD)
        assert told.code in (Exit.NOT_FOUND, Exit.AUTH)
        assert "most like it" not in told.err


def test_a_refused_command_names_the_permission_it_needs(
    terminal: Terminal, clean: headrace.Client
) -> None:
    clean.create_user("ada", PASSWORD)
    told = terminal("stream", "create", "x", "--username", "ada", "--password", PASSWORD)
    assert told.code == Exit.AUTH
    assert "it needs manage_streams" in told.err


def test_a_wrong_password(terminal: Terminal) -> None:
    told = terminal("stream", "list", "--username", "iggy", "--password", "wrong-wrong")
    assert (told.code, told.out) == (Exit.AUTH, "")
    assert "check --username and --password" in told.err
    assert "wrong-wrong" not in told.err


def test_an_unknown_user_is_told_the_same(terminal: Terminal) -> None:
    told = [
        terminal("stream", "list", "--username", name, "--password", "wrong-wrong").err
        for name in ("iggy", "nobody")
    ]
    assert told[0] == told[1]


def test_a_server_that_is_away(lone_terminal: Terminal) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # It does not listen, and nobody else gets its port.
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        told = lone_terminal("stream", "list", "--address", address)
    assert told.code == Exit.UNAVAILABLE
    assert f"{address} cannot be reached: " in told.err
    assert "is a node running there" in told.err


@contextmanager
def other_server(answer: bytes) -> Iterator[str]:
    """Give the address of something that answers every connection with the same bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(1 << 16)
                    connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    with closing(listener):
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_port_that_speaks_something_else(lone_terminal: Terminal) -> None:
    with other_server(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"<html>" * 100) as address:
        told = lone_terminal("stream", "list", "--address", address)
    assert told.code == Exit.FAILED
    assert address in told.err
    assert "is that the TCP port of a node?" in told.err


def test_the_http_port_of_a_node(lone_terminal: Terminal, node: Node) -> None:
    told = lone_terminal("stream", "list", "--address", str(node.http))
    assert told.code == Exit.UNAVAILABLE
    assert "is that its TCP port?" in told.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("stream", "list", "--adress", "x"), "Did you mean '--address'?"),
        (("tial", "shop/orders"), "Did you mean 'tail'?"),
        (("stream", "lst"), "Did you mean 'list'?"),
        (("config", "chek", "x"), "Did you mean 'check'?"),
    ],
)
def test_a_slip_names_its_nearest_neighbour(
    lone_terminal: Terminal, arguments: tuple[str, ...], words: str
) -> None:
    told = lone_terminal(*arguments)
    assert told.code == Exit.USAGE
    assert words in told.err
