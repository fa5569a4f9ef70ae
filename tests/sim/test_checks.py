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


def test_one_seed_in_ten_is_checked_after_every_step() -> None:
    often, seldom = Checks(20), Checks(21)
    assert all(often.is_due() for _ in range(100))
    due = [step for step in range(1, 101) if seldom.is_due()]
    assert due == [STEPS_BETWEEN, 2 * STEPS_BETWEEN]


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
