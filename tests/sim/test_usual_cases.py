"""The usual case at the head of a stage does what the general form behind it does (decision 0029).

Equal seeds give equal runs with the usual cases and without them: every frame, write and answer.
"""

import pytest

from headrace.partitions.dedup import DedupTable
from headrace.shard.consensus.journaling import Journaling
from headrace.sim.outcome import Outcome
from headrace.storage.index import Index
from headrace.storage.journal import Journal
from headrace.storage.store import Store
from headrace.vsr import normal
from headrace.vsr.log import Log
from tests.planted.planting import Bug, Edit, plant
from tools.simulate import GROUPS, NODES, Simulation

USUAL_CASES = (
    Edit(Journal.flush, "if is_fitting and self.is_open and not self._queue:", "if False:"),
    Edit(Journal.pump, "is_fitting = ring.is_roomy and", "is_fitting = False and"),
    Edit(Journal.fits, "if not ring.is_roomy or", "if True or"),
    Edit(
        Index.put, "if runs and (last := runs[-1]).end == op", "if False and (last := runs[-1]).end"
    ),
    Edit(Store.stage_prepare, "if body is not None and", "if False and"),
    Edit(Log.drop_below, "if op == self._lowest + 1:", "if False:"),
    Edit(normal._propose, "is_fitting = shared.held.count == 0 and", "is_fitting = False and"),
    Edit(DedupTable.judge, "if header.request > client.watermark:", "if False:"),
    Edit(DedupTable.is_applied, "header.request <= client.watermark and ", ""),
    Edit(DedupTable.record, "if header.request == client.watermark + 1:", "if False:"),
    Edit(Journaling._waits_for_sync, "if group in free and", "if False and"),
)
WITHOUT = Bug("without_usual_cases", "", USUAL_CASES, is_stall=False)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("simulation", [GROUPS, NODES], ids=["groups", "nodes"])
@pytest.mark.parametrize("seed", range(20261118, 20261124))
def test_a_run_is_the_same_without_the_usual_cases(simulation: Simulation, seed: int) -> None:
    """Share: the simulator, 10 s."""
    usual = simulation.run_seed(seed)
    with plant(WITHOUT):
        general = simulation.run_seed(seed)
    assert usual.outcome == Outcome.PASS
    assert usual.committed > 0
    assert usual.trace_hash == general.trace_hash
