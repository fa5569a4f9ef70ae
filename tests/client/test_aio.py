"""The face for asyncio with a real node."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import headrace
from headrace import aio
from tests.node import Node

pytestmark = pytest.mark.slow

TOPIC = "shop/orders"


def run(node: Node, work: Callable[[aio.AsyncClient], Awaitable[None]]) -> None:
    """Run something with a client on a node that has the topic and nothing else."""

    async def main() -> None:
        async with aio.connect(str(node.tcp)) as client:
            await client.create_stream("shop")
            await client.create_topic(TOPIC, partitions=2)
            try:
                await work(client)
            finally:
                await client.delete_stream("shop")

    asyncio.run(main())


def test_calls_and_their_refusals(node: Node) -> None:
    async def work(client: aio.AsyncClient) -> None:
        await client.ping()
        assert (await client.get_topic(TOPIC)).topic.name == "orders"
        with pytest.raises(headrace.AlreadyExists):
            await client.create_stream("shop")
        results = await asyncio.gather(*[client.get_stream("shop") for _ in range(20)])
        assert {found.stream.name for found in results} == {"shop"}

    run(node, work)


def test_awaiting_the_connection(node: Node) -> None:
    async def main() -> None:
        client = await aio.connect(str(node.tcp))
        await client.ping()
        await client.close()
        with pytest.raises(headrace.ClientClosed):
            await client.ping()
        with pytest.raises(headrace.Unauthenticated):
            await aio.connect(str(node.tcp), username="iggy", password="wrong")

    asyncio.run(main())


def test_a_producer_and_a_consumer(node: Node) -> None:
    async def work(client: aio.AsyncClient) -> None:
        async with client.producer(TOPIC, batch=100) as producer:
            deliveries = [await producer.send(b"%d" % number) for number in range(1000)]
        places = [await delivery for delivery in deliveries]
        assert len(set(places)) == 1000
        async with client.consumer(TOPIC, name="me", wait=0) as consumer:
            read = [int(message.value) async for message in consumer]
        assert sorted(read) == list(range(1000))
        stored = [await client.get_offset(TOPIC, number, consumer="me") for number in (0, 1)]
        assert sum(each.stored_offset + 1 for each in stored if each) == 1000

    run(node, work)


def test_batches_of_a_group(node: Node) -> None:
    async def work(client: aio.AsyncClient) -> None:
        await client.send(TOPIC, ["a", "b"], partition=0)
        await client.send(TOPIC, ["c"], partition=1)
        async with client.consumer(TOPIC, group="g", wait=0, commit="manual") as consumer:
            values = [value async for batch in consumer.batches() for value in batch.values()]
            await consumer.commit()
        assert sorted(values) == [b"a", b"b", b"c"]
        stored = await client.get_offset(TOPIC, 0, group="g")
        assert stored is not None
        assert stored.stored_offset == 1

    run(node, work)


def test_a_full_buffer_and_a_failed_batch(node: Node) -> None:
    async def work(client: aio.AsyncClient) -> None:
        producer = client.producer(TOPIC, buffer="10 KiB", linger="1 h", block=0.05)
        await producer.send(b"x" * 9000)
        with pytest.raises(headrace.BufferFull):
            await producer.send(b"x" * 9000)
        await producer.flush()
        await client.delete_topic(TOPIC)
        lost = await producer.send("lost")
        with pytest.raises(headrace.NotFound):
            await producer.close()
        with pytest.raises(headrace.NotFound):
            await lost
        with pytest.raises(headrace.ClientClosed):
            await producer.send("late")

    run(node, work)


def test_a_cancelled_call_does_not_disturb_the_next(node: Node) -> None:
    async def work(client: aio.AsyncClient) -> None:
        for _ in range(20):
            task = asyncio.create_task(client.get_stats())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.get_stream("shop")).stream.name == "shop"
        assert client.logins_count > 1

    run(node, work)


def test_a_cancelled_wait_does_not_stop_the_batch(node: Node) -> None:
    async def work(client: aio.AsyncClient) -> None:
        async with client.producer(TOPIC, linger="100 ms") as producer:
            delivery = await producer.send("x")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await delivery
            assert (await delivery).offset == 0

    run(node, work)


def test_a_port_that_never_answers_is_named_with_a_reason() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            await aio.connect(address, answer_timeout="50 ms")

    with pytest.raises(headrace.Unavailable, match="cannot be reached: no answer in time; is a"):
        asyncio.run(main())


def test_nobody_listens() -> None:
    async def main(**options: Any) -> None:
        await aio.connect("127.0.0.1:1", **options)

    said = r"127\.0\.0\.1:1 cannot be reached: .*; is a node running there"
    with pytest.raises(headrace.Unavailable, match=said):
        asyncio.run(main(timeout="24 h"))
    with pytest.raises(headrace.Unavailable, match=r"cannot be reached within 0\.2 s"):
        asyncio.run(main(wait="200 ms"))


def test_another_loop_will_do(node: Node) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with aio.connect(str(node.tcp)) as client:
            assert len(await client.get_clients()) >= 1
            with pytest.raises(headrace.NotFound):
                await client.get_stream("nothing")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_many_at_once_and_large_ones(node: Node) -> None:
    values = [b"%d" % number * 500 for number in range(5000)]

    async def work(client: aio.AsyncClient) -> None:
        async with client.producer(TOPIC, partitioning=0, buffer="1 MiB") as producer:
            await producer.send_many(values, headers={"n": 1})
            await producer.flush()
            producer.check()
            assert producer.confirmed_count == len(values)
        async with client.consumer(TOPIC, partition=0, wait=0, count=5000) as consumer:
            found = [message async for message in consumer]
        assert [message.value for message in found] == values
        assert found[-1].headers == {"n": 1}

    run(node, work)


def test_a_failure_is_there_without_waiting(node: Node) -> None:
    async def work(client: aio.AsyncClient) -> None:
        producer = client.producer(TOPIC, partitioning=9, linger=0)
        delivery = await producer.send("lost")
        with pytest.raises(headrace.NotFound):
            await delivery
        with pytest.raises(headrace.NotFound):
            producer.check()
        producer.check()
        assert producer.confirmed_count == 0
        await producer.close()

    run(node, work)
