"""A node that is given its CPU keeps to it, with all its threads."""

import os
from pathlib import Path

import pytest

from headrace.runtime.pinning import allowed_cpus
from tests.node import running_node


@pytest.mark.slow
@pytest.mark.parametrize("is_pinning", [True, False])
def test_a_node_keeps_to_the_cpu_that_it_is_given(is_pinning: bool) -> None:
    """SH-7."""
    cpu = allowed_cpus()[-1]
    variables = {"HEADRACE_SERVER_PIN_CORES": "true" if is_pinning else "false"}
    with running_node(arguments=["--shards", f"{cpu}..{cpu + 1}"], environment=variables) as node:
        threads = [int(each.name) for each in Path(f"/proc/{node.pid}/task").iterdir()]
        kept = [sorted(os.sched_getaffinity(thread)) for thread in threads]
    assert kept == [[cpu] if is_pinning else allowed_cpus()] * len(threads)
