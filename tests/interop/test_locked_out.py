"""What the released SDK makes of a wait after wrong passwords, and of a session that was ended."""

from collections.abc import Iterator

import pytest
from apache_iggy import IggyClient, UserStatus

from headrace.wire.errors import Code
from tests.interop.answers import refused
from tests.known_secrets import make_password
from tests.node import Node, running_node

pytestmark = pytest.mark.slow

ANNA = make_password("anna").decode()
OTHER = make_password("other").decode()


@pytest.fixture
def own_node() -> Iterator[Node]:
    """Give a node that nobody else has failed on."""
    with running_node() as node:
        yield node


async def connect(node: Node, username: str, password: str) -> IggyClient:
    client = IggyClient(str(node.tcp))
    await client.connect()
    await client.login_user(username, password)
    return client


async def test_the_right_password_gets_in_after_the_wait(own_node: Node) -> None:
    """SE-3, SE-4: about 8 s, most of it the SDK's own pauses."""
    root = await connect(own_node, "iggy", "iggy")
    await root.create_user("anna", ANNA, UserStatus.Active, None)
    anna = await connect(own_node, "anna", ANNA)
    for _ in range(5):
        with refused(Code.INVALID_CREDENTIALS):
            await connect(own_node, "anna", OTHER)
    await connect(own_node, "anna", ANNA)  # The SDK asks again until it is let in.
    await root.change_password("anna", ANNA, OTHER)
    with refused(Code.INVALID_CREDENTIALS):
        await anna.get_streams()  # It logs in again by itself, with what it knows.
    await connect(own_node, "iggy", "iggy")
