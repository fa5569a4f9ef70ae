"""Who holds a port or a lock: with the real /proc, and with one that lacks things."""

import fcntl
import os
import socket
from pathlib import Path

import pytest

from headrace.base.endpoints import Endpoint
from headrace.server.holders import find_lock_holder, find_port_holder


@pytest.mark.parametrize(
    ("family", "host", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "0.0.0.0"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "localhost"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_a_port(family: socket.AddressFamily, host: str, asked: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip("this lane needs IPv6")
        port = listener.getsockname()[1]
        assert find_port_holder(Endpoint(asked, port)) is None  # bound, but it does not listen
        listener.listen()
        holder = find_port_holder(Endpoint(asked, port))
        assert holder is not None
        assert holder.pid == os.getpid()
        assert holder.name
        assert find_port_holder(Endpoint("127.9.9.9", port)) is None or asked != host
    assert find_port_holder(Endpoint(asked, port)) is None


def test_a_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    assert find_lock_holder(file) is None
    with file.open("w") as stream:
        assert find_lock_holder(file) is None
        fcntl.flock(stream, fcntl.LOCK_EX)
        holder = find_lock_holder(file)
        assert holder is not None
        assert holder.pid == os.getpid()


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    assert find_port_holder(Endpoint("127.0.0.1", 1), tmp_path) is None
    assert find_lock_holder(tmp_path, tmp_path) is None
    net = tmp_path / "net"
    net.mkdir()
    (net / "tcp").write_text(
        "  sl  local_address rem_address   st ...\n"
        "   0: 0100007F:0001 00000000:0000 0A 0:0 00:0 0 0 0 4711 1\n"
        "   1: 0100007F:0002 0100007F:9999 01 0:0 00:0 0 0 0 4711 1\n"  # a connection
        "   2: short\n"
    )
    process = tmp_path / "42" / "fd"
    process.mkdir(parents=True)
    (process / "3").symlink_to("socket:[4711]")
    assert find_port_holder(Endpoint("127.0.0.1", 1), tmp_path) is None  # it has just ended
    (tmp_path / "42" / "comm").write_text("someone\n")
    holder = find_port_holder(Endpoint("127.0.0.1", 1), tmp_path)
    assert str(holder) == "process 42 (someone)"
    assert find_port_holder(Endpoint("127.0.0.1", 2), tmp_path) is None
