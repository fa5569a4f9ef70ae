"""Snapshots of states that no machine can have: written all the same, and refused."""

from collections.abc import Callable

import msgspec
import pytest

from headrace.groups.roster import Member, Roster
from headrace.metadata import resolve
from headrace.metadata.settings import SEGMENT_SIZE, read_settings
from headrace.metadata.snapshot import Progress, read_snapshot, write_snapshot
from headrace.metadata.state import Partition, Token
from headrace.wire.errors import CorruptError
from headrace.wire.fields import FieldKind, make_field
from headrace.wire.numbers import UserStatus
from headrace.wire.options import make_options
from headrace.wire.topic_options import SERVER_DEFAULT
from tests.metadata.stage import Stage

PROGRESS = Progress(op=9, chain=7)


def staged() -> Stage:
    stage = Stage()
    stage.create_user("alice")
    stage.create_user("bertha")
    for stream in ("shop", "bank"):
        stage.create_stream(stream)
    for topic in ("orders", "parcels"):
        stage.create_topic("shop", topic, 2)
    for group in ("billing", "audit"):
        stage.create_group(name=group)
    stage.join(1)
    stage.join(2)
    return stage


def test_what_is_written_is_read() -> None:
    state = staged().state
    again, progress = read_snapshot(write_snapshot(state, PROGRESS))
    assert progress == PROGRESS
    assert write_snapshot(again, PROGRESS) == write_snapshot(state, PROGRESS)


def roster_of(*members: Member) -> Roster:
    return Roster(1, members, {}, {})


def same_user_name(stage: Stage) -> None:
    resolve.user(stage.state, 2).name = "alice"


def same_stream_name(stage: Stage) -> None:
    resolve.stream(stage.state, 1).name = "shop"


def same_topic_name(stage: Stage) -> None:
    stage.topic(topic="parcels").name = "orders"


def same_group_name(stage: Stage) -> None:
    stage.group("audit").name = "billing"


def same_stream_number(stage: Stage) -> None:
    resolve.stream(stage.state, 1).id = 0


def stream_number_above_the_limit(stage: Stage) -> None:
    resolve.stream(stage.state, 1).id = 1 << 20


def topic_number_above_the_limit(stage: Stage) -> None:
    stage.topic(topic="parcels").id = 4096


def group_number_not_given_out_yet(stage: Stage) -> None:
    stage.topic().next_group_id = 1


def user_number_above_the_limit(stage: Stage) -> None:
    resolve.user(stage.state, 2).id = 1 << 16


def no_root(stage: Stage) -> None:
    stage.state.users.remove(resolve.user(stage.state, 0))


def inactive_root(stage: Stage) -> None:
    resolve.user(stage.state, 0).status = UserStatus.INACTIVE


def one_hash_for_two_tokens(stage: Stage) -> None:
    for user in ("alice", "bertha"):
        resolve.user(stage.state, user).tokens["ci"] = Token("ci", "a" * 64, 0)


def one_name_for_two_tokens(stage: Stage) -> None:
    tokens = resolve.user(stage.state, "alice").tokens
    tokens["a"], tokens["b"] = Token("ci", "a" * 64, 0), Token("ci", "b" * 64, 0)


def too_many_partitions(stage: Stage) -> None:
    stage.topic(topic="parcels").partitions = [Partition(0, 1)] * 1_000_001


def partition_before_the_first_revision(stage: Stage) -> None:
    stage.topic(topic="parcels").partitions = [Partition(0, 0)]


def partition_of_a_later_revision(stage: Stage) -> None:
    stage.topic(topic="parcels").partitions = [Partition(0, stage.machine.revision + 1)]


def one_client_twice(stage: Stage) -> None:
    stage.group().roster = roster_of(Member(0, 1, (0,)), Member(1, 1, (1,)))


def one_member_key_twice(stage: Stage) -> None:
    stage.group().roster = roster_of(Member(0, 1, (0,)), Member(0, 2, (1,)))


def one_partition_twice(stage: Stage) -> None:
    stage.group().roster = roster_of(Member(0, 1, (0, 1)), Member(1, 2, (1,)))


def one_partition_unowned(stage: Stage) -> None:
    stage.group().roster = roster_of(Member(0, 1, (0,)), Member(1, 2))


def option_missing(stage: Stage) -> None:
    topic = stage.topic()
    topic.derived = topic.derived[1:]


def option_not_canonical(stage: Stage) -> None:
    stage.topic().explicit = make_options({"message_expiry": "7 days"})


def segments_of_no_size(stage: Stage) -> None:
    topic = stage.topic()
    others = tuple(option for option in topic.derived if option.key != SEGMENT_SIZE)
    assert len(others) == len(topic.derived) - 1
    unnamed = make_options({SEGMENT_SIZE: make_field(SERVER_DEFAULT, FieldKind.UINT64)})
    topic.derived = (*others, *unnamed)


def option_twice(stage: Stage) -> None:
    topic = stage.topic()
    topic.explicit = topic.derived[:1]


@pytest.mark.parametrize(
    "forge",
    [
        same_user_name,
        same_stream_name,
        same_topic_name,
        same_group_name,
        same_stream_number,
        stream_number_above_the_limit,
        topic_number_above_the_limit,
        group_number_not_given_out_yet,
        user_number_above_the_limit,
        no_root,
        inactive_root,
        one_hash_for_two_tokens,
        one_name_for_two_tokens,
        too_many_partitions,
        partition_before_the_first_revision,
        partition_of_a_later_revision,
        one_client_twice,
        one_member_key_twice,
        one_partition_twice,
        one_partition_unowned,
        option_missing,
        option_not_canonical,
        option_twice,
        segments_of_no_size,
    ],
    ids=lambda forge: forge.__name__,
)
def test_a_state_that_cannot_be_is_refused(forge: Callable[[Stage], None]) -> None:
    stage = staged()
    forge(stage)
    with pytest.raises(CorruptError):
        read_snapshot(write_snapshot(stage.state, PROGRESS))


def test_settings_need_every_option() -> None:
    topic = staged().topic()
    assert read_settings(topic.explicit, topic.derived) == topic.settings
    foreign = msgspec.structs.replace(topic.derived[0], key="zone")
    for derived in (topic.derived[1:], (foreign, *topic.derived[1:])):
        with pytest.raises(CorruptError):
            read_settings(topic.explicit, derived)
