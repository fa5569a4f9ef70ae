"""`headrace tail` where the node cannot read what it has stored.

Share: check, about 6 s.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headrace
from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal
from tests.node import Node

pytestmark = pytest.mark.slow

BATCH = 10
RANGE = (
    "damaged/orders, partition 0: cannot read message [4011] (the 10 offsets {} to {} are damaged"
)


@contextmanager
def damaged_node(folder: Path, *batches: int) -> Iterator[Node]:
    """Run a node that has five batches of ten messages, some of which are damaged."""
    node = Node(folder)
    node.start()
    try:
        with headrace.connect(str(node.tcp), username="iggy", password="iggy") as client:
            client.create_stream("damaged")
            client.create_topic("damaged/orders")
            for batch in range(5):
                values = [f"order {BATCH * batch + each}" for each in range(BATCH)]
                client.send("damaged/orders", values)
        node.stop()
        for batch in batches:
            flip(node.data, f"order {BATCH * batch + 5}".encode())
        node.start()
        yield node
        node.stop()
    except BaseException:
        node.kill()
        raise


def flip(data: Path, value: bytes) -> None:
    """Change a byte of a message in its segment."""
    (path,) = [each for each in data.rglob("*.log") if value in each.read_bytes()]
    content = bytearray(path.read_bytes())
    content[content.index(value)] ^= 1
    path.write_bytes(content)


def lines(*numbers: int) -> str:
    return "".join(f"order {number}\n" for number in numbers)


def test_damage_ends_it_with_its_range_and_a_way_past(
    tmp_path: Path, lone_terminal: Terminal
) -> None:
    with damaged_node(tmp_path, 1, 3) as node:
        asked = ("tail", "damaged/orders", "--address", str(node.tcp), "--from", "earliest")
        told = lone_terminal(*asked)
        assert (told.code, told.out) == (Exit.FAILED, lines(*range(10)))
        assert RANGE.format(10, 19) in told.err
        assert "--skip-damaged goes past them" in told.err
        told = lone_terminal(*asked, "--skip-damaged")
        assert (told.code, told.out) == (
            Exit.OK,
            lines(*range(10), *range(20, 30), *range(40, 50)),
        )
        first, second = told.err.splitlines()
        assert RANGE.format(10, 19) in first
        assert first.endswith("reading goes on at 20")
        assert RANGE.format(30, 39) in second


def test_damage_at_both_ends_is_gone_past(tmp_path: Path, lone_terminal: Terminal) -> None:
    with damaged_node(tmp_path, 0, 4) as node:
        asked = ("tail", "damaged/orders", "--address", str(node.tcp), "--skip-damaged")
        for start in (("--from", "earliest"), ("--from", "end-99"), ("--filter", "order")):
            told = lone_terminal(*asked, *start)
            wanted = range(30, 40) if "--filter" in start else range(10, 40)
            assert (told.code, told.out) == (Exit.OK, lines(*wanted)), start
            assert RANGE.format(0, 9) in told.err
            assert RANGE.format(40, 49) in told.err


def test_a_consumer_names_what_cannot_be_read_and_stays_before_it(tmp_path: Path) -> None:
    with (
        damaged_node(tmp_path, 1) as node,
        headrace.connect(str(node.tcp), username="iggy", password="iggy") as client,
        client.consumer("damaged/orders", name="c", wait=0) as consumer,
    ):
        assert [next(consumer).offset for _ in range(BATCH)] == list(range(BATCH))
        with pytest.raises(headrace.Unreadable):
            next(consumer)
        with pytest.raises(headrace.Unreadable) as caught:
            next(consumer)
        assert (caught.value.first, caught.value.end) == (10, 20)
        consumer.skip(caught.value)
        assert [message.offset for message in consumer] == list(range(20, 50))
