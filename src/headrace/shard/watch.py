"""How a simulation sees every op that is applied."""

from collections.abc import Callable
from typing import TypeAlias

from headrace.metadata.target import PartitionTarget
from headrace.ports.machine import StateMachine

# Returns what consensus is to drive in the place of a machine; of the metadata group without a
# target.
Watch: TypeAlias = Callable[[PartitionTarget | None, StateMachine], StateMachine]


def unwatched(_: PartitionTarget | None, machine: StateMachine) -> StateMachine:
    """Return a machine as it is."""
    return machine
