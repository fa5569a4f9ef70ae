import msgspec
import pytest

from headrace.metadata import resolve, token_changes, user_changes
from headrace.metadata.lookups import get_tokens, get_user, get_users
from headrace.wire.commands.tokens import EXPIRY_NEVER
from headrace.wire.errors import Code, CorruptError, RefusedError
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.options import make_options
from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from headrace.wire.requests import RequestHeader
from tests.metadata.stage import HASH, SECOND, SERVER, START, Stage, code_of

NEW_HASH = HASH + b"2"
READER = Permissions(everywhere=GlobalPermissions(read_streams=True))


def test_the_first_user_of_the_server_is_root() -> None:
    stage = Stage(with_root=False)
    details = stage.create_user("boss", client=SERVER)
    assert (details.user.id, details.user.username) == (0, "boss")
    assert details.user.created_at == START + SECOND
    assert code_of(stage.create_user, "other", client=SERVER) == Code.USER_ALREADY_EXISTS
    assert len(get_users(stage.state)) == 1


def test_a_user_is_answered_with_its_details() -> None:
    stage = Stage()
    details = stage.create_user("alice", READER)
    assert (details.user.id, details.user.status) == (1, UserStatus.ACTIVE)
    assert details.permissions == READER
    assert get_user(stage.state, "alice") == details
    assert get_user(stage.state, 1) == details
    assert get_user(stage.state, "nobody") is None


def test_the_lowest_free_number_is_another_user() -> None:
    stage = Stage()
    stage.create_user("alice")
    stage.create_user("bertha")
    first = resolve.user(stage.state, "alice").created_op
    stage.delete_user("alice")
    assert stage.create_user("carol").user.id == 1
    assert resolve.user(stage.state, 1).created_op > first


@pytest.mark.parametrize("name", ["ab", "x" * 51, "é" * 26, "a\0bc"])
def test_user_names_have_bounds(name: str) -> None:
    stage = Stage()
    stage.create_user("alice")
    assert code_of(stage.create_user, name) == Code.INVALID_USERNAME
    assert code_of(stage.update_user, "alice", name) == Code.INVALID_USERNAME


@pytest.mark.parametrize("name", ["abc", "x" * 50, "é" * 25, "../"])
def test_user_names_within_bounds(name: str) -> None:
    assert Stage().create_user(name).user.username == name


def test_a_user_name_is_given_once() -> None:
    stage = Stage()
    stage.create_user("alice")
    stage.create_user("bertha")
    assert code_of(stage.create_user, "alice") == Code.USER_ALREADY_EXISTS
    assert code_of(stage.update_user, "bertha", "alice") == Code.USER_ALREADY_EXISTS
    stage.update_user("alice", "alice", UserStatus.INACTIVE)
    assert resolve.user(stage.state, "alice").status == UserStatus.INACTIVE


def test_users_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_changes, "USERS_MAX", 2)
    stage = Stage()
    stage.create_user("alice")
    assert code_of(stage.create_user, "bertha") == Code.USERS_LIMIT_REACHED


def test_users_have_no_options() -> None:
    stage = Stage()
    options = make_options({"theme": "dark"})
    assert code_of(stage.create_user, "alice", options=options) == Code.UNSUPPORTED_OPTION_KEY
    assert code_of(stage.update_user, 0, options=options) == Code.UNSUPPORTED_OPTION_KEY


def test_root_is_safe() -> None:
    stage = Stage()
    assert code_of(stage.delete_user, 0) == Code.CANNOT_DELETE_USER
    assert code_of(stage.update_permissions, "iggy", None) == Code.CANNOT_CHANGE_PERMISSIONS
    refused = code_of(stage.update_user, 0, None, UserStatus.INACTIVE)
    assert refused == Code.INVALID_USER_STATUS
    stage.update_user(0, "boss", UserStatus.ACTIVE)
    assert resolve.user(stage.state, "boss").id == 0


