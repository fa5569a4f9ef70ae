"""Files of partitions that end: none is forgotten while it exists (RC-12).

RC12  every file of a running node is of a partition that it serves, deletes, or has still to judge
"""

from headrace.base.ids import GroupId
from headrace.base.placement import owner_of
from headrace.sim.nodes.running import Host
from headrace.sim.violation import SimViolationError


def check_known(node: Host) -> None:
    """Check that a node knows of every partition that has files in its folder."""
    assert node.running is not None
    shards = node.running.shards
    found = dict.fromkeys((name.namespace, name.created_revision) for name in node.folder.names())
    for namespace, created_revision in found:
        owner = owner_of(GroupId(namespace), len(shards))
        if not shards[owner].shard.partitions.accounts_for(namespace, created_revision):
            raise SimViolationError(
                "RC12",
                why="dropped from memory, and not from the disk",
                node=node.index,
                namespace=namespace,
                created_revision=created_revision,
            )
