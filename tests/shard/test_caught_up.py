"""After a start metadata counts as caught up once all that was applied before is applied again."""

from tests.shard.trio import Trio


def test_nodes_that_start_together_are_not_caught_up_before_their_logs_are_applied_again() -> None:
    """RC-16: till then a partition that they knew may seem never to have been."""
    trio = Trio()
    before = [node.shard.metadata.commit for node in trio.nodes]
    for node in trio.nodes:
        node.crash()
    trio.flying.clear()
    while not all(node.shard.metadata.is_caught_up for node in trio.nodes):
        trio.step()
        for node, commit in zip(trio.nodes, before, strict=True):
            metadata = node.shard.metadata
            assert metadata.commit >= commit or not metadata.is_caught_up