def test_who_is_not_there() -> None:
    stage = Stage()
    calls = (
        code_of(stage.delete_user, 7),
        code_of(stage.update_user, "nobody"),
        code_of(stage.update_permissions, 7, None),
        code_of(stage.change_password, "nobody", HASH, NEW_HASH),
        code_of(stage.delete_token, "none"),
    )
    assert calls == (Code.RESOURCE_NOT_FOUND,) * 5


def test_permissions_are_replaced_whole() -> None:
    stage = Stage()
    stage.create_user("alice", READER)
    narrow = Permissions(streams=(StreamPermissions(stream_id=3, poll_messages=True),))
    stage.update_permissions("alice", narrow)
    assert resolve.user(stage.state, "alice").permissions == narrow
    stage.update_permissions("alice", None)
    assert resolve.user(stage.state, "alice").permissions is None


def test_permissions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_changes, "PERMISSION_ENTRIES_MAX", 2)
    stage = Stage()
    topics = tuple(TopicPermissions(topic_id=number) for number in range(2))
    many = Permissions(streams=(StreamPermissions(stream_id=0, topics=topics),))
    assert code_of(stage.create_user, "alice", many) == Code.CANNOT_CHANGE_PERMISSIONS
    stage.create_user("alice")
    assert code_of(stage.update_permissions, 1, many) == Code.CANNOT_CHANGE_PERMISSIONS


def test_a_stream_does_not_inherit_what_held_for_another() -> None:
    stage = Stage()
    for name in "ab":
        stage.create_stream(name)
        stage.create_topic(name, "t")
        stage.create_topic(name, "u")
    granted = Permissions(
        streams=tuple(
            StreamPermissions(
                stream_id=stream,
                read_stream=True,
                topics=tuple(TopicPermissions(topic_id=t, read_topic=True) for t in range(2)),
            )
            for stream in range(2)
        )
    )
    stage.create_user("alice", granted)
    stage.delete_topic("b", "u")
    stage.delete_stream("a")
    left = resolve.user(stage.state, "alice").permissions
    assert left == Permissions(
        streams=(
            StreamPermissions(
                stream_id=1,
                read_stream=True,
                topics=(TopicPermissions(topic_id=0, read_topic=True),),
            ),
        )
    )
    stage.create_stream("c")
    assert stage.state.streams.find("c") is stage.state.streams.find(0)
    assert 0 not in resolve.user(stage.state, "alice").grants.streams


def test_a_password_changes_only_from_the_one_that_was_verified() -> None:
    stage = Stage()
    stage.create_user("alice")
    stage.change_password("alice", HASH, NEW_HASH)
    assert resolve.user(stage.state, "alice").password_hash == NEW_HASH.decode()
    refused = code_of(stage.change_password, "alice", HASH, HASH + b"3")
    assert refused == Code.INVALID_CREDENTIALS
    assert resolve.user(stage.state, "alice").password_hash == NEW_HASH.decode()


def test_a_password_that_was_not_hashed_is_damage() -> None:
    stage = Stage()
    with pytest.raises(CorruptError):
        stage.create_user("alice", password="pass wörd".encode())
    with pytest.raises(CorruptError):
        stage.change_password(0, HASH, b"\xff")
    assert get_user(stage.state, "alice") is None


def test_tokens_belong_to_who_asks() -> None:
    stage = Stage()
    stage.create_user("alice")
    stage.create_token("ci-root")
    stage.user = 1
    stage.create_token("ci-zz", token_hash="a" * 64)
    stage.create_token("ci-aa")
    names = [token.name for token in get_tokens(stage.state, 1)]
    assert names == ["ci-aa", "ci-zz"]
    assert [token.name for token in get_tokens(stage.state, 0)] == ["ci-root"]
    assert get_tokens(stage.state, 9) == ()
    found = resolve.token(stage.state, "a" * 64)
    assert found is not None
    assert (found[0].name, found[1].name) == ("alice", "ci-zz")
    stage.delete_token("ci-zz")
    assert resolve.token(stage.state, "a" * 64) is None
    assert code_of(stage.delete_token, "ci-root") == Code.RESOURCE_NOT_FOUND
    refused = code_of(stage.create_token, "sly-one", user=0)
    assert refused == Code.UNAUTHORIZED


