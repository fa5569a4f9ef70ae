"""Large blocks stay in the heap where there is a glibc."""

import os
import platform
import resource
import subprocess
import sys

import pytest

from headrace.runtime.allocator import keep_large_blocks

# Each round frees what it took; without the thresholds each one maps its memory anew.
ROUNDS = """
import resource
from headrace.base.limits import MIB
from headrace.runtime.allocator import keep_large_blocks
assert keep_large_blocks()
bytearray(8 * MIB)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray(8 * MIB)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_it_says_whether_it_worked() -> None:
    is_glibc = platform.libc_ver()[0] == "glibc"
    assert keep_large_blocks() == is_glibc


def test_freed_blocks_are_used_again() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("no glibc here")
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS], check=True, capture_output=True, text=True, env=os.environ
    )
    pages = 8 * (1 << 20) // resource.getpagesize()
    assert int(done.stdout) < pages  # of 20 times as many


FREED = """
from headrace.base.limits import MIB
from headrace.runtime.allocator import give_back, keep_large_blocks
assert keep_large_blocks()
def resident() -> int:
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * 4096
blocks = [b"x" * MIB for _ in range(100)]
del blocks
before = resident()
assert give_back()
assert resident() < before - 50 * MIB, (before, resident())
"""


def test_what_is_free_goes_back_when_it_is_told_to() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("no glibc here")
    subprocess.run([sys.executable, "-c", FREED], check=True, env=dict(os.environ))
