"""Which nodes are healed at the end of a run, and must go on without the others."""

from types import SimpleNamespace
from typing import Any, cast

from headrace.base.prng import Prng
from headrace.sim.convergence import choose_core
from headrace.sim.node import Node, Pump

SEEDS = 50


def make_nodes(count: int) -> list[Node[Any]]:
    nodes: list[Node[Any]] = []
    for index in range(count):
        node: Node[Any] = Node(index, (), cast("Any", None))  # no file is looked at
        node.running = SimpleNamespace(may_vote=True)
        node.pumps = (Pump(node, 0), Pump(node, 1))
        nodes.append(node)
    return nodes


def cores(nodes: list[Node[Any]]) -> list[list[int]]:
    return [choose_core(nodes, (), Prng(seed)) for seed in range(SEEDS)]


def test_half_of_the_time_the_core_is_no_more_than_an_election_needs() -> None:
    found = cores(make_nodes(3))
    assert [0, 1, 2] in found
    assert all(pair in found for pair in ([0, 1], [0, 2], [1, 2]))


def test_a_node_that_is_down_in_part_is_no_voter_of_a_small_core() -> None:
    """What that part was writing may be torn, so it may turn out that it must not vote."""
    nodes = make_nodes(3)
    nodes[0].pumps[1].is_ended = True
    assert [core for core in cores(nodes) if len(core) < 3 and 0 in core] == []
    assert [1, 2] in cores(nodes)
