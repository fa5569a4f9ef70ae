"""SE-6: what the audit log is told, and what it is not."""

import pytest

from headrace.metadata.applied import NOTED
from headrace.ports.audit import Audit
from headrace.shard.logins.audit import _DESCRIPTIONS
from headrace.wire.commands import streams, tokens, topics, users
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.numbers import UserStatus
from tests.shard.whole import LOOPBACK, Client, Whole

ELSEWHERE = "192.0.2.1:4000"


def told(node: Whole) -> list[tuple[str, str, str, str]]:
    """Give event, outcome, who and about what; forget them."""
    found = [(each.event, each.outcome, each.user, each.about) for each in node.audited]
    node.audited.clear()
    return found


def anna() -> users.CreateUser:
    return users.CreateUser(username="anna", password=b"secret", status=UserStatus.ACTIVE)


def test_every_noted_operation_is_described() -> None:
    assert sorted(_DESCRIPTIONS) == sorted(NOTED)


def test_the_first_user_is_told_of() -> None:
    node = Whole()
    assert told(node) == [("create_user", "ok", "", "user 'iggy'")]
    node.client().ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    told(node)
    node.crash()
    assert told(node) == []


def test_what_was_ordered_and_not_answered_when_the_node_died_is_told_at_the_next_start() -> None:
    node = Whole()
    root = node.client()
    root.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    told(node)
    node.is_syncing = False
    root.post(root.make_frame(streams.DELETE_STREAM, streams.DeleteStream("s")))
    assert node.audited == []
    node.is_syncing = True
    node.crash()
    (line,) = node.audited
    assert (line.event, line.outcome, line.user) == ("delete_stream", "ok", "iggy")
    assert (line.client, line.address, line.is_recovered) == (f"{root.client:032x}", "", True)
    assert line.op > 0


def test_only_what_may_be_untold_is_told_again() -> None:
    """The last op before a kill may be there twice; all before it are there once."""
    node = Whole()
    root = node.client()
    for name in ("a", "b", "c"):
        root.ask(streams.CREATE_STREAM, streams.CreateStream(name))
        root.ask(streams.DELETE_STREAM, streams.DeleteStream(name))
    assert [each.is_recovered for each in node.audited[-3:]] == [False] * 3
    told(node)
    node.crash()
    assert [(each.about, each.is_recovered) for each in node.audited] == [("stream 'c'", True)]
    told(node)
    node.client().ask(streams.CREATE_STREAM, streams.CreateStream("d"))
    told(node)
    node.crash()
    assert told(node) == []


def test_logins() -> None:
    node = Whole()
    told(node)
    client = Client(node, 0xABC, ELSEWHERE)
    for _ in range(6):
        with pytest.raises((EvictedError, RefusedError)):
            client.login("nobody", b"swordfish")
    with pytest.raises(EvictedError):
        client.login_by_token("no-such-token")
    node.client()
    wrong = ("login", "wrong credentials", "", "")
    assert [(each.event, each.outcome, each.user, each.about) for each in node.audited] == [
        *[wrong] * 4,
        ("login", "wrong credentials, no more tries for 1 s", "", ""),
        ("login", "invalid_token", "", ""),
        ("login", "ok", "iggy", ""),
    ]
    assert {each.address for each in node.audited} == {ELSEWHERE, LOOPBACK}
    failed, passed = node.audited[0], node.audited[-1]
    assert (failed.client, failed.op, failed.user_id) == (f"{0xABC:032x}", 0, -1)
    assert passed.op > 0
    assert passed.user_id == 0


def test_changes_of_users_and_tokens() -> None:
    node = Whole()
    root = node.client()
    told(node)
    root.ask(users.CREATE_USER, anna())
    with pytest.raises(RefusedError):
        root.ask(users.CREATE_USER, anna())
    root.ask(users.UPDATE_PERMISSIONS, users.UpdatePermissions("anna", None))
    root.ask(users.CHANGE_PASSWORD, users.ChangePassword("anna", b"secret", b"another"))
    root.ask(tokens.CREATE_TOKEN, tokens.CreateToken("mine", 0))
    root.ask(tokens.DELETE_TOKEN, tokens.DeleteToken("mine"))
    root.ask(users.DELETE_USER, users.DeleteUser(1))
    ops = [each.op for each in node.audited]
    assert ops == sorted(ops)
    assert ops[0] > 0
    assert told(node) == [
        ("create_user", "ok", "iggy", "user 'anna'"),
        ("create_user", "user_already_exists", "iggy", "user 'anna'"),
        ("update_permissions", "ok", "iggy", "user 'anna'"),
        ("change_password", "ok", "iggy", "user 'anna'"),
        ("create_personal_access_token", "ok", "iggy", "token 'mine' of user 0"),
        ("delete_personal_access_token", "ok", "iggy", "token 'mine'"),
        ("delete_user", "ok", "iggy", "user 1"),
    ]


def test_what_removes_data() -> None:
    node = Whole()
    root = node.client()
    root.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    root.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 2, "t"))
    root.send("s", "t", [b"x"])
    told(node)
    root.ask(topics.DELETE_SEGMENTS, topics.DeleteSegments("s", "t", 1, 2))
    root.ask(topics.DELETE_PARTITIONS, topics.DeletePartitions("s", "t", 1))
    root.ask(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t"))
    root.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    root.ask(streams.DELETE_STREAM, streams.DeleteStream("s"))
    assert told(node) == [
        ("delete_segments", "ok", "iggy", "2 segments of stream 's' topic 't' partition 1"),
        ("delete_partitions", "ok", "iggy", "1 partitions of stream 's' topic 't'"),
        ("purge_topic", "ok", "iggy", "stream 's' topic 't'"),
        ("delete_topic", "ok", "iggy", "stream 's' topic 't'"),
        ("delete_stream", "ok", "iggy", "stream 's'"),
    ]


def test_who_hangs_up_at_once_is_told_of_all_the_same() -> None:
    node = Whole()
    root = node.client()
    root.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    told(node)
    node.is_syncing = False
    root.post(root.make_frame(streams.DELETE_STREAM, streams.DeleteStream("s")))
    root.close()
    node.is_syncing = True
    node.tick()
    (line,) = node.audited
    assert (line.event, line.user, line.address) == ("delete_stream", "iggy", LOOPBACK)


def test_a_rehash_is_no_change_of_a_user() -> None:
    node = Whole()
    told(node)
    node.is_strengthening = True
    node.client()
    assert told(node) == [
        ("strengthen_password_hash", "ok", "", "user 0"),
        ("login", "ok", "iggy", ""),
    ]


def test_no_secret_is_told() -> None:
    node = Whole()
    root = node.client()
    root.ask(users.CREATE_USER, anna())
    root.ask(users.CHANGE_PASSWORD, users.ChangePassword("anna", b"secret", b"another"))
    made = root.ask(tokens.CREATE_TOKEN, tokens.CreateToken("mine", 0)).token
    shown = repr(node.audited)
    assert isinstance(node.audited[-1], Audit)
    for secret in ("secret", "another", "hash of", made):
        assert secret not in shown
