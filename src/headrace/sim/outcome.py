"""How a run ended, and what it reached."""

from enum import IntEnum

import msgspec


class Outcome(IntEnum):
    """The exit code of a run."""

    PASS = 0
    VIOLATION = 1
    LIVENESS = 2
    EMPTY = 3


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of one run."""

    seed: int
    outcome: Outcome
    reason: str
    trace_hash: str
    steps: int
    committed: int
    virtual_micros: int
    events: dict[str, int]
    probes: dict[str, int]
    last: tuple[str, ...]


def judge_probes(outcome: Outcome, reason: str, probes: dict[str, int]) -> tuple[Outcome, str]:
    """Return how a run ended, given the marks that its nodes reached.

    No node of a simulation lies, so whatever contradicts what a replica has applied is a violation.
    """
    found = [name for name in sorted(probes) if name.startswith("contradiction.")]
    if not found or outcome == Outcome.VIOLATION:
        return outcome, reason
    return Outcome.VIOLATION, f"contradicted: {', '.join(found)}; {reason}"
