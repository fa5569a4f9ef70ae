"""One node for all that the released SDK does to it, and clients that have logged in.

Every worker of the run has its own node, and tests share it: each works in a stream of its own, and
none counts on what the node holds elsewhere. A test that stops or kills a node starts its own.
"""

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import pytest
from apache_iggy import AutoLogin, IggyClient, TcpConfig, TcpReconnectionConfig

from tests import crossings
from tests.node import Node, running_node

TEST_SECONDS_MAX = 60.0
Connect = Callable[..., Awaitable[IggyClient]]

_numbers = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, for a bounded time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    values = {name: pyfuncitem.funcargs[name] for name in wanted}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**values), TEST_SECONDS_MAX))
    return True


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """A node that all tests of this worker share; it must end cleanly after them."""
    with running_node() as made:
        yield made
        crossings.note(made)


@pytest.fixture
def connect(node: Node) -> Connect:
    """Give a function that connects a client and logs it in, as root unless told otherwise."""
    node.check_alive()

    async def connect_as(username: str = "iggy", password: str = "iggy") -> IggyClient:
        return await connect_to(node, username, password)

    return connect_as


async def connect_to(node: Node, username: str = "iggy", password: str = "iggy") -> IggyClient:
    """Connect a client that fails at once where it would otherwise connect again."""
    client = IggyClient(
        TcpConfig(
            server_address=str(node.tcp),
            auto_login=AutoLogin.username_password(username, password),
            reconnection=TcpReconnectionConfig(enabled=False),
            heartbeat_interval=timedelta(seconds=1),
        )
    )
    await client.connect()
    return client


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Give a function that makes a name nobody else has."""
    return lambda name: f"{name}-{next(_numbers)}"


@pytest.fixture
def stream(unique: Callable[[str], str]) -> str:
    """The name of a stream for this test alone; the test creates it."""
    return unique("stream")
