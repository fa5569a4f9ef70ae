import pytest

from headrace.groups.roster import may_poll, owns
from headrace.metadata import group_changes
from headrace.metadata.lookups import memberships_of, sync_group
from headrace.metadata.target import live_group_ids
from headrace.wire.commands.clients import Membership
from headrace.wire.commands.groups import Assignment, SyncGroup
from headrace.wire.errors import Code
from headrace.wire.numbers import Operation
from tests.metadata.stage import SERVER, Stage, code_of

ALICE, BOB, CAROL = 0xA11CE, 0xB0B, 0xCA401 << 70


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.create_stream("shop")
    stage.create_topic("shop", "orders", 4)
    stage.create_group(name="billing")
    return stage


def shares(stage: Stage) -> dict[int, tuple[int, ...]]:
    return {member.client: member.partitions for member in stage.group().roster.members}


def test_a_group_is_answered_with_its_details(stage: Stage) -> None:
    details = stage.create_group(name="audit")
    assert (details.group.id, details.group.name) == (1, "audit")
    assert (details.group.partitions_count, details.group.members_count) == (4, 0)
    assert details.members == ()


def test_the_number_of_a_group_is_never_used_again(stage: Stage) -> None:
    stage.delete_group("shop", "orders", "billing")
    assert stage.create_group(name="billing").group.id == 1
    stage.delete_group("shop", "orders", 1)
    assert stage.create_group(name="billing").group.id == 2


def test_a_second_group_of_a_name_leaves_the_first_alone(stage: Stage) -> None:
    stage.join(ALICE)
    before = stage.group().roster
    assert code_of(stage.create_group) == Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS
    assert stage.group().roster is before


def test_members_share_the_partitions(stage: Stage) -> None:
    stage.join(ALICE)
    assert shares(stage) == {ALICE: (0, 1, 2, 3)}
    stage.join(BOB)
    assert shares(stage) == {ALICE: (0, 2), BOB: (1, 3)}
    stage.join(CAROL)
    assert shares(stage) == {ALICE: (0, 3), BOB: (1,), CAROL: (2,)}
    stage.leave(ALICE)
    assert shares(stage) == {BOB: (0, 2), CAROL: (1, 3)}


def test_joining_again_changes_nothing(stage: Stage) -> None:
    stage.join(ALICE)
    before = stage.group().roster
    stage.join(ALICE)
    assert stage.group().roster is before


def test_the_key_of_a_member_is_the_lowest_free(stage: Stage) -> None:
    for client in (ALICE, BOB, CAROL):
        stage.join(client)
    stage.leave(ALICE)
    stage.join(0xDA7E)
    keys = [(member.key, member.client) for member in stage.group().roster.members]
    assert keys == [(0, 0xDA7E), (1, BOB), (2, CAROL)]


def test_what_a_member_may_poll_is_told_with_its_generation(stage: Stage) -> None:
    request = SyncGroup("shop", "orders", "billing")
    assert sync_group(stage.state, request, ALICE) is None
    stage.join(ALICE)
    stage.join(BOB)
    assert sync_group(stage.state, request, BOB) == Assignment(2, (1, 3))
    roster = stage.group().roster
    assert may_poll(roster, client=BOB, partition=3)
    assert owns(roster, client=BOB, partition=3)
    assert not may_poll(roster, client=BOB, partition=0)
    assert not owns(roster, client=CAROL, partition=0)


def test_changed_partitions_are_dealt_anew(stage: Stage) -> None:
    stage.join(ALICE)
    stage.join(BOB)
    stage.create_partitions("shop", "orders", 1)
    assert shares(stage) == {ALICE: (0, 2, 4), BOB: (1, 3)}
    stage.delete_partitions("shop", "orders", 4)
    assert shares(stage) == {ALICE: (0,), BOB: ()}
    assert stage.group().roster.generation == 4


