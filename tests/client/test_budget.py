"""How many calls, of Python and of C functions, one step of a client takes at most.

A clock tells little on a busy machine; a count does not change from run to run. What a repetition
does once in a while (a second read, a heartbeat's lock) is left out by taking the least of many.
A change that needs more calls raises the number here, and says why.
"""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import headrace
from headrace.kernel import NATIVE

REPETITIONS = 40
TOPIC = "shop/orders"
VALUE = b"x" * 100

pytestmark = pytest.mark.skipif(not NATIVE, reason="the twin of the kernel takes other calls")


@pytest.fixture
def topic(client: headrace.Client) -> str:
    client.create_stream("shop")
    client.create_topic(TOPIC)
    client.send(TOPIC, [VALUE] * 200)
    return TOPIC


def count_calls(step: Callable[[], object]) -> tuple[int, int]:
    """Return the calls of Python functions, and of C functions, of one step."""
    return min((count_once(step) for _ in range(REPETITIONS)), key=sum)


def count_once(step: Callable[[], object]) -> tuple[int, int]:
    counts = {"call": 0, "c_call": 0}

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        if event in counts:
            counts[event] += 1

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    # `step` itself, and the call that ends the profile, are no part of it.
    return counts["call"] - 1, counts["c_call"] - 1


def check(step: Callable[[], object], *, python_max: int, c_max: int) -> None:
    python, c = count_calls(step)
    assert python <= python_max
    assert c <= c_max


def test_the_counter_counts() -> None:
    def inner() -> int:
        return len(VALUE)

    assert count_calls(lambda: None) == (0, 0)
    assert count_calls(inner) == (0, 1)
    assert count_calls(lambda: inner() + inner()) == (2, 2)


def test_one_message_and_its_answer(client: headrace.Client, topic: str) -> None:
    check(lambda: client.send(topic, [VALUE], partition=0), python_max=56, c_max=66)
    check(lambda: client.send(topic, [VALUE]), python_max=61, c_max=68)


def test_other_calls(client: headrace.Client, topic: str) -> None:
    check(client.ping, python_max=58, c_max=50)
    check(lambda: client.poll(topic, count=1), python_max=96, c_max=91)


@pytest.fixture
def producer(client: headrace.Client, topic: str) -> Iterator[headrace.Producer]:
    """A producer with an open batch that does not fill."""
    with client.producer(
        topic,
        linger="1 h",
        batch=100_000,
        batch_bytes="48 MiB",
        buffer="64 MiB",
        partitioning=0,
    ) as made:
        made.send(VALUE)
        yield made


def test_a_message_of_a_producer(producer: headrace.Producer) -> None:
    send = producer.send
    check(lambda: send(VALUE), python_max=1, c_max=1)
    check(lambda: send("text"), python_max=1, c_max=1)
    check(lambda: send(VALUE, key="ada"), python_max=17, c_max=16)
    check(lambda: send(VALUE, headers={"source": 1}), python_max=28, c_max=45)


def test_many_messages_of_a_producer(producer: headrace.Producer) -> None:
    values = [VALUE] * 1000
    check(lambda: producer.send_many(values), python_max=26, c_max=22)


def test_a_poll_of_a_consumer(client: headrace.Client, topic: str) -> None:
    batches = client.consumer(topic, start="earliest", count=2).batches()
    next(batches)
    check(lambda: next(batches), python_max=126, c_max=113)
    consumer = client.consumer(topic, start="earliest", count=1)
    next(consumer)
    check(lambda: next(consumer), python_max=125, c_max=110)


def test_a_message_of_a_consumer(client: headrace.Client, topic: str) -> None:
    with client.consumer(topic, start="earliest", count=200) as consumer:
        next(consumer)
        check(lambda: next(consumer), python_max=1, c_max=1)
    with client.consumer(topic, name="report", start="earliest", count=200) as consumer:
        next(consumer)
        check(lambda: next(consumer), python_max=2, c_max=2)
