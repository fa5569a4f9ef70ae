"""What producers hold when nobody closes them, in programs that end: sent, else told."""

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest

import headrace
from headrace import aio
from tests.client.proxy import Plan, faulty_proxy
from tests.node import Node, running_node

pytestmark = pytest.mark.slow

TOPIC = "shop/orders"
VALUES = ["one", "two", "three", "four"]

SYNC = """
import sys
import headrace

client = headrace.connect(sys.argv[1], timeout="300 ms", wait="20 s")
producer = client.producer("shop/orders", linger={linger!r}, partitioning={partition})
for value in ["one", "two", "three", "four"]:
    producer.send(value)
{ending}
"""
ASYNC = """
import asyncio
import sys
from headrace import aio

async def main():
    client = await aio.connect(sys.argv[1], timeout="300 ms", wait="20 s")
    producer = client.producer("shop/orders", linger={linger!r}, partitioning={partition})
    for value in ["one", "two", "three", "four"]:
        await producer.send(value)
    {ending}

asyncio.run(main())
"""
# A loop that nobody tidied up: its tasks wait for ever.
LEFT_LOOP = ASYNC.replace(
    "asyncio.run(main())", "loop = asyncio.new_event_loop(); loop.run_until_complete(main())"
)
# A loop in a thread of its own that runs until the end.
THREADED_LOOP = ASYNC.replace(
    "asyncio.run(main())",
    """
import threading

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(main(), loop).result()
""",
)
PROGRAMS = [SYNC, ASYNC, LEFT_LOOP, THREADED_LOOP]
NAMES = ["sync", "asyncio", "left-loop", "threaded-loop"]


@pytest.fixture(autouse=True)
def topic(client: headrace.Client) -> str:
    client.create_stream("shop")
    client.create_topic(TOPIC)
    return TOPIC


def run(
    program: str, address: object, linger: str = "1 h", partition: int = 0, ending: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    text = program.format(linger=linger, partition=partition, ending=ending)
    command = [sys.executable, "-c", text, str(address)]
    return subprocess.run(
        command, input="", capture_output=True, text=True, timeout=60, check=False
    )


def read_all(client: headrace.Client) -> list[str]:
    return [message.text for message in client.poll(TOPIC, count=100)]


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
@pytest.mark.parametrize("linger", ["5 ms", "1 h"])
def test_the_end_of_a_program_sends_what_waits(
    program: str, linger: str, node: Node, client: headrace.Client
) -> None:
    done = run(program, node.tcp, linger)
    assert done.returncode == 0
    assert "not confirmed" not in done.stderr  # asyncio has words of its own for a left loop
    assert read_all(client) == VALUES


@pytest.mark.parametrize("program", PROGRAMS[:2], ids=NAMES[:2])
def test_a_program_that_fails_sends_what_waits(
    program: str, node: Node, client: headrace.Client
) -> None:
    done = run(program, node.tcp, ending="raise KeyError('mine')")
    assert done.returncode == 1
    assert "KeyError" in done.stderr
    assert read_all(client) == VALUES


def test_a_batch_under_way_at_the_end_of_a_loop_is_sent_once(
    node: Node, client: headrace.Client
) -> None:
    """Its answer is lost, so it is under way when the loop cancels what sends it."""
    plan = Plan(1, 1.0, ("swallow",))

    async def main(address: str) -> None:
        theirs = await aio.connect(address)
        producer = theirs.producer(TOPIC, linger=0)
        await producer.send("one")
        while not plan.faults:  # noqa: ASYNC110 - the proxy is in other threads
            await asyncio.sleep(0.001)
        plan.is_on = False
        await producer.send("two")

    with faulty_proxy(node.tcp, plan) as address, warnings.catch_warnings():
        # The connection that nobody closed is collected here, not in a test that comes later.
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main(str(address)))
        gc.collect()
    assert plan.faults.total() == 1
    assert plan.requests == 3
    assert read_all(client) == ["one", "two"]


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_the_end_tells_what_could_not_be_sent(program: str) -> None:
    with running_node() as node:
        with headrace.connect(str(node.tcp)) as client:
            client.create_stream("shop")
            client.create_topic(TOPIC)
        ending = f"import os, signal; os.kill({node.pid}, signal.SIGKILL)"
        done = run(program, node.tcp, ending=ending)
        node.kill()
    assert "4 messages for 'shop/orders' were not confirmed" in done.stderr
    assert done.stderr.count("not confirmed") == 1


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_the_end_tells_what_was_refused(program: str, node: Node) -> None:
    done = run(program, node.tcp, partition=9)
    assert "4 messages for 'shop/orders' were not confirmed" in done.stderr
    assert "not found" in done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_the_end_waits_within_a_bound(program: str, node: Node) -> None:
    """The node has the messages and no answer comes: without the bound this would take a day."""
    program = "import headrace.client.produce.unclosed as left\nleft.SECONDS_MAX = 3.0\n" + program
    program = program.replace('"300 ms"', '"24 h", answer_timeout="24 h"')
    plan = Plan(1, 1.0, ("swallow",))
    with faulty_proxy(node.tcp, plan) as address:
        done = run(program, address)
    assert plan.faults.total() == 1
    assert "4 messages for 'shop/orders' were not confirmed" in done.stderr


def test_a_closed_producer_leaves_nothing_to_tell(node: Node, client: headrace.Client) -> None:
    done = run(SYNC, node.tcp, ending="client.close()")
    assert (done.returncode, done.stderr) == (0, "")
    done = run(ASYNC, node.tcp, ending="await client.close()")
    assert (done.returncode, done.stderr) == (0, "")
    assert read_all(client) == VALUES * 2


def test_a_forked_process_leaves_the_messages_to_its_parent(
    node: Node, client: headrace.Client
) -> None:
    done = run(SYNC, node.tcp, ending="import os\nif os.fork():\n    os.wait()")
    assert (done.returncode, done.stderr) == (0, "")
    assert read_all(client) == VALUES


def drop(work: Coroutine[Any, Any, None]) -> None:
    """Run work on a loop that is closed without a word to its tasks."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # It tells of destroyed tasks.
    loop.run_until_complete(work)
    loop.close()
    del loop, work
    gc.collect()


def test_a_collected_producer_tells_what_it_held(node: Node) -> None:
    async def main() -> None:
        client = await aio.connect(str(node.tcp))
        producer = client.producer(TOPIC, linger="1 h")
        for value in VALUES:
            await producer.send(value)

    with pytest.warns(ResourceWarning) as told:
        drop(main())
    texts = [str(each.message) for each in told]
    assert [text for text in texts if "4 messages for 'shop/orders' were not confirmed" in text]
