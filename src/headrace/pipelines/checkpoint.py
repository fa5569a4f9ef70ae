"""The checkpoint folder of a job: which process runs it, and the progress of its queries.

```
lock            held by the process that runs the job; contains its id and its JVM's
query/          Spark's checkpoint of the job
dead-letters/   Spark's checkpoint of its dead letters
progress.json   the last batch of each, as `show` prints it
```

Flow: checkpoint.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

QUERY = "query"
DEAD_LETTERS = "dead-letters"
LOCK = "lock"
PROGRESS = "progress.json"
OFFSETS, COMMITS = "offsets", "commits"
JVM_END_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.05


class RunningError(Exception):
    """Another process runs this job."""


@dataclass(frozen=True)
class QueryState:
    """The progress of a query according to its checkpoint.

    A batch that is planned but not committed is repeated, with the same rows, by the next run.
    """

    query: str
    planned: int
    committed: int
    offsets: list[Any] = field(default_factory=list)


class Lock:
    """The right to run a job until the process ends."""

    def __init__(self, file: Path, descriptor: int) -> None:
        self._file = file
        self._descriptor = descriptor

    def name_processes(self, *pids: int) -> None:
        """Record the processes that write for this job: the next run waits until all have ended."""
        text = json.dumps([[pid, _started_at(pid)] for pid in pids])
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)


@contextmanager
def hold(checkpoint: Path) -> Iterator[Lock]:
    """Acquire the lock of a checkpoint folder.

    Raises:
        RunningError: Another process holds it.
    """
    checkpoint.mkdir(parents=True, exist_ok=True)
    file = checkpoint / LOCK
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pids = ", ".join(str(pid) for pid, _ in _read_processes(file))
            raise RunningError(f"{checkpoint}: another process runs this job ({pids})") from None
        _wait_ended(file)
        lock = Lock(file, descriptor)
        lock.name_processes(os.getpid())
        try:
            yield lock
        finally:
            lock.name_processes()  # no process writes any more at this point
    finally:
        os.close(descriptor)


def read_state(checkpoint: Path) -> QueryState | None:
    """Return the progress of a query; None if it never began.

    Raises:
        ValueError: The folder is not a checkpoint of Spark, or is damaged.
    """
    metadata = checkpoint / "metadata"
    if not metadata.exists():
        return None
    planned = _newest(checkpoint / OFFSETS)
    offsets = []
    if planned >= 0:
        _, _, *lines = (checkpoint / OFFSETS / str(planned)).read_text().splitlines()
        offsets = [json.loads(line) for line in lines if line != "-"]
    query = json.loads(metadata.read_text())["id"]
    return QueryState(query, planned, _newest(checkpoint / COMMITS), offsets)


def write_progress(checkpoint: Path, progress: dict[str, Any]) -> None:
    """Store the last progress for `show`; a reader sees the old or the new text, no mix."""
    new = checkpoint / f"{PROGRESS}.new"
    new.write_text(json.dumps(progress))
    new.replace(checkpoint / PROGRESS)


def read_progress(checkpoint: Path) -> dict[str, Any]:
    """Return the stored progress, if there is some."""
    try:
        kept: dict[str, Any] = json.loads((checkpoint / PROGRESS).read_text())
    except FileNotFoundError:
        return {}
    return kept


def _newest(folder: Path) -> int:
    numbers = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return max(numbers, default=-1)


def _read_processes(file: Path) -> list[tuple[int, str]]:
    text = file.read_text()
    return [(pid, start) for pid, start in json.loads(text)] if text else []


def _wait_ended(file: Path) -> None:
    """Wait for the JVM of a run whose driver was killed: it notices a moment later.

    Until then it may still commit a batch, and its files must not be removed as leftovers.
    """
    deadline = time.monotonic() + JVM_END_SECONDS_MAX
    for pid, start in _read_processes(file):
        while start and _started_at(pid) == start:
            if time.monotonic() > deadline:
                raise RunningError(f"{file.parent}: process {pid} of an earlier run has not ended")
            time.sleep(_LOOK_SECONDS)


def _started_at(pid: int) -> str:
    """Return the start time of a process, which with the id identifies it; "" if it ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""