def test_tokens_go_with_their_user() -> None:
    stage = Stage()
    stage.create_user("alice")
    stage.user = 1
    stage.create_token("ci-zz", token_hash="a" * 64)
    stage.user = 0
    stage.delete_user("alice")
    assert stage.state.token_owners == {}


def test_a_token_expires_by_committed_time() -> None:
    stage = Stage()
    stage.create_token("short", expiry=SECOND, token_hash="a" * 64)
    stage.create_token("never", expiry=EXPIRY_NEVER)
    (never, short) = get_tokens(stage.state, 0)
    assert never.expires_at == 0
    assert short.expires_at == START + 3 * SECOND
    found = resolve.token(stage.state, "a" * 64)
    assert found is not None
    assert not found[1].is_expired(short.expires_at - 1)
    assert found[1].is_expired(short.expires_at)
    refused = code_of(stage.create_token, "later", expiry=EXPIRY_NEVER - 1)
    assert refused == Code.INVALID_PERSONAL_ACCESS_TOKEN_EXPIRY


@pytest.mark.parametrize("name", ["ab", "x" * 31, "a\tb"])
def test_token_names_have_bounds(name: str) -> None:
    refused = code_of(Stage().create_token, name)
    assert refused == Code.INVALID_PERSONAL_ACCESS_TOKEN_NAME


def test_tokens_are_bounded_and_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.create_token("one", token_hash="b" * 64)
    already = Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS
    assert code_of(stage.create_token, "one") == already
    assert code_of(stage.create_token, "two", token_hash="b" * 64) == already
    monkeypatch.setattr(token_changes, "TOKENS_PER_USER_MAX", 1)
    refused = code_of(stage.create_token, "two")
    assert refused == Code.PERSONAL_ACCESS_TOKENS_LIMIT_REACHED


def test_a_session_is_of_one_user_and_not_of_its_number() -> None:
    """SE-5: what the earlier user of a number had on its way is refused."""
    stage = Stage()
    stage.create_user("anna")
    began = stage.op + 1
    stage.delete_user("anna")
    stage.create_user("bert")
    created = stage.op
    header = RequestHeader(client=9, user_id=1, operation=Operation.DELETE_PERSONAL_ACCESS_TOKEN)
    for session, is_of_bert in ((began, False), (created, True)):
        asked = msgspec.structs.replace(header, session=session)
        if is_of_bert:
            assert stage.machine.prepare(asked, b"", START) == b""
        else:
            with pytest.raises(RefusedError) as caught:
                stage.machine.prepare(asked, b"", START)
            assert caught.value.code == Code.UNAUTHORIZED
    stage.user = 1
    assert code_of(stage.delete_token, "none") == Code.RESOURCE_NOT_FOUND
    stage.behind = 10  # ordered before anybody knew that bert was created
    assert code_of(stage.delete_token, "none") == Code.UNAUTHORIZED


def test_what_concerns_sessions_and_the_audit_log_is_told_of_once() -> None:
    stage = Stage()
    stage.machine.take_applied()
    stage.create_stream()
    stage.create_user("anna")
    assert code_of(stage.create_user, "anna") == Code.USER_ALREADY_EXISTS
    stage.delete_stream("shop")
    told = stage.machine.take_applied()
    assert [(each.header.op, each.refusal) for each in told] == [
        (3, None),
        (4, Code.USER_ALREADY_EXISTS),
        (5, None),
    ]
    assert stage.machine.take_applied() == []
