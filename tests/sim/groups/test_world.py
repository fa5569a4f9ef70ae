"""The world itself, with a small node that stands in for the shard."""

import msgspec
import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.sim.agenda import MILLISECOND, SECOND
from headrace.sim.disk import DiskOptions
from headrace.sim.faults import FaultOptions
from headrace.sim.groups.clients import WorkloadOptions
from headrace.sim.groups.options import Options, draw_options
from headrace.sim.groups.workload import Groups
from headrace.sim.network import NetworkOptions
from headrace.sim.outcome import Outcome, Report
from headrace.sim.world import World
from tests.sim.groups.standin import StandInSystem

GROUPS = (METADATA_GROUP, 7)
ROUGH = Options(
    seed=1,
    replica_count=1,
    groups=GROUPS,
    safety_limit=4 * SECOND,
    workload=WorkloadOptions(client_count=3, requests=80, think_mean=2_000, logout=3, malformed=3),
    network=NetworkOptions(loss=400, duplicate=2_000, delay_mean=2_000),
    disk=DiskOptions(sync_mean=20_000),
    faults=FaultOptions(
        crash_mean=200 * MILLISECOND,
        restart_mean=20 * MILLISECOND,
        power=70,
        pause_mean=500 * MILLISECOND,
        pause_length=20 * MILLISECOND,
        clock_mean=500 * MILLISECOND,
    ),
)


def run(options: Options, *, answers_early: bool = False) -> Report:
    system = StandInSystem(options.groups, answers_early=answers_early)
    return World(options, Groups(options, system)).run()


@pytest.mark.slow
def test_a_correct_node_passes_under_crashes_and_torn_writes() -> None:
    reached: dict[str, int] = {}
    for seed in range(12):
        report = run(msgspec.structs.replace(ROUGH, seed=seed))
        assert report.outcome == Outcome.PASS, (seed, report.reason, report.last[-20:])
        for name, count in report.events.items():
            reached[name] = reached.get(name, 0) + count
    for name in ("world.power_cut", "world.killed", "disk.write_torn", "client.acknowledged"):
        assert reached[name]
    assert reached["client.left"]
    assert reached["world.crashed_between_effects"]


@pytest.mark.slow
def test_a_node_that_answers_before_its_journal_is_durable_is_caught() -> None:
    reports = [
        run(msgspec.structs.replace(ROUGH, seed=seed), answers_early=True) for seed in range(12)
    ]
    caught = [report for report in reports if report.outcome == Outcome.VIOLATION]
    assert caught
    assert {report.reason[:2] for report in caught} <= {"R1", "R2", "R6", "H1", "H4", "H5", "H6"}


def test_a_changed_record_is_reported() -> None:
    report = run(msgspec.structs.replace(ROUGH, canary=True))
    assert report.outcome == Outcome.VIOLATION
    assert report.last


def test_a_run_in_which_nothing_goes_wrong_is_empty() -> None:
    options = Options(seed=3, replica_count=1, groups=GROUPS, workload=WorkloadOptions(requests=10))
    report = run(options)
    assert report.outcome == Outcome.EMPTY
    assert report.committed


def test_a_run_that_answers_nobody_fails_for_liveness() -> None:
    options = Options(
        seed=3,
        replica_count=1,
        groups=GROUPS,
        safety_limit=SECOND,
        liveness_limit=SECOND,
        disk=DiskOptions(sync_mean=100 * SECOND),
    )
    report = run(options)
    assert report.outcome == Outcome.LIVENESS
    assert "wait" in report.reason


def test_a_run_without_end_is_stopped() -> None:
    report = run(msgspec.structs.replace(ROUGH, events_max=100))
    assert report.outcome == Outcome.LIVENESS
    assert "livelock" in report.reason


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = run(ROUGH), run(ROUGH)
    assert first == second
    assert run(msgspec.structs.replace(ROUGH, seed=2)).trace_hash != first.trace_hash


def test_a_seed_draws_the_same_options_each_time() -> None:
    assert draw_options(7) == draw_options(7)
    assert len({draw_options(seed).replica_count for seed in range(200)}) == 6
    for seed in range(200):
        options = draw_options(seed)
        assert options.is_atlas_broken or len(options.atlas) <= (options.replica_count - 1) // 2 + 1
        assert set(options.replicated_groups) <= set(options.groups)
