"""What a batch did, out of what Spark reports."""

import json

import pytest

from headrace.pipelines.progress import REJECTED, Totals, read_batch
from headrace.spark.offsets import Key, Position, encode_offsets


def offsets(*upcoming: int, history: int = 0) -> str:
    places = {
        Key("shop/orders", partition): Position(1, history, each)
        for partition, each in enumerate(upcoming)
    }
    return json.dumps(encode_offsets(places, "sales"))


REPORT = {
    "batchId": 7,
    "timestamp": "2026-01-31T12:00:00.000Z",
    "numInputRows": 500,
    "inputRowsPerSecond": "NaN",
    "durationMs": {"triggerExecution": 250, "addBatch": 200},
    "eventTime": {"watermark": "2026-01-31T11:59:50.000Z"},
    "stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}],
    "observedMetrics": {REJECTED: {"rows": 4}},
    "sources": [{"endOffset": offsets(10, 20), "latestOffset": offsets(15, 20, 3)}],
}


def test_a_whole_report() -> None:
    batch = read_batch(REPORT)
    assert (batch.batch, batch.rows, batch.seconds, batch.rows_per_second) == (7, 500, 0.25, 2000)
    assert (batch.lag, batch.dead_letters, batch.late) == (8, 4, 3)
    assert not batch.is_idle
    assert batch.describe() == (
        "batch 7: 500 rows in 0.25 s, 2,000 rows/s, lag 8, 4 dead letters, 3 late rows dropped"
    )


def test_a_purged_partition_lags_by_all_it_holds() -> None:
    source = {"endOffset": offsets(10), "latestOffset": offsets(4, history=1)}
    assert read_batch({**REPORT, "sources": [source]}).lag == 4


def test_a_report_that_says_next_to_nothing() -> None:
    batch = read_batch({"batchId": 0, "numInputRows": float("nan"), "sources": [{}]})
    assert (batch.rows, batch.lag, batch.rows_per_second) == (0, None, 0.0)
    assert batch.is_idle
    assert batch.describe() == "batch 0: 0 rows in 0.00 s, 0 rows/s"


@pytest.mark.parametrize("latest", [None, "null", '{"topics": {}}'])
def test_a_batch_that_an_earlier_run_planned_has_no_lag_that_is_known(latest: str | None) -> None:
    """Spark asks no source how far it could go before it does a logged batch again."""
    again = {"endOffset": offsets(10), "latestOffset": latest}
    known = {"endOffset": offsets(10), "latestOffset": offsets(10)}
    assert read_batch({**REPORT, "sources": [again]}).lag is None
    assert read_batch({**REPORT, "sources": [known, again]}).lag is None
    assert read_batch({**REPORT, "sources": [known, known]}).lag == 0


def test_totals_add_up() -> None:
    totals = Totals()
    for _ in range(3):
        totals.add(read_batch(REPORT))
    assert totals == Totals(batches=3, rows=1500, dead_letters=12, late=9)
