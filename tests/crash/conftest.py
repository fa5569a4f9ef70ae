"""What the crash lanes need of the machine; a lane that cannot run says why."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.faults import build_library
from tests.crash.power import why_not


@pytest.fixture(scope="session")
def library() -> Path:
    """The library that makes calls of a node fail; lane X is skipped without it."""
    path = build_library()
    if path is None:
        pytest.skip("lane X needs a C compiler")
    return path


@pytest.fixture
def loop_mounts(needs: Callable[[str], str]) -> None:
    """Skip lane P where file systems in a file cannot be mounted."""
    for tool in ("mkfs.ext4", "mount", "umount"):
        needs(tool)
    reason = why_not()
    if reason:
        pytest.skip(f"lane P needs loop mounts: {reason}")
