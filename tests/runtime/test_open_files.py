"""A node may have as many files open as the system lets it."""

import resource
import subprocess
import sys

import pytest

from headrace.runtime.bus.ends import count_descriptors, make_bus

LIMIT = 100
CODE = f"""
import resource
from headrace.runtime.open_files import raise_open_files
hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, hard))
first, second = raise_open_files(), raise_open_files()
print(first == second == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_limit_is_raised_as_far_as_it_may() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > LIMIT
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_the_descriptors_of_a_bus_are_counted(shards: int) -> None:
    made = make_bus(shards)
    try:
        opened = [fd for member in range(shards) for fd in made.descriptors(member)]
        assert len(dict.fromkeys(opened)) == count_descriptors(shards)
    finally:
        made.close()
