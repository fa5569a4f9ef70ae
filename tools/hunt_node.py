"""Hunts the planted bugs of whole nodes: finds for each a seed under which the simulator sees it.

    python -m tools.hunt_node                          # recorded seeds first, then from 1 on
    python -m tools.hunt_node --only served_unverified
    python -m tools.hunt_node --fresh                  # as if nothing were recorded

A seed counts if the run fails with the bug and passes without it. What was found goes to
tests/sim/nodes/planted_seeds.toml, which `make test` replays. The exit code is the number of bugs
that were not found.
"""

import sys
from pathlib import Path

from headrace.sim.nodes.options import draw_node_options
from headrace.sim.outcome import Report
from tests.planted.of_nodes import BUGS
from tools.hunt import Campaign, Hunt
from tools.simulate_node import run

LIMIT = 1_000

_PREAMBLE = """\
# For each bug of planted.py a seed under which the simulator of whole nodes sees it, how that run
# ended, and how many seconds it took. Written by `python -m tools.hunt_node`.
"""


def _run(seed: int) -> Report:
    return run(draw_node_options(seed))


CAMPAIGN = Campaign(
    BUGS,
    Path(__file__).parent.parent / "tests" / "sim" / "nodes" / "planted_seeds.toml",
    _PREAMBLE,
    _run,
)


def hunt(argument: tuple[str, int, int]) -> Hunt:
    """Hunt one bug, in a process of its own."""
    return CAMPAIGN.hunt(argument)


if __name__ == "__main__":
    sys.exit(CAMPAIGN.main(hunt, what=__doc__ or "", limit=LIMIT))
