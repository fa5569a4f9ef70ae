"""Who is told to log in again sends its request again, as a new one: it must not have been done.

Statuses 40, 9 and 61 and evictions 1, 7, 8, 11 and 12 have clients do that (SE-9). So they never
answer a write that is on its way, or one whose outcome nobody has told. An eviction names no
request: it answers whatever a client in lockstep has asked last.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.shard.logins.revocation import ENDED
from headrace.wire.commands import messages, streams, tokens, topics, users
from headrace.wire.commands.session import LOGIN_PASSWORD, LOGOUT, PasswordLogin, Register
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.identifiers import Consumer, First
from headrace.wire.numbers import ConsumerKind, UserStatus
from headrace.wire.permissions import GlobalPermissions, Permissions
from headrace.wire.replies import read_answer
from tests.shard.whole import VERSION, Client, Whole

ALL = Permissions(everywhere=GlobalPermissions(send_messages=True, manage_topics=True))
ALONE = Consumer(ConsumerKind.CONSUMER, 1)
METADATA, DATA = 0, 1
DEADLINE_TICKS = 1001
SOURCE = Path(headrace.__file__).parent
OF_A_NODE = (
    "groups",
    "metadata",
    "partitions",
    "runtime",
    "server",
    "shard",
    "storage",
    "transports",
    "vsr",
)


def make_user(name: str) -> users.CreateUser:
    return users.CreateUser(
        username=name, password=b"secret", status=UserStatus.ACTIVE, permissions=ALL
    )


def with_anna(node: Whole) -> tuple[Client, Client]:
    """Give root, and a user who has sent a message."""
    root = node.client()
    root.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    root.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    root.ask(users.CREATE_USER, make_user("anna"))
    anna = node.client(("anna", b"secret"), client=500)
    anna.send("s", "t", [b"x"])
    return root, anna


def told(frame: bytes) -> Code | EvictionReason | None:
    """Give the refusal, or why it is an eviction; nothing for a success."""
    try:
        read_answer(frame)
    except RefusedError as error:
        return error.code
    except EvictedError as error:
        return error.reason
    return None


def send(client: Client) -> bytes:
    return bytes(client.send_frame_of("s", "t", [b"x"]))


def store(client: Client) -> bytes:
    place = messages.StoreOffset(consumer=ALONE, stream="s", topic="t", partition_id=0, offset=0)
    return client.make_frame(messages.STORE_OFFSET, place)


def create(client: Client) -> bytes:
    return client.make_frame(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "new"))


def poll(client: Client) -> bytes:
    wanted = messages.PollMessages(
        consumer=ALONE,
        stream="s",
        topic="t",
        partition_id=0,
        strategy=First(),
        count=1,
        auto_commit=False,
    )
    return client.make_frame(messages.POLL_MESSAGES, wanted)


def delete_anna(node: Whole, root: Client) -> None:
    root.ask(users.DELETE_USER, users.DeleteUser("anna"))
    assert node.shard.metadata.state.users.find("anna") is None


def is_over(client: Client) -> bool:
    return (client.connection, ENDED) in client.node.closed


def messages_of(node: Whole) -> int:
    (local,) = node.shard.partitions.locals.values()
    return local.machine.next_offset


# The user is deleted.


@pytest.mark.parametrize("write", [send, store])
def test_a_write_on_its_way_is_told_its_outcome_before_the_session_ends(
    write: Callable[[Client], bytes],
) -> None:
    node = Whole()
    root, anna = with_anna(node)
    node.disks[DATA].is_syncing = False
    anna.post(write(anna))
    delete_anna(node, root)
    assert not anna.has_answer()
    assert not is_over(anna)
    node.disks[DATA].is_syncing = True
    node.tick(2)
    assert told(anna.take()) is None
    assert told(anna.take()) == EvictionReason.NO_SESSION
    assert is_over(anna)


def test_a_write_whose_outcome_stays_open_is_not_answered_with_a_login() -> None:
    node = Whole()
    root, anna = with_anna(node)
    before = messages_of(node)
    node.disks[DATA].is_syncing = False
    anna.post(send(anna))
    delete_anna(node, root)
    node.tick(DEADLINE_TICKS)
    assert told(anna.take()) == Code.TRANSIENT_NOT_COMMITTED
    assert told(anna.take()) == EvictionReason.STALE_CLIENT
    assert is_over(anna)
    node.disks[DATA].is_syncing = True
    node.tick()
    assert messages_of(node) == before + 1  # It was done, and is not sent again.


def test_a_change_of_metadata_on_its_way_is_refused_by_the_log() -> None:
    node = Whole()
    root, anna = with_anna(node)
    node.is_syncing = False
    root.post(root.make_frame(users.DELETE_USER, users.DeleteUser("anna")))
    anna.post(create(anna))
    node.is_syncing = True
    node.tick(2)
    assert told(root.take()) is None
    assert told(anna.take()) == Code.UNAUTHORIZED
    assert told(anna.take()) == EvictionReason.NO_SESSION
    assert is_over(anna)


def test_a_read_that_waits_is_refused_and_the_session_ends() -> None:
    node = Whole(tail_bytes_max=1)
    root, anna = with_anna(node)
    anna.send("s", "t", [b"x" * 4000])
    node.tick(10)
    root.ask(
        users.UPDATE_PERMISSIONS,
        users.UpdatePermissions(
            "anna", Permissions(everywhere=GlobalPermissions(poll_messages=True))
        ),
    )
    node.is_reading_segments = False
    anna.post(poll(anna))
    assert not anna.has_answer()
    delete_anna(node, root)
    assert told(anna.take()) == Code.UNAUTHORIZED
    assert told(anna.take()) == EvictionReason.NO_SESSION
    assert is_over(anna)
    node.is_reading_segments = True
    node.tick(2)
    assert not anna.has_answer()


def test_what_waits_for_a_secret_is_refused_and_never_done() -> None:
    node = Whole()
    root, anna = with_anna(node)
    node.is_verifying = False
    anna.post(anna.make_frame(tokens.CREATE_TOKEN, tokens.CreateToken("tok", 0)))
    assert len(node.unverified) == 1
    node.is_verifying = True
    delete_anna(node, root)
    assert told(anna.take()) == Code.UNAUTHORIZED
    assert told(anna.take()) == EvictionReason.NO_SESSION
    node.step(node.unverified.pop())
    assert not anna.has_answer()


def test_what_comes_while_the_end_waits_is_refused() -> None:
    node = Whole()
    root, anna = with_anna(node)
    node.disks[DATA].is_syncing = False
    anna.post(send(anna))
    delete_anna(node, root)
    for frame in (send(anna), create(anna), poll(anna)):
        assert told(anna.send_frame(frame)) == Code.UNAUTHORIZED
    before = messages_of(node)
    node.disks[DATA].is_syncing = True
    node.tick(2)
    assert told(anna.take()) is None
    assert told(anna.take()) == EvictionReason.NO_SESSION
    assert messages_of(node) == before + 1


def test_who_logs_out_while_the_end_waits_is_not_evicted() -> None:
    node = Whole()
    root, anna = with_anna(node)
    node.disks[DATA].is_syncing = False
    anna.post(send(anna))
    delete_anna(node, root)
    assert told(anna.send_frame(anna.make_frame(LOGOUT, None))) is None
    node.disks[DATA].is_syncing = True
    node.tick(2)
    assert told(anna.take()) is None
    assert not anna.has_answer()
    assert not is_over(anna)


# The session goes otherwise.


def test_a_session_that_is_taken_over_leaves_no_login_to_a_write_in_doubt() -> None:
    """Evictions 1 and 7: another connection of the same client has logged in since."""
    node = Whole()
    _, anna = with_anna(node)
    node.disks[DATA].is_syncing = False
    frame = send(anna)
    anna.post(frame)
    node.client(("anna", b"secret"), client=500)
    assert told(anna.send_frame(frame)) == EvictionReason.STALE_CLIENT  # It is on its way.
    node.tick(DEADLINE_TICKS)
    assert told(anna.take()) == Code.TRANSIENT_NOT_COMMITTED
    assert told(anna.send_frame(frame)) == EvictionReason.STALE_CLIENT  # Nobody knows.
    node.disks[DATA].is_syncing = True
    node.tick()
    assert told(anna.send_frame(frame)) == EvictionReason.STALE_CLIENT


def test_an_older_session_leaves_no_login_to_a_write_in_doubt() -> None:
    node = Whole()
    _, anna = with_anna(node)
    node.disks[DATA].is_syncing = False
    frame = send(anna)
    anna.post(frame)
    anna.session -= 1
    assert told(anna.send_frame(send(anna))) == EvictionReason.STALE_CLIENT
    node.disks[DATA].is_syncing = True
    node.tick()
    assert told(anna.take()) is None
    # With nothing on its way a login is what helps.
    assert told(anna.send_frame(send(anna))) == EvictionReason.SESSION_TOO_LOW
    anna.client += 1
    assert told(anna.send_frame(send(anna))) == EvictionReason.NO_SESSION


def test_a_session_that_the_group_forgot_leaves_no_login_to_a_write_in_doubt() -> None:
    """The metadata group judges sessions too."""
    node = Whole()
    _, anna = with_anna(node)
    node.disks[DATA].is_syncing = False
    anna.post(send(anna))
    node.shard.metadata.sessions.logout(anna.client)
    assert told(anna.send_frame(create(anna))) == EvictionReason.STALE_CLIENT
    node.disks[DATA].is_syncing = True
    node.tick()
    assert told(anna.take()) is None


def test_who_logs_in_as_another_client_disturbs_no_write() -> None:
    """Eviction 12 answers the login alone."""
    node = Whole()
    root, anna = with_anna(node)
    node.disks[DATA].is_syncing = False
    anna.post(send(anna))
    thief = Client(node, anna.client)
    register = Register(VERSION, password=PasswordLogin("iggy", b"iggy"))
    assert told(thief.send_frame(thief.make_frame(LOGIN_PASSWORD, register))) == (
        EvictionReason.SESSION_ERROR
    )
    node.disks[DATA].is_syncing = True
    node.tick()
    assert told(anna.take()) is None
    assert root.connection != thief.connection


def test_a_token_of_a_disabled_user_disturbs_no_write() -> None:
    """Eviction 11 answers the login alone."""
    node = Whole()
    root, anna = with_anna(node)
    token = anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("tok", 0)).token
    node.disks[DATA].is_syncing = False
    anna.post(send(anna))
    root.ask(users.UPDATE_USER, users.UpdateUser(user="anna", status=UserStatus.INACTIVE))
    late = Client(node, 700)
    with pytest.raises(EvictedError) as caught:
        late.login_by_token(token)
    assert caught.value.reason == EvictionReason.USER_INACTIVE
    assert not anna.has_answer()
    node.disks[DATA].is_syncing = True
    node.tick(2)
    assert told(anna.take()) is None


def test_status_40_answers_reads_alone() -> None:
    node = Whole()
    with_anna(node)
    nobody = Client(node, 900)
    assert told(nobody.send_frame(poll(nobody))) == Code.UNAUTHENTICATED
    for write in (send, store, create):
        nobody.session = 1
        assert told(nobody.send_frame(write(nobody))) == EvictionReason.NO_SESSION


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("Code.CANNOT_ESTABLISH_CONNECTION", []),
        ("Code.NOT_CONNECTED", []),
        ("EvictionReason.SESSION_RELEASE_MISMATCH", []),
        ("Code.UNAUTHENTICATED", ["shard/front/connections.py", "shard/front/router.py"]),
        ("EvictionReason.USER_INACTIVE", ["shard/logins/login.py"]),
    ],
)
def test_a_node_names_them_only_where_nothing_is_done(name: str, places: list[str]) -> None:
    """Each new place needs a test with a write on its way."""
    files = [path for package in OF_A_NODE for path in (SOURCE / package).rglob("*.py")]
    assert len(files) > 100
    named = [path for path in files if re.search(rf"\b{re.escape(name)}\b", path.read_text())]
    assert sorted(path.relative_to(SOURCE).as_posix() for path in named) == places