@pytest.mark.parametrize("operation", [Operation.DISCONNECT, Operation.LOGOUT])
def test_who_goes_leaves_all_groups(stage: Stage, operation: Operation) -> None:
    stage.create_topic("shop", "parcels", 1)
    stage.create_group("shop", "parcels", "billing")
    stage.join(ALICE)
    stage.join(BOB)
    stage.join(ALICE, topic="parcels")
    assert memberships_of(stage.state, ALICE) == (Membership(0, 0, 0), Membership(0, 1, 0))
    before = stage.machine.revision
    assert stage.raw(operation, b"", client=ALICE) == b""
    assert stage.machine.revision > before
    assert memberships_of(stage.state, ALICE) == ()
    assert shares(stage) == {BOB: (0, 1, 2, 3)}
    after = stage.snapshot()
    assert stage.raw(operation, b"", client=ALICE) == b""
    assert stage.machine.revision == before + 1
    assert len(stage.snapshot()) == len(after)


def test_a_member_is_removed_by_the_server(stage: Stage) -> None:
    stage.join(ALICE)
    stage.remove_member(ALICE)
    stage.remove_member(ALICE)
    assert shares(stage) == {}
    assert stage.group().roster.generation == 2


def test_the_missing_level_is_named(stage: Stage) -> None:
    def codes(stream: str, topic: str, group: str) -> tuple[int, int, int]:
        return (
            code_of(stage.delete_group, stream, topic, group),
            code_of(stage.join, ALICE, stream, topic, group),
            code_of(stage.leave, ALICE, stream, topic, group),
        )

    assert codes("none", "orders", "billing") == (Code.STREAM_ID_NOT_FOUND,) * 3
    assert codes("shop", "none", "billing") == (Code.TOPIC_ID_NOT_FOUND,) * 3
    assert codes("shop", "orders", "none") == (Code.CONSUMER_GROUP_ID_NOT_FOUND,) * 3
    assert code_of(stage.leave, ALICE) == Code.CONSUMER_GROUP_MEMBER_NOT_FOUND
    assert code_of(stage.create_group, "none") == Code.STREAM_ID_NOT_FOUND
    assert code_of(stage.create_group, "shop", "none") == Code.TOPIC_ID_NOT_FOUND


def test_names_and_number_of_groups_are_bounded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code_of(stage.create_group, name="\x1b[2J") == Code.INVALID_CONSUMER_GROUP_NAME
    monkeypatch.setattr(group_changes, "GROUPS_PER_TOPIC_MAX", 1)
    refused = code_of(stage.create_group, name="more")
    assert refused == Code.CANNOT_CREATE_CONSUMER_GROUP_INFO


def test_live_groups_follow_the_revision(stage: Stage) -> None:
    first = stage.topic().namespace(0)
    assert live_group_ids(stage.machine.state, first) == (0,)
    before = stage.machine.revision
    stage.create_group(name="audit")
    assert stage.machine.revision > before
    stage.delete_group("shop", "orders", "billing")
    assert live_group_ids(stage.machine.state, first) == (1,)
    stage.delete_topic("shop", "orders")
    assert live_group_ids(stage.machine.state, first) == ()
    stage.delete_stream("shop")
    assert live_group_ids(stage.machine.state, first) == ()


def test_a_deleted_group_forgets_its_members(stage: Stage) -> None:
    stage.join(ALICE)
    stage.delete_group("shop", "orders", "billing")
    assert stage.state.memberships == {}
    stage.create_group(name="billing")
    stage.join(ALICE)
    stage.delete_topic("shop", "orders")
    assert stage.state.memberships == {}
    assert stage.raw(Operation.DISCONNECT, b"", client=ALICE) == b""


def test_the_client_is_the_one_in_the_body(stage: Stage) -> None:
    stage.client = SERVER
    stage.join(ALICE)
    assert shares(stage) == {ALICE: (0, 1, 2, 3)}
