"""How many calls a request costs: counted, not timed, so that no change makes it longer unseen.

Python and C calls in the thread of the loop, from the readable socket to the written reply, on a
node that is busy with other things. Whoever must raise a figure says why in a decision record.
"""

from collections.abc import Iterator

import pytest

from bench.frames import Shape
from tests.server.counted_node import CountedNode, counted_node

SEND = 150
BATCH = 152
POLL = 216  # The search of the batch takes a call for each halving of what is in memory.
TICK = 111

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedNode]:
    with counted_node(tmp_path_factory.mktemp("calls")) as made:
        yield made


def test_a_send_costs_so_many_calls(node: CountedNode) -> None:
    assert node.count_send(Shape(1, 100)) <= SEND


def test_a_send_looks_up_no_member_of_an_enumeration(node: CountedNode) -> None:
    """No call, and slower than one: Python 3.11 searches the class and its bases each time."""
    assert node.find_lookups(Shape(1, 100)) == []


def test_a_batch_costs_no_more_calls_than_a_message(node: CountedNode) -> None:
    assert node.count_send(Shape(100, 100)) <= BATCH


def test_two_sends_of_a_turn_cost_less_than_two_turns(node: CountedNode) -> None:
    """What is short is the path of every send, not a path beside it for a single one."""
    alone = node.count_send(Shape(1, 100))
    assert node.count_send(Shape(1, 100), sends=2) <= 2 * alone


def test_a_poll_from_memory_costs_so_many_calls(node: CountedNode) -> None:
    assert node.count_poll() <= POLL


def test_an_idle_tick_costs_so_many_calls(node: CountedNode) -> None:
    assert node.count_tick() <= TICK
