"""A Spark cluster on loopback: one master and two workers of the `pyspark` package.

Each worker has a process of its own for tasks, so nothing that works here depends on `local` mode.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from headrace.spark.session import spark_environment

# Saves a sixth of a short run: no second compiler, one thread for garbage.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
START_SECONDS_MAX = 60.0
WORKERS = 2
_LOOK_SECONDS = 0.05
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = "Successfully registered with master"


@contextmanager
def running_cluster() -> Iterator[str]:
    """Give the address of a master that has its workers; all of it ends with the block."""
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-cluster-") as name:
        folder = Path(name)
        try:
            log = _start(folder, "master", processes, "--port", "0")
            master = _wait(log, _MASTER, processes)[1]
            logs = [
                _start(
                    folder, f"worker{number}", processes, "--cores", "1", "--memory", "1g", master
                )
                for number in range(WORKERS)
            ]
            for log in logs:
                _wait(log, re.compile(_WORKER), processes)
            yield master
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait(START_SECONDS_MAX)


def _start(
    folder: Path, name: str, processes: list[subprocess.Popen[bytes]], *arguments: str
) -> Path:
    role = "master.Master" if name == "master" else "worker.Worker"
    home = Path(pyspark.__file__).parent
    environment = (
        os.environ
        | spark_environment()
        | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / name),
            "SPARK_DAEMON_MEMORY": "256m",
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,  # executors inherit it from their worker
        }
    )
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
    command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        processes.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=folder,
            )
        )
    return log


def _wait(
    log: Path, wanted: re.Pattern[str], processes: list[subprocess.Popen[bytes]]
) -> re.Match[str]:
    """Wait for a line of a log."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        has_ended = any(process.poll() is not None for process in processes)
        said = log.read_text(errors="replace")
        found = wanted.search(said)
        if found is not None:
            return found
        if has_ended or time.monotonic() > deadline:
            raise RuntimeError(
                f"no cluster: {wanted.pattern!r} is not in {log.name}:\n{said[-2000:]}"
            )
        time.sleep(_LOOK_SECONDS)
