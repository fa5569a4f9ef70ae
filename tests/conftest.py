"""What every test has in common."""

import shutil
from collections.abc import Callable

import pytest
from hypothesis import settings

# The same tree gives the same result; deadlines would assert timing.
settings.register_profile("headrace", derandomize=True, deadline=None, database=None)
settings.load_profile("headrace")


@pytest.fixture
def needs() -> Callable[[str], str]:
    """Give the path of a tool that a lane needs, or skip the lane and say why."""

    def find(tool: str) -> str:
        path = shutil.which(tool)
        if path is None:
            pytest.skip(f"this lane needs {tool}, which is not installed")
        return path

    return find
