"""What is taken from a user stops its sends and polls on every shard within a second (SE-4).

One client on each shard sends to every partition in turn, another one polls; so a request is judged
by its home and served there or by another shard. Root takes something away under that load.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest

from headrace.wire.commands import messages, shards, streams, system, tokens, topics, users
from headrace.wire.identifiers import FromOffset, ToPartition
from tests import crossings
from tests.e2e.raw import RawClient
from tests.known_secrets import make_password
from tests.node import UNPINNED, running_node
from tests.security.house import DONE, STREAM, TOPIC, House, ask
from tests.security.levels import give_everywhere
from tests.security.requests import BATCH, READER
from tests.shards.topic import PARTITIONS, owners, until

pytestmark = pytest.mark.slow

SHARDS = 2
STOP_SECONDS_MAX = 1.0
ALLOWED = give_everywhere("poll_messages", "send_messages")
KEY = "key"
CLOSED = "closed"
# The last one: it has a request on its way to another shard, which may be done (SE-9).
OVER = (CLOSED, "evicted NO_SESSION", "evicted STALE_CLIENT")

Take = Callable[[House, str], None]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """A node of two shards with a topic that has partitions on both."""
    arguments = ["--shards", str(SHARDS)]
    with running_node(arguments=arguments, environment=UNPINNED) as node, House(node) as made:
        made.root.call(streams.CREATE_STREAM, streams.CreateStream(STREAM))
        made.root.call(topics.CREATE_TOPIC, topics.CreateTopic(STREAM, PARTITIONS, TOPIC))
        assert sorted(dict.fromkeys(owners(SHARDS))) == list(range(SHARDS))
        yield made
        crossings.note(node)


def revoke_permissions(house: House, user: str) -> None:
    house.root.call(users.UPDATE_PERMISSIONS, users.UpdatePermissions(user, None))


def delete_user(house: House, user: str) -> None:
    house.root.call(users.DELETE_USER, users.DeleteUser(user))


def revoke_token(house: House, user: str) -> None:
    with closing(house.log_in(user)) as owner:
        owner.call(tokens.DELETE_TOKEN, tokens.DeleteToken(KEY))


def send(client: RawClient, partition: int) -> str:
    request = messages.SendMessages(STREAM, TOPIC, ToPartition(partition), 1, BATCH)
    return ask(client, messages.SEND_MESSAGES, request)


def poll(client: RawClient, partition: int) -> str:
    request = messages.PollMessages(
        consumer=READER,
        stream=STREAM,
        topic=TOPIC,
        partition_id=partition,
        strategy=FromOffset(0),
        count=1,
        auto_commit=False,
    )
    return ask(client, messages.POLL_MESSAGES, request)


class Repeated:
    """Something that a client does to all partitions in turn, until it is refused."""

    def __init__(self, act: Callable[[int], str]) -> None:
        self.done = 0
        self.done_last = 0.0  # when the last one of them was confirmed
        self.answer = CLOSED  # the one that was not a confirmation
        self._act = act
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                answer = self._act(self.done % PARTITIONS)
            except (AssertionError, OSError):
                return  # The connection was closed before the request left.
            if answer != DONE:
                self.answer = answer
                return
            self.done_last = time.monotonic()
            self.done += 1

    @property
    def is_refused(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def connections(house: House) -> list[int]:
    """Return how many connections each shard has."""
    told = house.root.call(shards.GET_SHARDS, None)
    return [each.connections_count for each in told.shards]


def connect_on(house: House, shard: int) -> RawClient:
    """Return a client whose connection is on this shard: connections are dealt in turn."""
    for _ in range(2 * SHARDS):
        before = connections(house)
        client = house.connect()
        client.call(system.PING, None)  # Its home knows it from here on.
        until(lambda before=before: sum(connections(house)) > sum(before))  # type: ignore[misc]
        if connections(house)[shard] > before[shard]:
            return client
        client.close()
        until(lambda before=before: connections(house) == before)  # type: ignore[misc]
    raise AssertionError("no connection came to that shard")


@pytest.mark.parametrize(
    ("take", "is_by_token"),
    [
        pytest.param(revoke_permissions, False, id="permissions"),
        pytest.param(revoke_permissions, True, id="permissions of a token"),
        pytest.param(delete_user, False, id="user"),
        pytest.param(delete_user, True, id="user of a token"),
        pytest.param(revoke_token, True, id="token"),
    ],
)
def test_sends_and_polls_end_on_every_shard(house: House, take: Take, is_by_token: bool) -> None:
    user = house.new_name("user")
    house.add_user(user, ALLOWED)
    token = None
    if is_by_token:
        with closing(house.log_in(user)) as owner:
            token = owner.call(tokens.CREATE_TOKEN, tokens.CreateToken(KEY, 0)).token
    with ExitStack() as opened:
        clients = [
            opened.enter_context(closing(connect_on(house, shard)))
            for shard in range(SHARDS)
            for _ in (send, poll)
        ]
        for client in clients:
            client.login(token=token, username=user, password=make_password(user))
        acts = [
            Repeated(partial(act, client))
            for act, client in zip((send, poll) * SHARDS, clients, strict=True)
        ]
        for act in acts:
            opened.callback(act.end)
        until(lambda: all(each.done >= 2 * PARTITIONS or each.is_refused for each in acts))
        assert not any(each.is_refused for each in acts), [each.answer for each in acts]
        take(house, user)
        taken_at = time.monotonic()
        until(lambda: all(each.is_refused for each in acts))
        late = [each.done_last - taken_at for each in acts]
        assert max(late) <= STOP_SECONDS_MAX, late
        is_session_over = take is not revoke_permissions
        allowed = OVER if is_session_over else ("refused UNAUTHORIZED",)
        assert [each.answer for each in acts if each.answer not in allowed] == []
        if not is_session_over:
            for do, client in zip((send, poll) * SHARDS, clients, strict=True):
                answers = [do(client, number) for number in range(PARTITIONS)]
                assert answers == ["refused UNAUTHORIZED"] * PARTITIONS
