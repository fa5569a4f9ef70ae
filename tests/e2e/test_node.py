"""The node as a process: starts, signals, the same folder again."""

import socket

import pytest

from tests.node import Node, NodeError, running_node

pytestmark = pytest.mark.slow


def test_a_stopped_node_starts_again_where_it_was() -> None:
    with running_node() as node:
        first, bound = node.pid, (node.tcp, node.http)
        assert node.tcp.port != node.http.port != 0
        node.stop()
        assert "finishing what is in flight" in node.output()
        node.start()
        assert node.pid != first
        assert (node.tcp, node.http) == bound
        socket.create_connection((node.tcp.host, node.tcp.port)).close()


def test_a_killed_node_starts_again_where_it_was() -> None:
    with running_node() as node:
        bound = node.tcp
        node.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((bound.host, bound.port))
        node.start()
        assert node.tcp == bound
        node.check_alive()
        assert 0 < node.resident_bytes() < 512 << 20


def test_why_a_node_did_not_start_is_told() -> None:
    with running_node() as node:
        second = Node(node.data.parent)
        with pytest.raises(NodeError, match=r"ended with 1 before it was ready(.|\n)*is in use by"):
            second.start()
        assert not second.is_started
        node.check_alive()
