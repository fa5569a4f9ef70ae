"""Answers where the sealed segments of a partition lie (O9.1).

Like a poll, it may be asked of any replica: what it names is committed (O6.2).

Flow: plan, route, reply.
"""

from headrace.metadata.access import reach
from headrace.shard.front.connections import Connection
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands.segments import PLAN_SEGMENTS, PlanSegments, SegmentPlan
from headrace.wire.errors import Code, RefusedError


def plan_segments(
    metadata: Metadata,
    partitions: Partitions,
    folder: str,
    connection: Connection,
    request: PlanSegments,
) -> SegmentPlan:
    """Return the plan of one partition, for users who may poll its topic.

    `folder` is where readers of the same host find the segments.

    Raises:
        RefusedError: The user may not, there is no such partition, or its files cannot be used.
    """
    user_id, code = connection.user_id, PLAN_SEGMENTS.code
    topic = reach(metadata.state, user_id, code, request.stream, request.topic)
    if request.partition_id >= len(topic.partitions):
        raise RefusedError(Code.PARTITION_NOT_FOUND, partition=request.partition_id)
    local = partitions.find(topic, request.partition_id)
    if local.fence is not None:
        raise RefusedError(Code.CANNOT_READ_MESSAGE, why=local.fence)
    if not local.machine.is_open:
        raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, what="segments are being opened")
    plan = local.machine.plan_segments(request.from_offset, folder)
    assert plan.namespace == local.target.group, "a plan is of its partition"
    assert plan.created_revision == local.target.created_revision, "a plan is of one incarnation"
    assert plan.first_offset <= plan.next_offset, "a partition ends after its begin"
    return plan
