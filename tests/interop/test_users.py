"""Users, passwords and what a user may do, through the released SDK."""

from collections.abc import Callable

import pytest
from apache_iggy import (
    Consumer,
    GlobalPermissions,
    IggyClient,
    Permissions,
    PollingStrategy,
    SendMessage,
    StreamPermissions,
    TopicPermissions,
    UserStatus,
)

from headrace.wire.errors import Code
from tests.interop.answers import refused, told
from tests.interop.conftest import Connect
from tests.known_secrets import make_password

pytestmark = pytest.mark.slow

SECRET = make_password("interop").decode()
EVERYTHING = Permissions(
    GlobalPermissions(
        manage_servers=True,
        read_servers=True,
        manage_users=True,
        read_users=True,
        manage_streams=True,
        read_streams=True,
        manage_topics=True,
        read_topics=True,
        poll_messages=True,
        send_messages=True,
    ),
    {
        7: StreamPermissions(
            manage_stream=True,
            read_stream=True,
            manage_topics=True,
            read_topics=True,
            poll_messages=True,
            send_messages=True,
            topics={
                0: TopicPermissions(
                    manage_topic=True, read_topic=True, poll_messages=True, send_messages=True
                ),
                9: TopicPermissions(),
            },
        ),
        1: StreamPermissions(),
    },
)


