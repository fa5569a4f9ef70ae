"""Groups of a node of several shards begin once all its stores know of the start (DK16, O5.8)."""

import pytest

from headrace.ports.host import NodeOpened
from tests.shard.several import Several


@pytest.mark.parametrize("count", [2, 3])
def test_no_group_begins_before_all_stores_are_open(count: int) -> None:
    node = Several(count)
    for member in node.members:
        member.end()
    for member in node.members:
        member.start()
    node.settle()
    assert all(member.shard.is_open for member in node.members)
    assert not any(plane.has_begun for member in node.members for plane in member._planes())
    for member in node.members:
        assert not member.shard.is_ready
        member.step(NodeOpened())
    node.settle()
    assert all(plane.has_begun for member in node.members for plane in member._planes())
    assert all(member.shard.is_ready for member in node.members)
