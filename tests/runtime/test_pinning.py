"""A process keeps to the CPUs that it is pinned to, with its threads and its children."""

import os
import subprocess
import sys

import pytest

from headrace.runtime.pinning import allowed_cpus, pin_process

PINNED = """
import os, subprocess, sys, threading
from headrace.runtime.pinning import allowed_cpus, pin_process
pin_process([int(sys.argv[1])])
seen = [allowed_cpus()]
thread = threading.Thread(target=lambda: seen.append(sorted(os.sched_getaffinity(0))))
thread.start()
thread.join()
program = "from headrace.runtime.pinning import allowed_cpus; print(allowed_cpus())"
child = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
print(*seen, child.stdout.strip())
"""


@pytest.mark.parametrize("which", [0, -1])
def test_a_pinned_process_keeps_to_its_cpu(which: int) -> None:
    """SH-7."""
    before = allowed_cpus()
    cpu = before[which]
    done = subprocess.run(
        [sys.executable, "-c", PINNED, str(cpu)], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == " ".join([f"[{cpu}]"] * 3)
    assert allowed_cpus() == before


def test_the_mask_of_the_process_counts() -> None:
    """SH-6."""
    assert allowed_cpus() == sorted(os.sched_getaffinity(0))


def test_a_cpu_that_is_not_there() -> None:
    """SH-7: it is an error, and the process keeps what it had."""
    before = allowed_cpus()
    absent = os.sysconf("SC_NPROCESSORS_CONF") + 500
    with pytest.raises(OSError, match="Invalid argument"):
        pin_process([absent])
    assert allowed_cpus() == before


def test_off_linux_nothing_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """SH-7."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.delattr(os, "sched_getaffinity")
    pin_process([0])
    assert allowed_cpus() == list(range(os.cpu_count() or 1))