async def test_create_and_get(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    name = unique("ann")
    made = await client.create_user(name, SECRET)
    assert told(made) == {
        "id": made.id,
        "created_at": made.created_at,
        "username": name,
        "status": "Active",
        "permissions": None,
    }
    for user in (name, made.id):
        found = await client.get_user(user)
        assert found is not None
        assert told(found) == told(made)
    listed = {each.username: each for each in await client.get_users()}
    assert told(listed[name]) == {
        "id": made.id,
        "created_at": made.created_at,
        "username": name,
        "status": "Active",
    }
    assert listed["iggy"].id == 0
    assert listed["iggy"].status == UserStatus.Active
    await client.delete_user(made.id)
    assert await client.get_user(name) is None


async def test_every_permission_is_kept(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    name = unique("everything")
    made = await client.create_user(name, SECRET, UserStatus.Active, EVERYTHING)
    assert made.permissions == EVERYTHING
    found = await client.get_user(name)
    assert found is not None
    kept = found.permissions
    assert kept == EVERYTHING
    assert kept is not None
    assert told(kept.global_permissions) == {
        "manage_servers": True,
        "read_servers": True,
        "manage_users": True,
        "read_users": True,
        "manage_streams": True,
        "read_streams": True,
        "manage_topics": True,
        "read_topics": True,
        "poll_messages": True,
        "send_messages": True,
    }
    assert kept.streams is not None
    (alone, full) = (kept.streams[number] for number in (1, 7))
    assert (alone.manage_stream, alone.read_stream, alone.topics) == (False, False, None)
    assert full.topics is not None
    assert told(full.topics[0]) == {
        "manage_topic": True,
        "read_topic": True,
        "poll_messages": True,
        "send_messages": True,
    }
    assert not any(told(full.topics[9]).values())
    # Each flag travels in its own place.
    for flag in told(kept.global_permissions):
        only = Permissions(_only(GlobalPermissions, flag))
        await client.update_permissions(name, permissions=only)
        changed = await client.get_user(name)
        assert changed is not None
        assert changed.permissions == only
    await client.update_permissions(made.id, None)
    bare = await client.get_user(name)
    assert bare is not None
    assert bare.permissions is None


def _only(made: type[GlobalPermissions], flag: str) -> GlobalPermissions:
    return made(**{flag: True})


async def test_update(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    first, second = unique("first"), unique("second")
    made = await client.create_user(first, SECRET, status=UserStatus.Inactive)
    assert made.status == UserStatus.Inactive
    with refused(Code.INVALID_CREDENTIALS):
        await connect(first, SECRET)
    await client.update_user(made.id, username=second, status=UserStatus.Active)
    assert await client.get_user(first) is None
    await client.update_user(second)  # nothing to change is no error
    user_client = await connect(second, SECRET)
    await user_client.ping()
    await client.update_user(second, status=UserStatus.Inactive)
    with refused(Code.INVALID_CREDENTIALS):
        await connect(second, SECRET)


async def test_passwords(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    name = unique("pass")
    made = await client.create_user(name, "secret-1")
    await connect(name, "secret-1")
    with refused(Code.INVALID_CREDENTIALS):
        await client.change_password(name, "guess", "secret-2")
    await client.change_password(made.id, "secret-1", "pässwörd")
    with refused(Code.INVALID_CREDENTIALS):
        await connect(name, "secret-1")
    user_client = await connect(name, "pässwörd")
    # One's own password needs no permission.
    await user_client.change_password(name, "pässwörd", "p" * 100)
    await connect(name, "p" * 100)
    # The examples of other clients have short ones, which `dev` takes from three bytes on.
    short = unique("short")
    await client.create_user(short, "p$3")
    await connect(short, "p$3")


async def test_refusals(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    name, other = unique("ann"), unique("bob")
    await client.create_user(name, SECRET)
    await client.create_user(other, SECRET)
    with refused(Code.USER_ALREADY_EXISTS):
        await client.create_user(name, SECRET)
    with refused(Code.USER_ALREADY_EXISTS):
        await client.update_user(other, name)
    for odd in ("ab", "n" * 51):
        with refused(Code.INVALID_USERNAME):
            await client.create_user(odd, SECRET)
    for odd in ("ab", "p" * 101):
        with refused(Code.INVALID_PASSWORD):
            await client.create_user(unique("odd"), odd)
    with refused(Code.UNSUPPORTED_OPTION_KEY):
        await client.update_user(name, options={"team": "red"})
    nobody = unique("nobody")
    assert await client.get_user(nobody) is None
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.delete_user(nobody)
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.update_user(nobody, username=unique("new"))
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.update_permissions(nobody, None)
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.change_password(nobody, SECRET, "secret-2")
    with refused(Code.CANNOT_DELETE_USER):
        await client.delete_user("iggy")
    with refused(Code.CANNOT_CHANGE_PERMISSIONS):
        await client.update_permissions(0, Permissions())


# What a user may do.


async def _poll(client: IggyClient, stream: str, topic: str) -> int:
    polled = await client.poll_messages(
        stream,
        topic,
        consumer=Consumer.Single("reader"),
        polling_strategy=PollingStrategy.First(),
        count=10,
        auto_commit=False,
    )
    return len(polled)


async def test_nothing_is_allowed_by_itself(
    connect: Connect, stream: str, unique: Callable[[str], str]
) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", 1)
    await client.create_consumer_group(stream, "topic", "group")
    name = unique("nobody")
    await client.create_user(name, SECRET)
    user_client = await connect(name, SECRET)
    await user_client.ping()
    for doing in (user_client.get_stats, user_client.get_streams, user_client.get_users):
        with refused(Code.UNAUTHORIZED):
            await doing()
    for on_stream in (user_client.purge_stream, user_client.delete_stream):
        with refused(Code.UNAUTHORIZED):
            await on_stream(stream)
    for on_topic in (user_client.purge_topic, user_client.delete_topic):
        with refused(Code.UNAUTHORIZED):
            await on_topic(stream, "topic")
    for on_group in (
        user_client.create_consumer_group,
        user_client.delete_consumer_group,
        user_client.join_consumer_group,
    ):
        with refused(Code.UNAUTHORIZED):
            await on_group(stream, "topic", "group")
    for on_partitions in (user_client.create_partitions, user_client.delete_partitions):
        with refused(Code.UNAUTHORIZED):
            await on_partitions(stream, "topic", 1)
    with refused(Code.UNAUTHORIZED):
        await user_client.create_stream(unique("mine"))
    with refused(Code.UNAUTHORIZED):
        await user_client.update_stream(stream, unique("mine"))
    with refused(Code.UNAUTHORIZED):
        await user_client.create_topic(stream, "mine", 1)
    with refused(Code.UNAUTHORIZED):
        await user_client.update_topic(stream, "topic", "mine")
    with refused(Code.UNAUTHORIZED):
        await user_client.send_messages(stream, "topic", 0, [SendMessage("m")])
    with refused(Code.UNAUTHORIZED):
        await _poll(user_client, stream, "topic")
    with refused(Code.UNAUTHORIZED):
        await user_client.create_user(unique("friend"), SECRET)
    with refused(Code.UNAUTHORIZED):
        await user_client.delete_user("iggy")
    with refused(Code.UNAUTHORIZED):
        await user_client.update_permissions(name, EVERYTHING)
    still = await client.get_topic(stream, "topic")
    assert still is not None
    assert still.messages_count == 0


async def test_permissions_reach_as_far_as_they_say(
    connect: Connect, stream: str, unique: Callable[[str], str]
) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "open", 1)
    await client.create_topic(stream, "shut", 1)
    made = await client.get_stream(stream)
    assert made is not None
    name = unique("limited")
    only_open = {0: TopicPermissions(send_messages=True)}
    await client.create_user(
        name,
        SECRET,
        permissions=Permissions(streams={made.id: StreamPermissions(topics=only_open)}),
    )
    user_client = await connect(name, SECRET)
    await user_client.send_messages(stream, "open", 0, [SendMessage("m")])
    with refused(Code.UNAUTHORIZED):
        await user_client.send_messages(stream, "shut", 0, [SendMessage("m")])
    with refused(Code.UNAUTHORIZED):
        await _poll(user_client, stream, "open")
    # A change holds at once, for a client that is logged in already.
    reading = StreamPermissions(poll_messages=True)
    await client.update_permissions(name, Permissions(None, {made.id: reading}))
    assert await _poll(user_client, stream, "open") == 1
    assert await _poll(user_client, stream, "shut") == 0
    with refused(Code.UNAUTHORIZED):
        await user_client.send_messages(stream, "open", 0, [SendMessage("m")])
    everywhere = Permissions(GlobalPermissions(manage_streams=True))
    await client.update_permissions(name, everywhere)
    await user_client.send_messages(stream, "shut", 0, [SendMessage("m")])
    mine = unique("mine")
    await user_client.create_stream(mine)
    await user_client.delete_stream(mine)
    with refused(Code.UNAUTHORIZED):
        await user_client.get_users()


async def test_a_deleted_user_is_out(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    name = unique("gone")
    await client.create_user(name, SECRET, permissions=EVERYTHING)
    user_client = await connect(name, SECRET)
    await user_client.get_users()
    await client.delete_user(name)
    with pytest.raises(RuntimeError):
        await user_client.get_users()
    with refused(Code.INVALID_CREDENTIALS):
        await connect(name, SECRET)


async def test_root_shows_what_it_may_do(connect: Connect) -> None:
    client = await connect()
    root = await client.get_user(0)
    assert root is not None
    assert root.permissions is not None
    assert all(told(root.permissions.global_permissions).values())
