"""One page of a segment plan; `client.plan_segments` joins the pages."""

from headrace.client.calls.names import TopicName, join_topic, split_topic
from headrace.client.session.call import Call, make_call
from headrace.wire.commands.segments import PLAN_SEGMENTS, PlanSegments, SegmentPlan


def plan_page(topic: TopicName, partition: int, *, start: int) -> Call[SegmentPlan]:
    """Return the plan from the segment that contains an offset, as far as one answer holds."""
    stream, name = split_topic(topic)
    request = PlanSegments(stream=stream, topic=name, partition_id=partition, from_offset=start)
    return make_call(PLAN_SEGMENTS, request, join_topic(topic))
