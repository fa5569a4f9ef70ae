"""Lane X, PR4: ends the scripted life at one step, starts the node twice, judges what is left."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.crash.faults import Action, Faults, Step
from tests.crash.process import CrashNode
from tests.crash.scenario import Scenario, check_goes_on, read_state


@dataclass(frozen=True)
class Ending:
    """How one life ended: at which step, if it did not come to its own end."""

    step: Step | None
    steps_count: int


@contextmanager
def faulty_node(library: Path) -> Iterator[tuple[CrashNode, Faults]]:
    """Give a node, not started, whose calls can be made to fail."""
    with TemporaryDirectory(prefix="headrace-crash-") as name:
        folder = Path(name)
        node = CrashNode(folder)
        faults = Faults(folder, library)
        node.set_environment(**faults.environment(node.data))
        try:
            yield node, faults
        finally:
            if node.is_started:
                node.kill()
            faults.close()


def count_steps(library: Path) -> list[Step]:
    """Give the steps of a life that nothing disturbs."""
    with faulty_node(library) as (node, faults):
        faults.count()
        scenario = Scenario(node)
        assert scenario.run(), node.output()
        return faults.steps()


def end_at(library: Path, number: int, action: Action) -> Ending:
    """End a life at a step, and judge what is left.

    Raises:
        AssertionError: What is left is neither the state before the step nor that after it.
    """
    with faulty_node(library) as (node, faults):
        scenario, step = _live_until(node, faults, number, action)
        if step is not None:
            faults.clear()
            _judge(node, scenario, f"step {number}, {step}")
        return Ending(step, faults.counted)


def end_recovery_at(library: Path, life: int, number: int) -> Ending:
    """End a life at a step, then the start that follows at one of its own steps (PR5).

    Raises:
        AssertionError: What is left is neither the state before the step nor that after it.
    """
    with faulty_node(library) as (node, faults):
        scenario, step = _live_until(node, faults, life, Action.KILL)
        assert step is not None, f"the life has no step {life}"
        faults.order(Action.KILL, first=number, count=1)
        if node.start_or_end():
            return Ending(None, faults.counted)
        step = faults.steps()[-1]
        assert node.last_code == -9, f"{step}: ended with {node.last_code}\n{node.output()}"
        faults.clear()
        _judge(node, scenario, f"step {life}, then step {number} of the start, {step}")
        return Ending(step, number)


def _live_until(
    node: CrashNode, faults: Faults, number: int, action: Action
) -> tuple[Scenario, Step | None]:
    """Live up to a step; give it, or nothing if the life came to its own end."""
    faults.order(action, first=number, count=1)
    scenario = Scenario(node)
    if scenario.run():
        return scenario, None
    step = faults.steps()[-1]
    code = node.wait_end() if node.is_started else node.last_code
    assert code == -9, f"step {number}, {step}: ended with {code}\n{node.output()}"
    return scenario, step


def _judge(node: CrashNode, scenario: Scenario, where: str) -> None:
    """Start a node twice: the second restart must show what the first one did (rule 19)."""
    allowed = [scenario.state]
    if scenario.possible is not None:
        allowed.append(scenario.possible)
    node.restart()
    left = read_state(node.tcp)
    assert left in allowed, f"{where}: {_describe(left, allowed)}"
    node.kill()
    node.restart()
    again = read_state(node.tcp)
    assert again == left, f"{where}: {_describe(again, [left])}"
    check_goes_on(node.tcp, left)
    node.stop()


def _describe(left: object, allowed: Sequence[object]) -> str:
    wanted = "\n or ".join(str(each)[:2000] for each in allowed)
    return f"left is\n    {str(left)[:2000]}\nallowed is\n    {wanted}"
