"""SH-26, O4.3, O5.4: how the wait for a partition ends, for clients of its owner and of others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from headrace.base.ids import GroupId
from headrace.wire.commands import messages, topics, users
from headrace.wire.errors import Code
from headrace.wire.identifiers import ToPartition
from headrace.wire.numbers import UserStatus
from headrace.wire.permissions import GlobalPermissions, Permissions
from headrace.wire.replies import read_answer
from tests.shard.several import HomedClient, Several
from tests.shard.test_node import with_topic
from tests.shard.test_parked import code_of
from tests.shard.test_reconcile import create, delete, unreconciled
from tests.shard.test_several import PARTITIONS
from tests.shard.test_several import with_topic as with_topic_of_several
from tests.shard.whole import Client, Whole

DEADLINE = 1000
SENDING = Permissions(everywhere=GlobalPermissions(send_messages=True, poll_messages=True))
ANNE = users.CreateUser(
    username="anne", password=b"secret", status=UserStatus.ACTIVE, permissions=SENDING
)


def parked(node: Whole) -> int:
    return node.shard.partitions.reconcile_status().parked


def offset_of(client: Client) -> int:
    (sent,) = messages.SEND_MESSAGES.decode_reply(read_answer(client.take()))
    return sent.base_offset


@contextmanager
def unmade(node: Several) -> Iterator[HomedClient]:
    """Have a topic "u" that no shard makes; the client that created it lives on shard 0."""
    with ExitStack() as stack:
        client = with_topic_of_several(node)
        for member in node.members:
            stack.enter_context(unreconciled(member))
        client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", PARTITIONS, "u"))
        node.rest()
        yield client


def to_shard(node: Several, shard: int) -> ToPartition:
    """Return a partition of the topic "u" that a shard owns."""
    owned = node.members[shard].shard.settings.placement.owns
    return ToPartition(next(at for at in range(PARTITIONS) if owned(GroupId((1 << 20) | at))))


def test_a_local_request_gets_58_when_its_deadline_passes() -> None:
    """O4.3: nothing was done for it, so it may come again; decision 0035."""
    node = Whole()
    client = with_topic(node)
    with unreconciled(node):
        create(client, "u")
        client.post(client.send_frame_of("s", "u", [b"early"]))
        node.tick(DEADLINE - 1)
        assert (client.has_answer(), parked(node)) == (False, 1)
        node.tick()
        assert code_of(client) == Code.TRANSIENT_NOT_ACCEPTED
        assert parked(node) == 0, "its place is free"
    node.tick(200)
    assert not client.has_answer(), "a request is answered once"
    assert client.send("s", "u", [b"first"]).base_offset == 0


@pytest.mark.slow
@pytest.mark.parametrize(("home", "owner"), [(1, 2), (2, 1), (0, 1), (1, 0)])
def test_a_forwarded_request_gets_57_of_its_home_when_its_deadline_passes(
    home: int, owner: int
) -> None:
    """O4.3: the home cannot know whether it was done; what its owner says then comes too late."""
    node = Several(3)
    with unmade(node):
        client = node.client(home)
        to = to_shard(node, owner)
        client.post(client.send_frame_of("s", "u", [b"early"], to=to))
        assert parked(node.members[owner]) == 1
        node.settle(DEADLINE - 1)
        assert not client.has_answer()
        node.settle(2)
        assert code_of(client) == Code.TRANSIENT_NOT_COMMITTED
        assert parked(node.members[owner]) == 0, "its place is free"
    node.settle(200)
    assert not client.has_answer(), "a request is answered once"
    assert client.send("s", "u", [b"first"], to=to).base_offset == 0


@pytest.mark.slow
@pytest.mark.parametrize(("home", "owner"), [(0, 0), (1, 0), (0, 2), (1, 2), (2, 2)])
def test_a_right_that_is_revoked_while_a_send_waits_is_revoked(home: int, owner: int) -> None:
    """SH-26: session and rights are those of when it goes on, wherever its client lives.

    By an image nothing is refused for good (O5.2): there it is told to come again.
    """
    node = Several(3)
    with unmade(node) as root:
        root.ask(users.CREATE_USER, ANNE)
        anne = HomedClient(node, home, 9)
        anne.login("anne", b"secret")
        to = to_shard(node, owner)
        anne.post(anne.send_frame_of("s", "u", [b"early"], to=to))
        assert parked(node.members[owner]) == 1
        root.ask(users.UPDATE_PERMISSIONS, users.UpdatePermissions("anne", None))
    node.settle(110)
    refused = Code.UNAUTHORIZED if owner == 0 else Code.TRANSIENT_NOT_ACCEPTED
    assert code_of(anne) == refused
    anne.post(anne.send_frame_of("s", "u", [b"again"], to=to))
    node.rest()
    assert code_of(anne) == Code.UNAUTHORIZED
    assert root.send("s", "u", [b"first"], to=to).base_offset == 0


def test_requests_go_on_in_their_order() -> None:
    """O5.4: those of one client and of several, before whatever comes later."""
    node = Whole()
    client = with_topic(node)
    other = node.client(client=99)
    with unreconciled(node):
        create(client, "u")
        for number in range(3):
            for each in (client, other):
                each.number += 1
                payload = b"%d" % number
                each.post(each.send_frame_of("s", "u", [payload], number=each.number))
        assert parked(node) == 6
    node.tick(200)
    assert [offset_of(client) for _ in range(3)] == [0, 2, 4]
    assert [offset_of(other) for _ in range(3)] == [1, 3, 5]
    assert client.send("s", "u", [b"later"]).base_offset == 6


@pytest.mark.slow
def test_guests_of_two_shards_wait_side_by_side() -> None:
    """SH-26, O5.6: each is answered by its own home, in the order in which they came."""
    node = Several(3)
    with unmade(node):
        homed = [node.client(home) for home in (0, 1, 2)]
        to = to_shard(node, 2)
        for client in homed:
            client.post(client.send_frame_of("s", "u", [b"early"], to=to))
        assert parked(node.members[2]) == 3
        assert len(node.members[2].exchange.guests.numbers()) == 2
    node.settle(200)
    assert [offset_of(client) for client in homed] == [0, 1, 2]
    assert [client.has_answer() for client in homed] == [False] * 3
    assert node.members[2].exchange.guests.numbers() == []


def test_what_waits_for_a_deleted_topic_is_discarded_and_counted() -> None:
    """RC-16, SH-18: `park_dropped`, and its clients get 58 with the next pass."""
    node = Several(3)
    with unmade(node) as root:
        homed = [node.client(home) for home in (1, 2)]
        to = to_shard(node, 2)
        for client in homed:
            client.post(client.send_frame_of("s", "u", [b"early"], to=to))
        delete(root, "u")
        node.rest()
    node.settle(100)
    assert [code_of(client) for client in homed] == [Code.TRANSIENT_NOT_ACCEPTED] * 2
    assert parked(node.members[2]) == 0
    assert node.members[2].exchange.drops.rows() == [("partition", "park_dropped", 2)]
