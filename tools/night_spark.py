"""The long Spark campaigns: each lane says what it saw; a wrong result ends it.

python -m tools.night_spark connect       a batch and a stream through Spark Connect
python -m tools.night_spark declarative   a pipeline of Spark's own, to a table and a view, twice
python -m tools.night_spark cluster       a job on a cluster of one master and two workers
python -m tools.night_spark pipeline      declared jobs on such a cluster, twice
python -m tools.night_spark kills         20 kills of drivers, machines and nodes under a pipeline
python -m tools.night_spark all
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

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
    return str(run_kills(folder, list(KINDS) * (RESTARTS // len(KINDS)), int(time.time())))


LANES: dict[str, Callable[[Path], str]] = {
    "connect": run_connect,
    "declarative": run_declarative,
    "cluster": run_cluster,
    "pipeline": run_pipeline_on_cluster,
    "kills": kill,
}


def main() -> int:
    """Run the lanes that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("lane", choices=(*LANES, "all"))
    lane = parser.parse_args().lane
    for name in LANES if lane == "all" else (lane,):
        began = time.monotonic()
        with watched_nodes(), TemporaryDirectory(prefix="headrace-night-") as folder:
            said = LANES[name](Path(folder))
        print(f"{name}: {said}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
