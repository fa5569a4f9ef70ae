"""The whole segment plan of a partition, joined from as many answers as needed."""

import msgspec

from headrace.client.calls.names import TopicName
from headrace.client.calls.segments import plan_page
from headrace.client.errors import ProtocolBroken
from headrace.client.session.call import Flow, ask
from headrace.wire.commands.segments import SegmentPlan


def plan_segments(topic: TopicName, partition: int = 0, *, start: int = 0) -> Flow[SegmentPlan]:
    """Return the state of a partition, and all its sealed segments from an offset on.

    The plan leaves out what is removed or purged while the answers arrive.

    Raises:
        ProtocolBroken: The server announces more segments and returns none.
    """
    plan = yield from ask(plan_page(topic, partition, start=start))
    while plan.is_more:
        position = plan.segments[-1].end_offset if plan.segments else start
        page = yield from ask(plan_page(topic, partition, start=position))
        if _history(page) != _history(plan):
            plan = yield from ask(plan_page(topic, partition, start=start))
        elif page.is_more and not page.segments:
            raise ProtocolBroken(f"plan of {topic!r}: nothing follows the offset {position}")
        else:
            plan = _join(plan, page)
    return plan


def _history(plan: SegmentPlan) -> tuple[int, int, int]:
    return plan.namespace, plan.created_revision, plan.history_epoch


def _join(plan: SegmentPlan, page: SegmentPlan) -> SegmentPlan:
    first_offset = page.first_offset
    return msgspec.structs.replace(
        page,
        lost=tuple([each for each in (*plan.lost, *page.lost) if each.end > first_offset]),
        segments=tuple(
            [each for each in (*plan.segments, *page.segments) if each.end_offset > first_offset]
        ),
    )
