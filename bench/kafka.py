"""`confluent-kafka` beside our producer: messages one by one, to a broker of its own process.

The package brings a broker for tests (`test.mock.num.brokers`) that keeps messages in memory, so
nothing else is needed. It is in no lock: it serves this comparison alone. It may live in another
environment, whose interpreter is then named:

    python3 -m venv /tmp/kafka && /tmp/kafka/bin/pip install confluent-kafka
    BENCH_KAFKA_PYTHON=/tmp/kafka/bin/python python -m bench.client --only one

As a program it is the other side: for each line it reads, it sends the messages and prints how many
seconds that took, and how many of the processor.
"""

import importlib
import os
import subprocess
import sys
import time
from typing import Protocol, Self

PYTHON_VARIABLE = "BENCH_KAFKA_PYTHON"
BUFFER_KIBIBYTES = 32 * 1024  # the default of our producer
MESSAGES_MAX = 1_000_000  # of its buffer: beyond what the bytes allow
LINGER_MILLISECONDS = 5  # the default of both


class NoKafkaError(Exception):
    """The package is not there; the message says how to get it."""


class Kafka:
    """A process that sends messages of one size."""

    def __init__(self, size: int, count: int) -> None:
        """Start it.

        Raises:
            NoKafkaError: The package is not installed.
        """
        python = os.environ.get(PYTHON_VARIABLE, sys.executable)
        self._process = subprocess.Popen(  # noqa: S603  # ours
            [python, __file__, str(size), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._ask() is None:
            self.__exit__()
            raise NoKafkaError(f"confluent-kafka is not installed for {python}: see bench/kafka.py")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self) -> tuple[float, float]:
        """Send the messages and wait for their confirmation; return seconds and processor time."""
        taken = self._ask()
        if taken is None:
            raise NoKafkaError("confluent-kafka ended")
        return taken

    def _ask(self) -> tuple[float, float] | None:
        """Let it send once; return what it prints, None if it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        seconds, _, busy = self._process.stdout.readline().partition(" ")
        return (float(seconds), float(busy)) if busy else None


class Producer(Protocol):
    """What of its producer is used."""

    def produce(self, topic: str, value: bytes, *, partition: int) -> None:
        """Buffer a message; BufferError while there is no room."""
        ...

    def poll(self, timeout: float) -> int:
        """Wait for confirmations."""
        ...

    def flush(self) -> int:
        """Wait until every message is confirmed."""
        ...


def send_all(producer: Producer, value: bytes, count: int) -> None:
    """Send messages one by one, as a program would that must not lose one."""
    produce = producer.produce
    for _ in range(count):
        while True:
            try:
                produce("bench", value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()


def main() -> None:
    """Answer each line with the time of one lap."""
    size, count = map(int, sys.argv[1:])
    producer = importlib.import_module("confluent_kafka").Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "mock",
            "linger.ms": LINGER_MILLISECONDS,
            "queue.buffering.max.kbytes": BUFFER_KIBIBYTES,
            "queue.buffering.max.messages": MESSAGES_MAX,
        }
    )
    value = os.urandom(size)
    for _ in sys.stdin:
        began, busy = time.perf_counter(), time.process_time()
        send_all(producer, value, count)
        seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        sys.stdout.write(f"{seconds} {cpu}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
