"""A real node for the tests that need one: one for all of a file, a stream for each test."""

from collections.abc import Iterator

import pytest

import headrace
from tests.node import Node, running_node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as started:
        yield started


@pytest.fixture
def client(node: Node) -> Iterator[headrace.Client]:
    """A client of a node on which nothing exists yet."""
    with headrace.connect(str(node.tcp)) as connected:
        yield connected
        for stream in connected.get_streams():
            connected.delete_stream(stream.id)
        for user in connected.get_users():
            if user.id != 0:
                connected.delete_user(user.id)
        for token in connected.get_tokens():
            connected.delete_token(token.name)
