"""Whole runs of whole nodes."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.sim.agenda import MILLISECOND, SECOND
from headrace.sim.faults import FaultOptions
from headrace.sim.nodes.actions import WorkloadOptions
from headrace.sim.nodes.options import NodeOptions, SizeOptions, draw_node_options
from headrace.sim.nodes.workload import Nodes, make_world
from headrace.sim.outcome import Outcome
from tools.simulate import NODES

ROOT = Path(__file__).parent.parent.parent.parent
HASH_SEEDS = ("0", "1")
SMALL = NodeOptions(
    seed=3,
    safety_limit=SECOND,
    workload=WorkloadOptions(client_count=2, requests=30, think_mean=10_000),
    faults=FaultOptions(crash_mean=300 * MILLISECOND, restart_mean=20 * MILLISECOND),
)


def test_one_node_that_is_killed_passes() -> None:
    report = make_world(SMALL).run()
    assert report.outcome == Outcome.PASS, (report.reason, report.last[-20:])
    assert report.committed > 20
    assert report.events["client.audited"]


@pytest.mark.slow
@pytest.mark.parametrize("replica_count", [3, 5])
def test_a_cluster_passes(replica_count: int) -> None:
    report = make_world(msgspec.structs.replace(SMALL, replica_count=replica_count)).run()
    assert report.outcome == Outcome.PASS, (report.reason, report.last[-20:])
    assert report.events["client.audited"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(1, 13), *NODES.stored_seeds()])
def test_a_seed_passes(seed: int) -> None:
    report = make_world(draw_node_options(seed)).run()
    assert report.outcome == Outcome.PASS, (report.reason, report.last[-30:])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 6])
def test_a_seed_gives_the_same_trace_in_every_process(seed: int) -> None:
    lines = []
    for hash_seed in HASH_SEEDS:
        ended = subprocess.run(
            [sys.executable, "-m", "tools.simulate", "--nodes", "--seed", str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.stdout, ended.stderr
        lines.append(ended.stdout.splitlines()[-1])
    assert lines[0] == lines[1]
    assert "trace" in lines[0]


def test_the_same_options_give_the_same_trace() -> None:
    first, second = make_world(SMALL).run(), make_world(SMALL).run()
    assert first == second
    other = make_world(msgspec.structs.replace(SMALL, seed=4)).run()
    assert other.trace_hash != first.trace_hash


def test_of_a_damaged_segment_all_is_read_that_no_damage_touched() -> None:
    sizes = SizeOptions(segment_bytes=4_000, piece_bytes=700, tail_bytes=0, index_step_bytes=300)
    workload = msgspec.structs.replace(SMALL.workload, requests=100)
    world = make_world(msgspec.structs.replace(SMALL, sizes=sizes, workload=workload))
    report = world.run()
    assert report.outcome == Outcome.PASS, (report.reason, report.last[-20:])
    host = world.cluster.nodes[0]
    assert isinstance(world.workload, Nodes)
    events = world.workload.checkers.events
    sound = events["client.audited"]
    for _ in range(6):
        host.folder.rot()
    assert host.folder.rotten
    assert not world.workload.ending.read_all(world, [host])
    assert events["client.told_4011"], "what is damaged is refused"
    assert events["client.audited"] > sound, "and what is whole is found"


def test_the_canary_fails() -> None:
    report = make_world(msgspec.structs.replace(SMALL, canary=True)).run()
    assert report.outcome == Outcome.VIOLATION, report.reason


def test_a_run_in_which_nothing_goes_wrong_is_empty() -> None:
    report = make_world(msgspec.structs.replace(SMALL, faults=FaultOptions())).run()
    assert report.outcome == Outcome.EMPTY, report.reason
    assert report.committed


def test_a_run_that_answers_nobody_fails_for_liveness() -> None:
    world = make_world(msgspec.structs.replace(SMALL, liveness_limit=SECOND))
    world.cluster.nodes[0].is_refused = True  # It never starts.
    report = world.run()
    assert report.outcome == Outcome.LIVENESS, report.reason
    assert "clients wait" in report.reason


def test_a_run_without_end_is_stopped() -> None:
    report = make_world(msgspec.structs.replace(SMALL, events_max=100)).run()
    assert report.outcome == Outcome.LIVENESS
    assert "livelock" in report.reason


def test_options_survive_their_text() -> None:
    options = draw_node_options(5)
    assert msgspec.json.decode(msgspec.json.encode(options), type=NodeOptions) == options


def test_a_seed_draws_the_same_options_each_time() -> None:
    drawn = [draw_node_options(seed) for seed in range(200)]
    assert drawn == [draw_node_options(seed) for seed in range(200)]
    assert {options.replica_count for options in drawn} == {1, 3, 5}
    for options in drawn:
        assert len(options.atlas) <= max(1, (options.replica_count - 1) // 2)
    assert any(options.is_power_for_all for options in drawn)
    assert not all(options.is_power_for_all for options in drawn)
