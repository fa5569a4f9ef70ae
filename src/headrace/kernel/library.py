"""Refuses a native kernel that was not built from the source beside it.

A library of an earlier source would still be imported, and fail later with errors of its own: it
has other limits, other numbers of reasons, or lacks a function.
"""

from collections.abc import Mapping

from headrace.kernel import layout
from headrace.kernel.errors import Reason

FUNCTIONS = (
    "admit",
    "build",
    "columns",
    "cut",
    "find_offset",
    "find_timestamp",
    "fold",
    "prove",
    "slice_batch",
    "split",
    "verify",
    "xxh3_64",
)
CLASSES = ("Frames", "Gatherer", "Receipt")
NUMBERS: dict[str, int] = {
    name: number
    for name, number in vars(layout).items()
    if name.isupper() and name != "OFFSET_MAX"  # which does not fit the signed constants of C
} | {f"REASON_{reason.name}": reason.value for reason in Reason}


def check_library(library: Mapping[str, object]) -> None:
    """Compare what a library exports with what the Python side declares.

    Raises:
        ImportError: They differ; the message names the first difference and what to do.
    """
    for name, number in NUMBERS.items():
        if library.get(name) != number:
            raise _stale(f"{name} is {library.get(name)}, {number} expected")
    for name in FUNCTIONS + CLASSES:
        if name not in library:
            raise _stale(f"it has no {name}")


def _stale(difference: str) -> ImportError:
    return ImportError(
        f"the native kernel was built from another source: {difference}; rebuild it: make setup"
    )
