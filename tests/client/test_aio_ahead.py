"""The asyncio client polls ahead (decision 0030): nothing is lost, twice or left behind."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import headrace
from headrace import aio
from headrace.client.session.connection import Connection
from tests.node import Node

pytestmark = pytest.mark.slow

TOPIC = "shop/orders"
COUNT = 100
VALUES = [b"%05d" % number + b"x" * 1000 for number in range(10 * COUNT + 7)]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the request numbers of what was sent ahead."""
    begun: list[int] = []
    begin = Connection.begin

    def note(self: Connection, ahead: object, number: int, deadline: float) -> object:
        begun.append(number)
        return begin(self, ahead, number, deadline)  # type: ignore[arg-type] # only passed on

    monkeypatch.setattr(Connection, "begin", note)
    return begun


def run(
    node: Node,
    work: Callable[[aio.AsyncClient], Awaitable[None]],
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run something with a client on a topic that has the values; no task may be left."""

    async def main() -> None:
        async with aio.connect(str(node.tcp)) as client:
            await client.create_stream("shop")
            await client.create_topic(TOPIC)
            await client.send(TOPIC, VALUES, partition=0)
            try:
                await work(client)
            finally:
                await client.delete_stream("shop")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_every_message_comes_once(node: Node, sent: list[int], loop: str) -> None:
    factory = None if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def work(client: aio.AsyncClient) -> None:
        async with client.consumer(TOPIC, wait=0, count=COUNT) as consumer:
            assert [message.value async for message in consumer] == VALUES
        assert len(sent) == 10  # after each full poll
        assert client.logins_count == 1

    run(node, work, factory)


def test_only_what_was_handed_out_is_stored(node: Node, sent: list[int]) -> None:
    async def work(client: aio.AsyncClient) -> None:
        async with client.consumer(TOPIC, name="me", wait=0, count=COUNT) as consumer:
            for _ in range(5):
                await anext(consumer)
        assert len(sent) == 1
        stored = await client.get_offset(TOPIC, 0, consumer="me")
        assert stored is not None
        assert stored.stored_offset == 4
        async with client.consumer(TOPIC, name="me", wait=0, count=COUNT) as consumer:
            assert [message.value async for message in consumer] == VALUES[5:]

    run(node, work)


def test_other_calls_between_the_messages(node: Node, sent: list[int]) -> None:
    """They discard what was polled ahead, and the consumer does without for a while."""

    async def work(client: aio.AsyncClient) -> None:
        read = []
        async with client.consumer(TOPIC, wait=0, count=COUNT) as consumer:
            async for message in consumer:
                read.append(message.value)
                if len(read) % 50 == 0:
                    await client.ping()
        assert read == VALUES
        assert len(sent) == 1

    run(node, work)


def test_a_cancelled_wait_loses_no_message(node: Node, sent: list[int]) -> None:
    """Cancelled after so many turns of the loop: while it sends ahead, fetches, or hands out."""

    async def work(client: aio.AsyncClient) -> None:
        read: list[bytes] = []
        turns = 0
        async with client.consumer(TOPIC, wait=0, count=COUNT) as consumer:
            while len(read) < len(VALUES):
                task = asyncio.ensure_future(anext(consumer))
                if len(read) % COUNT in (0, 1):
                    turns += 1
                    for _ in range(turns % 9):
                        await asyncio.sleep(0)
                    task.cancel()
                try:
                    read.append((await task).value)
                except asyncio.CancelledError:
                    read.append((await anext(consumer)).value)
        assert read == VALUES
        assert sent

    run(node, work)


def test_a_client_that_closes_with_an_answer_outstanding(node: Node, sent: list[int]) -> None:
    async def work(_: aio.AsyncClient) -> None:
        client = await aio.connect(str(node.tcp))
        consumer = client.consumer(TOPIC, wait=0, count=COUNT)
        assert (await anext(consumer)).value == VALUES[0]
        assert len(sent) == 1
        await client.close()

    run(node, work)


def test_an_error_comes_behind_the_messages_before_it(node: Node, sent: list[int]) -> None:
    """What was polled ahead is refused; all that was polled before is handed out first."""

    async def work(client: aio.AsyncClient) -> None:
        async with aio.connect(str(node.tcp)) as other:
            consumer = other.consumer(TOPIC, wait=0, count=COUNT)
            await anext(consumer)
            assert len(sent) == 1
            await client.delete_topic(TOPIC)
            read = [0]

            async def read_on() -> None:
                async for message in consumer:
                    read.append(message.offset)  # noqa: PERF401 - what came before the error counts

            with pytest.raises(headrace.NotFound):
                await read_on()
            assert read == list(range(len(read)))
            assert len(read) in (COUNT, 2 * COUNT)  # The answer may have been on its way.

    run(node, work)
