"""Every command against every level at which a permission can be given."""

from collections.abc import Callable

import pytest

from headrace.metadata.access import NOWHERE, Scope, check_access, reach
from headrace.metadata.authorization import RULES, Resource, authorize
from headrace.metadata.grants import EVERYWHERE_FLAGS, STREAM_FLAGS, TOPIC_FLAGS
from headrace.wire.commands import messages, streams, topics, users
from headrace.wire.commands.table import COMMANDS
from headrace.wire.errors import Code
from headrace.wire.numbers import UserStatus
from tests.metadata.rights import (
    OTHER,
    STREAM,
    TOPIC,
    USER,
    allowed,
    everywhere,
    on_stream,
    on_topic,
    staged,
)
from tests.metadata.stage import Stage, code_of

LEVELS = ("none", "stream", "topic", "global", "root")


def test_every_command_has_its_row() -> None:
    assert sorted(RULES) == sorted(COMMANDS)


def test_what_has_no_row_is_denied_to_root_too() -> None:
    stage = staged()
    assert not authorize(stage.state, 0, 99_999)
    assert not authorize(stage.state, USER, 99_999)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_cell(command: int, level: str) -> None:
    """All flags of a level at once: which levels can give a permission at all."""
    rule = RULES[command]
    given = {
        "none": None,
        "stream": on_stream(*STREAM_FLAGS),
        "topic": on_topic(*TOPIC_FLAGS),
        "global": everywhere(*EVERYWHERE_FLAGS),
        "root": None,
    }
    stage = staged(given[level])
    user = 0 if level == "root" else USER
    is_free = rule.resource in (Resource.OPEN, Resource.OWN)
    expected = {
        "none": is_free,
        "stream": is_free or rule.resource in (Resource.STREAM, Resource.TOPIC),
        "topic": is_free or rule.resource is Resource.TOPIC,
        "global": True,
        "root": True,
    }
    assert allowed(stage, user, command) == expected[level]
    if level in ("stream", "topic"):
        assert allowed(stage, user, command, stream=OTHER) == is_free


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_who_is_gone_or_inactive_may_nothing(command: int) -> None:
    stage = staged(everywhere(*EVERYWHERE_FLAGS))
    is_open = RULES[command].resource is Resource.OPEN
    assert allowed(stage, 77, command) == is_open
    stage.update_user("alice", status=UserStatus.INACTIVE)
    assert allowed(stage, USER, command) == is_open


def test_topic_permissions_hold_for_one_topic() -> None:
    stage = staged(on_topic("send_messages"))
    code = messages.SEND_MESSAGES.code
    assert authorize(stage.state, USER, code, STREAM, TOPIC)
    assert not authorize(stage.state, USER, code, STREAM, OTHER)
    assert not authorize(stage.state, USER, code, STREAM)
    assert not authorize(stage.state, USER, code, OTHER, TOPIC)


def test_users_may_read_themselves_and_change_their_password() -> None:
    stage = staged()
    for command in (users.GET_USER, users.CHANGE_PASSWORD):
        assert authorize(stage.state, USER, command.code, target_user=USER)
        assert not authorize(stage.state, USER, command.code, target_user=0)
    assert not authorize(stage.state, USER, users.UPDATE_USER.code, target_user=USER)


