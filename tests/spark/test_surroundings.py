"""The same jobs elsewhere: on a cluster, and where there is no Java."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import Node
from tests.spark.cluster import JAVA_OPTIONS, running_cluster
from tests.spark.conftest import Topic

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
RUN_SECONDS_MAX = 900.0  # on a machine that has much else to do


def run_example(name: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env=environment | {"JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done.stdout


# 30 s of the share of Spark: six Java processes start.
def test_a_job_on_a_cluster(topic: Topic) -> None:
    topic.fill(2500)
    topic.fill(300, partition=1)
    with running_cluster() as master:
        environment = os.environ | {
            "HEADRACE_ADDRESS": str(topic.node.tcp),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        said = run_example("spark_cluster.py", master, topic.name, **environment)
    assert said.splitlines() == ["partition 0: 2500 messages", "partition 1: 300 messages"]


# 20 s of the share of Spark: a session of its own.
def test_where_there_is_no_java(node: Node, tmp_path: Path) -> None:
    """A batch and a stream on the packaged runtime."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).glob("*"):
            if tool.name != "java" and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    assert shutil.which("java", path=str(tools)) is None
    environment = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    environment |= {
        "PATH": str(tools),
        "HEADRACE_ADDRESS": str(node.tcp),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    said = run_example("spark_orders.py", **environment)
    assert "|customer 3|   100|" in said
    assert "rows after the second run: 2000" in said
    assert list((tmp_path / "cache" / "headrace").iterdir()) != []
