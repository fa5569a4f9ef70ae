"""The examples of the guide, on the shared session; others run them whole: Java, cluster."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.pytest_plugin import Server
from headrace.pytest_plugin import Topic as PluginTopic
from tests.node import Node
from tests.spark.conftest import Topic

# 10 s of the share of Spark.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "docs" / "guide" / "spark.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def shop(node: Node, client: headrace.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The node on which examples find the stream `shop`, and make it if they want to."""
    monkeypatch.setenv("HEADRACE_ADDRESS", str(node.tcp))
    yield
    client.delete_stream("shop")


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / name), run_name="example")


@pytest.mark.usefixtures("shop")
def test_spark_in_ten_minutes(
    spark: SparkSession, client: headrace.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load("spark_orders.py")
    example["send_orders"](0)
    example["show_batch"](spark)
    assert "|customer 3|   100|" in capsys.readouterr().out
    assert example["write_stream"](spark, str(tmp_path)).count() == 1000
    example["send_orders"](1000)
    assert example["write_stream"](spark, str(tmp_path)).count() == 2000
    stored = [
        client.get_offset("shop/orders", partition, group="orders-to-parquet")
        for partition in (0, 1)
    ]
    assert sum(each.stored_offset + 1 for each in stored if each is not None) == 2000


def test_the_tests_of_a_job(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """As pytest would run them: each with a topic of its own."""
    example = load("test_orders_job.py")
    server = Server(str(topic.node.tcp))
    mine = PluginTopic(server, topic.name)
    example["test_amounts_are_summed_up"](spark, mine)
    with mine.connect() as client:
        client.create_topic(f"{topic.stream}/second")
    other = PluginTopic(server, f"{topic.stream}/second")
    example["test_a_second_run_takes_only_what_is_new"](spark, other, tmp_path)


def guide_blocks() -> list[str]:
    readme = _BLOCK.findall((ROOT / "README.md").read_text())
    return [*_BLOCK.findall(GUIDE.read_text()), *[each for each in readme if "spark" in each]]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("index", range(len(guide_blocks())))
def test_the_blocks_of_the_guide(
    index: int,
    spark: SparkSession,
    client: headrace.Client,
    tmp_path: Path,
) -> None:
    """Each block, that of the README too, runs by itself, on a node that has `shop/orders`.

    Java has the folder that it was started in, so paths of the guide are put into the test's own.
    """
    client.create_stream("shop")
    client.create_topic("shop/orders", partitions=2)
    client.send("shop/orders", ['{"customer": "ada", "amount": 3}', "no order"], partition=0)
    block = guide_blocks()[index]
    block = block.replace('"checkpoint")', f'"{tmp_path}/checkpoint")')
    block = block.replace('.start("orders")', f'.start("{tmp_path}/orders")')
    code = compile(block, f"{GUIDE.name}, block {index}", "exec")
    exec(code, {"__name__": "guide", "spark": spark})
    assert (tmp_path / "orders").exists() == (".start(" in block)