OPS: dict[int, Callable[[Stage], object]] = {
    202: lambda stage: stage.create_stream("new"),
    203: lambda stage: stage.delete_stream("shop"),
    204: lambda stage: stage.update_stream("shop", "new"),
    205: lambda stage: stage.purge_stream("shop"),
    302: lambda stage: stage.create_topic("shop", "new"),
    303: lambda stage: stage.delete_topic("shop", "orders"),
    304: lambda stage: stage.update_topic("shop", "orders", "new"),
    305: lambda stage: stage.purge_topic("shop", "orders"),
    402: lambda stage: stage.create_partitions("shop", "orders", 1),
    403: lambda stage: stage.delete_partitions("shop", "orders", 1),
    602: lambda stage: stage.create_group("shop", "orders", "new"),
    603: lambda stage: stage.delete_group("shop", "orders", "billing"),
    604: lambda stage: stage.join(stage.client),
    605: lambda stage: stage.leave(stage.client),
    33: lambda stage: stage.create_user("newcomer"),
    34: lambda stage: stage.delete_user("alice"),
    35: lambda stage: stage.update_user("alice", "alicia"),
    36: lambda stage: stage.update_permissions("alice", None),
    37: lambda stage: stage.change_password("iggy", b"wrong", b"new"),
    42: lambda stage: stage.create_token("token"),
    43: lambda stage: stage.delete_token("token"),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("command", sorted(OPS))
def test_ops_ask_the_table_at_apply(command: int, level: str) -> None:
    """The same cells through the machine: denied without effect, or past the check."""
    given = {
        "none": None,
        "stream": on_stream(*STREAM_FLAGS),
        "topic": on_topic(*TOPIC_FLAGS),
        "global": everywhere(*EVERYWHERE_FLAGS),
        "root": None,
    }
    stage = staged(given[level])
    stage.user = 0 if level == "root" else USER
    expected = allowed(stage, stage.user, command)
    before, revision = _content(stage), stage.machine.revision
    code = code_of(OPS[command], stage)
    assert (code != Code.UNAUTHORIZED) == expected
    if not expected:
        assert _content(stage) == before
        assert stage.machine.revision == revision


def test_every_metadata_op_of_a_client_is_in_the_cells() -> None:
    elsewhere = {503}  # resolved, and applied by the partition's own group
    replicated = {code for code, command in COMMANDS.items() if 128 <= command.operation < 160}
    assert set(OPS) == replicated - elsewhere


def _content(stage: Stage) -> bytes:
    """Give the snapshot without progress and stamp, which every op changes."""
    return stage.snapshot()[6 + 24 : -8]


@pytest.mark.parametrize("client", [0, 5])
def test_the_server_itself_needs_no_permission(client: int) -> None:
    stage = staged()
    stage.user = 77
    stage.client = client
    assert code_of(stage.create_stream, "new") == (Code.UNAUTHORIZED if client else 0)


# What is not there, and what may not be asked: one answer unless the level above may be read.


def check(stage: Stage, command: int, scope: Scope) -> int:
    return code_of(check_access, stage.state, USER, command, scope)


def test_missing_and_forbidden_look_alike_to_strangers() -> None:
    stage = staged()
    for command, rule in RULES.items():
        if rule.resource is Resource.TOPIC:
            scopes = [Scope("shop", "orders"), Scope("shop", "none"), Scope("none", "orders")]
        elif rule.resource is Resource.STREAM:
            scopes = [Scope("shop"), Scope("none"), Scope(99)]
        elif rule.resource is Resource.USER:
            scopes = [Scope(user="iggy"), Scope(user="nobody"), Scope(user=99)]
        else:
            continue
        assert [check(stage, command, scope) for scope in scopes] == [Code.UNAUTHORIZED] * 3


def test_readers_of_the_parent_learn_what_is_missing() -> None:
    stage = staged(everywhere("read_streams", "read_users"))
    stage.user = USER
    assert code_of(stage.delete_stream, "none") == Code.STREAM_ID_NOT_FOUND
    assert code_of(stage.delete_stream, "shop") == Code.UNAUTHORIZED
    assert code_of(stage.delete_topic, "shop", "none") == Code.TOPIC_ID_NOT_FOUND
    assert code_of(stage.delete_topic, "shop", "orders") == Code.UNAUTHORIZED
    assert code_of(stage.delete_user, "nobody") == Code.RESOURCE_NOT_FOUND
    assert code_of(stage.delete_user, "iggy") == Code.UNAUTHORIZED


def test_who_may_do_it_anywhere_learns_what_is_missing() -> None:
    code = messages.SEND_MESSAGES.code
    stage = staged(everywhere("send_messages"))
    assert check(stage, code, Scope("none", "orders")) == 0
    assert code_of(reach, stage.state, USER, code, "none", "orders") == Code.STREAM_ID_NOT_FOUND
    stage = staged(on_stream("send_messages"))
    assert code_of(reach, stage.state, USER, code, "shop", "none") == Code.TOPIC_ID_NOT_FOUND
    assert code_of(reach, stage.state, USER, code, "bank", "none") == Code.UNAUTHORIZED
    assert reach(stage.state, USER, code, "shop", 1).name == "parcels"


def test_narrow_permissions_do_not_open_the_parent() -> None:
    stage = staged(on_topic("manage_topic"))
    assert check(stage, topics.GET_TOPIC.code, Scope("shop", "orders")) == 0
    assert check(stage, topics.GET_TOPIC.code, Scope("shop", "parcels")) == Code.UNAUTHORIZED
    assert check(stage, topics.GET_TOPIC.code, Scope("shop", "none")) == Code.UNAUTHORIZED
    assert check(stage, topics.GET_TOPICS.code, Scope("shop")) == Code.UNAUTHORIZED
    assert check(stage, streams.GET_STREAMS.code, NOWHERE) == Code.UNAUTHORIZED


def test_a_users_own_name_is_itself() -> None:
    stage = staged()
    assert check(stage, users.GET_USER.code, Scope(user="alice")) == 0
    assert check(stage, users.CHANGE_PASSWORD.code, Scope(user=USER)) == 0
    assert check(stage, users.UPDATE_PERMISSIONS.code, Scope(user=USER)) == Code.UNAUTHORIZED
