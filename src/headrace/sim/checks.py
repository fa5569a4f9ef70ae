"""Has the components of running nodes check themselves.

A component is whatever a node names; one that has a method `check` states with it what holds
between its parts after every step, by assertions that would be too slow for production. Every 50th
step one third of them is checked, in turn. In one seed of ten one of them, in turn, is checked
after every step between. All of them after every step would take four times as long as the run.
"""

from collections.abc import Iterable

EVERY_STEP_SEEDS = 10  # one seed in so many is checked after every step
STEPS_BETWEEN = 50  # so many steps after which a third of the components is checked


class Checks:
    """Decides what is checked when."""

    def __init__(self, seed: int) -> None:
        self._is_every_step = seed % EVERY_STEP_SEEDS == 0
        self._steps = 0

    def check(self, components: Iterable[object]) -> None:
        """Count one step, and check what is due after it."""
        self._steps += 1
        if self._steps % STEPS_BETWEEN == 0:
            check_all(list(components)[self._steps // STEPS_BETWEEN % 3 :: 3])
        elif self._is_every_step and (found := list(components)):
            check_all(found[self._steps % len(found) :][:1])


def check_all(components: Iterable[object]) -> None:
    """Check every component that can be."""
    for component in components:
        check = getattr(component, "check", None)
        if check is not None:
            check()
