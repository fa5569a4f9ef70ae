"""The native kernel is the one of this source, or it is refused with what to do."""

import re
import subprocess
import sys
from types import ModuleType

import pytest

from headrace import kernel
from headrace.kernel.library import CLASSES, FUNCTIONS, NUMBERS, check_library

STALE = """
import sys, types
library = types.ModuleType("headrace.kernel._native")
library.BATCH_HEADER_BYTES = 128
sys.modules["headrace.kernel._native"] = library
import headrace.kernel
"""


def test_a_library_of_this_source_is_taken(native: ModuleType) -> None:
    check_library(vars(native))
    exported = [name for name in vars(native) if name.isupper()]
    assert sorted(exported) == sorted(NUMBERS)


def test_every_public_function_is_looked_for() -> None:
    assert [name for name in kernel.__all__ if name.islower()] == list(FUNCTIONS)
    assert set(CLASSES) < set(kernel.__all__)


@pytest.mark.parametrize("name", ["FOLD_RECORD_BYTES_MAX", "REASON_BATCH_SIZE"])
def test_a_library_with_another_number_is_refused(native: ModuleType, name: str) -> None:
    stale = vars(native) | {name: 1}
    wanted = re.escape(f"{name} is 1, {NUMBERS[name]} expected; rebuild it: make setup")
    with pytest.raises(ImportError, match=wanted):
        check_library(stale)


@pytest.mark.parametrize("missing", ["fold", "Gatherer"])
def test_a_library_without_a_function_is_refused(native: ModuleType, missing: str) -> None:
    stale = {name: value for name, value in vars(native).items() if name != missing}
    with pytest.raises(ImportError, match=f"it has no {missing}; rebuild it: make setup"):
        check_library(stale)


def test_a_stale_library_is_no_reason_for_the_twin() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STALE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ImportError: the native kernel was built from another source" in done.stderr
    assert "make setup" in done.stderr
