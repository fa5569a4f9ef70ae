"""Segment plans of a whole shard in memory."""

from typing import Any

import pytest

from headrace.base.limits import MIB
from headrace.wire.commands.segments import PLAN_SEGMENTS, PlanSegments, SegmentPlan
from headrace.wire.commands.users import CREATE_USER, CreateUser
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import UserStatus
from tests.shard.test_node import with_topic
from tests.shard.whole import Client, Whole

FOLDER = "/data/partitions"
BIG = [b"x" * 1000] * 300


def plan(client: Client, topic: str = "t", partition: int = 0) -> SegmentPlan:
    request = PlanSegments(stream="s", topic=topic, partition_id=partition)
    found = client.ask(PLAN_SEGMENTS, request)
    assert isinstance(found, SegmentPlan)
    return found


def refusal(client: Client, topic: str = "t", partition: int = 0) -> Code:
    with pytest.raises(RefusedError) as refused:
        plan(client, topic, partition)
    return refused.value.code


def filled(**settings: Any) -> tuple[Whole, Client]:
    """A node whose only partition has sealed segments, and a client of it."""
    node = Whole(segment_bytes_max=MIB, **settings)
    client = with_topic(node)
    for _ in range(9):
        client.send("s", "t", BIG)
    node.tick(20)
    return node, client


def test_sealed_segments_are_told_with_their_folder() -> None:
    node, client = filled(segments_folder=FOLDER)
    found = plan(client)
    assert [each.base_offset for each in found.segments] == [0, 1200]
    assert (found.first_offset, found.next_offset, found.sealed_end) == (0, 2700, 2400)
    assert found.folder == f"{FOLDER}/0/0/0-{found.created_revision}/0"
    for each in found.segments:
        assert each.length == len(
            next(
                data
                for file, data in node.segments.logs.items()
                if file.base_offset == each.base_offset
            )
        )


def test_a_restart_changes_nothing() -> None:
    node, client = filled(segments_folder=FOLDER)
    before = plan(client)
    node.crash()
    node.tick(20)
    assert plan(node.client(client=77)) == before


def test_nobody_is_told_a_folder_by_default() -> None:
    _, client = filled()
    assert plan(client).folder == ""
    assert len(plan(client).segments) == 2


def test_what_is_not_there_is_named() -> None:
    _, client = filled()
    assert refusal(client, partition=3) == Code.PARTITION_NOT_FOUND
    assert refusal(client, topic="none") == Code.TOPIC_ID_NOT_FOUND


def test_who_may_not_poll_gets_no_plan() -> None:
    node, client = filled()
    ada_may_nothing = CreateUser(username="ada", password=b"secret", status=UserStatus.ACTIVE)
    client.ask(CREATE_USER, ada_may_nothing)
    ada = node.client(("ada", b"secret"), client=88)
    assert refusal(ada) == Code.UNAUTHORIZED
    assert refusal(ada, topic="none") == Code.UNAUTHORIZED


def test_files_that_are_not_taken_up_yet_are_waited_for() -> None:
    node = Whole()
    node.is_reading_segments = False
    client = with_topic(node)
    assert refusal(client) == Code.TRANSIENT_NOT_ACCEPTED


def test_a_fenced_partition_has_no_plan() -> None:
    """O2.4: nobody knows what its files hold."""
    node, client = filled()
    node.segments.failing = "the disk is broken"
    client.send("s", "t", BIG)
    node.tick(20)
    assert refusal(client) == Code.CANNOT_READ_MESSAGE
