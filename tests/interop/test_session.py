"""Connecting, logging in by password and by token, logging out, through the released SDK."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from apache_iggy import AutoLogin, IggyClient, TcpConfig, TcpReconnectionConfig

from headrace.wire.commands.clients import GET_CLIENTS, GET_ME
from headrace.wire.commands.tokens import (
    CREATE_TOKEN,
    DELETE_TOKEN,
    GET_TOKENS,
    CreateToken,
    DeleteToken,
)
from headrace.wire.errors import Code
from tests.interop.answers import refused
from tests.interop.conftest import Connect
from tests.known_secrets import remember
from tests.node import Node

pytestmark = pytest.mark.slow

ONCE = TcpReconnectionConfig(enabled=False)
HOUR = 3_600_000_000


def _silent(node: Node) -> IggyClient:
    """Give a client that does not log in by itself, nor connect again."""
    return IggyClient(
        TcpConfig(
            server_address=str(node.tcp),
            auto_login=AutoLogin.disabled(),
            reconnection=ONCE,
            heartbeat_interval=timedelta(hours=1),
            nodelay=True,
        )
    )


async def test_login_by_hand(node: Node) -> None:
    client = _silent(node)
    await client.connect()
    await client.ping()
    await client.login_user("iggy", "iggy")
    await client.get_streams()
    await client.login_user("iggy", "iggy")  # a second one ends the first
    await client.get_streams()
    await client.logout_user()
    await client.ping()
    with refused(Code.UNAUTHENTICATED):
        await client.get_streams()


async def test_login_again_on_the_same_connection(node: Node) -> None:
    client = _silent(node)
    await client.connect()
    for _ in range(3):
        await client.login_user("iggy", "iggy")
        await client.get_streams()
        await client.logout_user()


@pytest.mark.parametrize("way", ["by default", "as an address", "as a connection string"])
async def test_ways_to_connect(node: Node, way: str) -> None:
    if way == "by default":
        client = IggyClient(conn=TcpConfig(server_address=str(node.tcp)))
    elif way == "as an address":
        client = IggyClient(str(node.tcp))
    else:
        client = IggyClient.from_connection_string(
            f"iggy://iggy:iggy@{node.tcp}?reconnection_retries=0&heartbeat_interval=1h"
        )
    await client.connect()
    if way != "as a connection string":
        await client.login_user("iggy", "iggy")
    await client.get_streams()


async def test_automatic_login_by_password(node: Node) -> None:
    login = AutoLogin.username_password("iggy", "iggy")
    assert (login.enabled, login.username) == (True, "iggy")
    config = TcpConfig(server_address=str(node.tcp), auto_login=login, reconnection=ONCE)
    assert (config.server_address, config.auto_login.username) == (str(node.tcp), "iggy")
    assert (config.nodelay, config.tls_enabled, config.reconnection.enabled) == (
        False,
        False,
        False,
    )
    client = IggyClient(config)
    await client.connect()
    await client.get_streams()


async def test_wrong_passwords(node: Node) -> None:
    client = _silent(node)
    await client.connect()
    for username, password in (("iggy", "guess"), ("nobody", "iggy"), ("iggy", "p" * 100)):
        with refused(Code.INVALID_CREDENTIALS):
            await client.login_user(username, password)
    await client.login_user("iggy", "iggy")  # the connection is as good as before
    await client.get_streams()


async def test_before_login(node: Node, stream: str) -> None:
    # Refused like this, the SDK gives its connection up: each has one of its own.
    reading_client, other_client, writing_client = (_silent(node) for _ in range(3))
    for client in (reading_client, other_client, writing_client):
        await client.connect()
        await client.ping()
    with refused(Code.UNAUTHENTICATED):
        await reading_client.get_streams()
    with refused(Code.UNAUTHENTICATED):
        await other_client.get_users()
    with refused(Code.UNAUTHENTICATED):
        await writing_client.create_stream(stream)


async def test_tokens(node: Node, connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    name = unique("laptop")
    request = CREATE_TOKEN.encode_request(CreateToken(name, HOUR))
    made = CREATE_TOKEN.decode_reply(await client.send_binary_request(42, request))
    remember(made.token)
    token_client = IggyClient(
        TcpConfig(
            server_address=str(node.tcp),
            auto_login=AutoLogin.personal_access_token(made.token),
            reconnection=ONCE,
        )
    )
    await token_client.connect()
    me = GET_ME.decode_reply(await token_client.send_binary_request(20, b""))
    assert me.client.user_id == 0
    listed = GET_TOKENS.decode_reply(await client.send_binary_request(41, b""))
    assert name in [each.name for each in listed]
    with refused(Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS):
        await client.send_binary_request(42, request)
    gone = DELETE_TOKEN.encode_request(DeleteToken(name))
    await client.send_binary_request(43, gone)
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.send_binary_request(43, gone)
    late_client = IggyClient(
        TcpConfig(
            server_address=str(node.tcp),
            auto_login=AutoLogin.personal_access_token(token=made.token),
            reconnection=ONCE,
        )
    )
    with refused(Code.INVALID_PERSONAL_ACCESS_TOKEN):
        await late_client.connect()
    with pytest.raises(RuntimeError, match=r"^Disconnected"):  # Who came in with it is out (SE-4).
        await token_client.get_streams()


async def test_who_deletes_the_own_token_can_log_out(
    node: Node, connect: Connect, unique: Callable[[str], str]
) -> None:
    """As `iggy logout` does."""
    client = await connect()
    name = unique("mine")
    request = CREATE_TOKEN.encode_request(CreateToken(name, 0))
    made = CREATE_TOKEN.decode_reply(await client.send_binary_request(42, request))
    remember(made.token)
    token_client = IggyClient(
        TcpConfig(
            server_address=str(node.tcp),
            auto_login=AutoLogin.personal_access_token(made.token),
            reconnection=ONCE,
        )
    )
    await token_client.connect()
    await token_client.send_binary_request(43, DELETE_TOKEN.encode_request(DeleteToken(name)))
    with refused(Code.UNAUTHORIZED):
        await token_client.get_streams()
    await token_client.logout_user()


async def test_an_expired_token(node: Node, connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    request = CREATE_TOKEN.encode_request(CreateToken(unique("brief"), 1))
    made = CREATE_TOKEN.decode_reply(await client.send_binary_request(42, request))
    remember(made.token)
    await asyncio.sleep(0.1)
    late_client = IggyClient(
        TcpConfig(
            server_address=str(node.tcp),
            auto_login=AutoLogin.personal_access_token(made.token),
            reconnection=ONCE,
        )
    )
    with refused(Code.INVALID_PERSONAL_ACCESS_TOKEN):
        await late_client.connect()


async def test_each_client_is_counted(connect: Connect) -> None:
    first_client = await connect()
    second_client = await connect()
    me = GET_ME.decode_reply(await second_client.send_binary_request(20, b""))
    listed = GET_CLIENTS.decode_reply(await first_client.send_binary_request(22, b""))
    assert me.client in listed
    assert me.groups == ()


async def test_codes_of_sessions_are_not_sent_raw(connect: Connect) -> None:
    client = await connect()
    for code in (38, 39, 40, 44, 45):
        with pytest.raises(RuntimeError, match="Invalid command"):
            await client.send_binary_request(code, b"")
    await client.get_streams()
