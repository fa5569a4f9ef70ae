"""The long Spark campaigns: each lane says what it saw; a wrong result ends it.

python -m tools.night_spark connect       a batch and a stream through Spark Connect
python -m tools.night_spark declarative   a pipeline of Spark's own, to a table and a view, twice
python -m tools.night_spark cluster       a job on a cluster of one master and two workers
python -m tools.night_spark pipeline      declared jobs on such a cluster, twice
python -m tools.night_spark kills         20 kills of drivers, machines and nodes under a pipeline
python -m tools.night_spark all
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from tests.spark.kills import KINDS, run_kills
from tests.spark.places import (
    run_cluster,
    run_connect,
    run_declarative,
    run_pipeline_on_cluster,
)
from tests.watched_nodes import watched_nodes

RESTARTS = 20


def kill(folder: Path) -> str:
    """Kill what a pipeline runs on, in each way as often; both tables then equal the log."""
    seed = int(time.time())
    print(f"kills: {RESTARTS}, seed {seed}", flush=True)
    return str(run_kills(folder, list(KINDS) * (RESTARTS // len(KINDS)), seed))


LANES: dict[str, Callable[[Path], str]] = {
    "connect": run_connect,
    "declarative": run_declarative,
    "cluster": run_cluster,
    "pipeline": run_pipeline_on_cluster,
    "kills": kill,
}


def _run(name: str) -> str:
    """Run a lane in a folder of its own, which stays if the lane fails."""
    folder = Path(mkdtemp(prefix="headrace-night-"))
    try:
        with watched_nodes():
            said = LANES[name](folder)
    except BaseException:
        print(f"{name}: failed, its folder stays: {folder}", flush=True)
        raise
    shutil.rmtree(folder)
    return said


def main() -> int:
    """Run the lanes that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("lane", choices=(*LANES, "all"))
    lane = parser.parse_args().lane
    for name in LANES if lane == "all" else (lane,):
        began = time.monotonic()
        said = _run(name)
        print(f"{name}: {said}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
