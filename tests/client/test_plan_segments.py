"""Segment plans: put together from answers, and asked of a real node."""

import asyncio
from pathlib import Path

import pytest

import headrace
from headrace import aio
from headrace.client.calls.plan_segments import plan_segments
from headrace.client.errors import ProtocolBroken
from headrace.client.session.call import Call
from headrace.wire.batches import decode_batch_header, split_batches
from headrace.wire.commands.segments import (
    PLAN_SEGMENTS,
    OffsetRange,
    PlannedPiece,
    PlannedSegment,
    SegmentPlan,
)
from headrace.wire.permissions import GlobalPermissions, Permissions
from headrace.wire.segment import decode_segment_header
from tests.node import Node, running_node

TOPIC = "shop/orders"
PASSWORD = "correct horse battery"


def segment(base: int) -> PlannedSegment:
    return PlannedSegment(
        base_offset=base,
        end_offset=base + 10,
        oldest_stamp=0,
        newest_stamp=base,
        length=5000,
        pieces=(PlannedPiece(base, 904, 1),),
    )


def page(*bases: int, is_more: bool, epoch: int = 0, first_offset: int = 0) -> SegmentPlan:
    return SegmentPlan(
        namespace=1,
        created_revision=2,
        history_epoch=epoch,
        first_offset=first_offset,
        next_offset=99,
        folder="",
        lost=tuple(OffsetRange(base + 10, base + 20) for base in bases),
        segments=tuple(segment(base) for base in bases),
        is_more=is_more,
    )


def answer(*pages: SegmentPlan) -> tuple[SegmentPlan, list[int]]:
    """Carry a plan out with these answers; give it, and the offsets that were asked for."""
    flow = plan_segments(TOPIC)
    asked: list[int] = []
    waiting = iter(pages)
    call = next(flow)
    while True:
        assert isinstance(call, Call)
        asked.append(PLAN_SEGMENTS.decode_request(call.body).from_offset)
        try:
            call = flow.send(next(waiting))
        except StopIteration as stop:
            return stop.value, asked


def test_one_answer_is_the_plan() -> None:
    whole = page(0, 20, is_more=False)
    assert answer(whole) == (whole, [0])


def test_answers_are_joined() -> None:
    plan, asked = answer(page(0, is_more=True), page(20, is_more=True), page(40, is_more=False))
    assert plan == page(0, 20, 40, is_more=False)
    assert asked == [0, 10, 30]


def test_what_goes_meanwhile_is_not_in_the_plan() -> None:
    plan, _ = answer(page(0, 20, is_more=True), page(40, is_more=False, first_offset=20))
    assert plan == page(20, 40, is_more=False, first_offset=20)


def test_a_purge_meanwhile_begins_anew() -> None:
    after = page(0, is_more=False, epoch=1)
    assert answer(page(0, 20, is_more=True), after, after) == (after, [0, 30, 0])


def test_a_server_that_does_not_go_on_is_told_so() -> None:
    with pytest.raises(ProtocolBroken, match="nothing follows the offset 10"):
        answer(page(0, is_more=True), page(is_more=True))


@pytest.fixture
def sealed(client: headrace.Client) -> str:
    """A topic with sealed segments of 1 MiB, all of them written."""
    client.create_stream("shop")
    client.create_topic(TOPIC, partitions=2, options={"segment_size": "1 MiB"})
    for _ in range(35):
        client.send(TOPIC, [b"x" * 1000] * 100, partition=0)
    client.flush_partition(TOPIC, 0, sync=True)
    return TOPIC


@pytest.mark.slow
def test_a_real_plan_names_files_that_hold_the_messages(
    client: headrace.Client, sealed: str
) -> None:
    plan = client.plan_segments(sealed, 0)
    assert (plan.first_offset, plan.next_offset, plan.lost) == (0, 3500, ())
    assert len(plan.segments) == 3
    offset = 0
    for each in plan.segments:
        data = Path(plan.path(each)).read_bytes()
        header = decode_segment_header(data)
        assert (header.namespace, header.created_revision, header.history_epoch) == (
            plan.namespace,
            plan.created_revision,
            plan.history_epoch,
        )
        assert len(data) == each.length
        for batch in split_batches(data[4096:]):
            assert decode_batch_header(batch).base_offset == offset
            offset += decode_batch_header(batch).messages_count
    assert offset == plan.sealed_end
    (polled,) = client.poll(sealed, 0, start=plan.sealed_end, count=1)
    assert polled.offset == plan.sealed_end
    assert client.plan_segments(sealed, 1).segments == ()


@pytest.mark.slow
def test_both_faces_give_the_same(node: Node, client: headrace.Client, sealed: str) -> None:
    async def ask() -> SegmentPlan:
        async with aio.connect(str(node.tcp)) as other:
            return await other.plan_segments(sealed, 0, start=1500)

    assert asyncio.run(ask()) == client.plan_segments(sealed, 0, start=1500)


@pytest.mark.slow
def test_a_purge_and_a_new_topic_of_the_same_name_show(
    client: headrace.Client, sealed: str
) -> None:
    before = client.plan_segments(sealed)
    client.delete_segments(sealed, 0, 1)
    trimmed = client.plan_segments(sealed)
    assert trimmed.first_offset == before.segments[1].base_offset
    client.purge_topic(sealed)
    client.send(sealed, ["one"], partition=0)
    purged = client.plan_segments(sealed)
    assert purged.created_revision == before.created_revision
    assert purged.history_epoch > before.history_epoch
    client.delete_topic(sealed)
    client.create_topic(sealed)
    client.send(sealed, ["one"], partition=0)
    assert client.plan_segments(sealed).created_revision > before.created_revision


@pytest.mark.slow
def test_who_may_poll_may_plan_and_nobody_else(
    node: Node, client: headrace.Client, sealed: str
) -> None:
    polls = Permissions(everywhere=GlobalPermissions(poll_messages=True))
    sends = Permissions(everywhere=GlobalPermissions(send_messages=True))
    client.create_user("ada", PASSWORD, permissions=polls)
    client.create_user("bob", PASSWORD, permissions=sends)
    with headrace.connect(str(node.tcp), username="ada", password=PASSWORD) as ada:
        assert ada.plan_segments(sealed) == client.plan_segments(sealed)
    with headrace.connect(str(node.tcp), username="bob", password=PASSWORD) as bob:
        with pytest.raises(headrace.Unauthorized):
            bob.plan_segments(sealed)
        with pytest.raises(headrace.Unauthorized):
            bob.plan_segments("shop/nothing")


@pytest.mark.slow
def test_what_is_not_there_has_no_plan(client: headrace.Client, sealed: str) -> None:
    for topic, partition in (("shop/nothing", 0), ("nothing/orders", 0), (sealed, 2)):
        with pytest.raises(headrace.NotFound):
            client.plan_segments(topic, partition)


@pytest.mark.slow
def test_a_node_can_keep_its_files_to_itself() -> None:
    environment = {"HEADRACE_SEGMENTS_DIRECT_READS": "false"}
    with running_node(environment=environment) as node, headrace.connect(str(node.tcp)) as client:
        client.create_stream("shop")
        client.create_topic(TOPIC)
        assert client.plan_segments(TOPIC).folder == ""
