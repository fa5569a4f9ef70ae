"""Has the components of running nodes check themselves.

A component is whatever a node names; one that has a method `check` states with it what holds
between its parts after every step, by assertions that would be too slow for production.
"""

from collections.abc import Iterable

EVERY_STEP_SEEDS = 10  # one seed in so many is checked after every step,
STEPS_BETWEEN = 50  # the others after so many


class Checks:
    """Decides when components are checked."""

    def __init__(self, seed: int) -> None:
        self._between = 1 if seed % EVERY_STEP_SEEDS == 0 else STEPS_BETWEEN
        self._steps = 0

    def is_due(self) -> bool:
        """Count one step; return whether components are to be checked after it."""
        self._steps += 1
        return self._steps % self._between == 0


def check_all(components: Iterable[object]) -> None:
    """Check every component that can be."""
    for component in components:
        check = getattr(component, "check", None)
        if check is not None:
            check()
