"""The components of simulated nodes check themselves."""

import pytest

from headrace.sim.checks import STEPS_BETWEEN, Checks, check_all
from headrace.sim.groups.options import Options
from headrace.sim.groups.workload import make_world
from headrace.sim.machine import AppendMachine
from headrace.sim.nodes.options import NodeOptions
from headrace.sim.nodes.workload import make_world as make_world_of_nodes
from headrace.sim.outcome import Outcome
from headrace.vsr.replica import Replica


class Broken:
    def check(self) -> None:
        raise AssertionError("two parts disagree")


class Counting:
    def __init__(self) -> None:
        self.count = 0

    def check(self) -> None:
        self.count += 1


def test_one_seed_in_ten_is_checked_after_every_step() -> None:
    parts = [Counting() for _ in range(7)]
    often = Checks(20)
    for _ in range(STEPS_BETWEEN - 1):
        often.check(parts)
    assert [part.count for part in parts] == [7] * 7  # 49 steps, one component after each
    often.check(parts)
    assert [part.count for part in parts] == [7, 8, 7, 7, 8, 7, 7]


def test_other_seeds_are_checked_after_some_steps() -> None:
    parts = [Counting() for _ in range(7)]
    seldom = Checks(21)
    for _ in range(3 * STEPS_BETWEEN):
        seldom.check(parts)
    assert [part.count for part in parts] == [1] * 7


def test_a_node_that_names_no_components_is_not_checked() -> None:
    often = Checks(20)
    for _ in range(STEPS_BETWEEN):
        often.check([])


def test_what_has_no_check_is_passed_over() -> None:
    check_all([object(), AppendMachine()])
    with pytest.raises(AssertionError, match="two parts disagree"):
        check_all([object(), Broken()])


@pytest.mark.parametrize("is_nodes", [False, True])
def test_a_component_that_breaks_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, *, is_nodes: bool
) -> None:
    monkeypatch.setattr(Replica, "check", Broken.check, raising=False)
    if is_nodes:
        report = make_world_of_nodes(NodeOptions(seed=10)).run()
    else:
        report = make_world(Options(seed=10)).run()
    assert report.outcome == Outcome.VIOLATION
    assert "two parts disagree" in report.reason
