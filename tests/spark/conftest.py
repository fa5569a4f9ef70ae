"""A node, a topic for each test, and one Spark session for all tests that need Java."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path, PurePosixPath

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType
from xdist.remote import Producer  # type: ignore[import-untyped]  # has no types
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # as above

import headrace
from headrace.spark.connections import close_clients
from headrace.spark.schema import MESSAGE_COLUMNS
from headrace.spark.session import session
from tests.node import Node, running_node
from tests.spark.cluster import JAVA_OPTIONS

ALL_COLUMNS = StructType([StructField(name, kind) for name, kind in MESSAGE_COLUMNS.items()])
# The files whose tests share the session; no other may ask for it.
SESSION_FILES = (
    "test_examples.py",
    "test_pipeline_guide.py",
    "test_pipeline_queries.py",
    "test_session.py",
)
_numbers = count()


class OneSession(LoadFileScheduling):  # type: ignore[misc]  # as above
    """Gives all files of the shared session to one worker, which then starts the only one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "session" if PurePosixPath(file).name in SESSION_FILES else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession | None:
    """Deal out files so, if whole files are to be dealt out."""
    return OneSession(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a file that would have a second worker start a second session."""
    mine = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in mine:
        is_sharing = isinstance(item, pytest.Function) and "spark" in item.fixturenames
        if is_sharing and item.path.name not in SESSION_FILES:
            raise pytest.UsageError(f"{item.path.name} uses spark: name it in SESSION_FILES")


class Topic:
    """A topic of a test's own, on the node that all tests of this folder share."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self.stream = name.partition("/")[0]

    @property
    def options(self) -> dict[str, str]:
        return {"topic": self.name, "address": str(self.node.tcp)}

    def send(self, values: list[str], partition: int = 0) -> None:
        with headrace.connect(str(self.node.tcp)) as client:
            client.send(self.name, values, partition=partition)

    def fill(self, messages: int, partition: int = 0, first: int = 0) -> list[str]:
        """Send messages of 1 KiB in batches of 100, so that segments of 1 MiB get sealed."""
        values = [
            f"{partition}-{number:07}".ljust(1024, ".") for number in range(first, first + messages)
        ]
        with headrace.connect(str(self.node.tcp)) as client:
            for start in range(0, messages, 100):
                client.send(self.name, values[start : start + 100], partition=partition)
        return values


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with running_node() as started:
        yield started
        close_clients()


@pytest.fixture
def client(node: Node) -> Iterator[headrace.Client]:
    with headrace.connect(str(node.tcp)) as connected:
        yield connected


@pytest.fixture
def topic(node: Node, client: headrace.Client) -> Iterator[Topic]:
    """A topic with two partitions and the smallest segments there are."""
    stream = f"spark-{os.getpid()}-{next(_numbers)}"
    client.create_stream(stream)
    client.create_topic(f"{stream}/orders", partitions=2, options={"segment_size": "1 MiB"})
    yield Topic(node, f"{stream}/orders")
    client.delete_stream(stream)


@pytest.fixture(scope="session")
def spark(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the run: starting it takes 5 to 10 s of the share of Spark.

    Its processes have the environment of this moment: a source that names no address has the node.
    """
    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    # Tasks are tried three times: one that fails by design must not be taken for a broken query.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADRACE_ADDRESS", str(node.tcp))
        started = session("tests", master="local[2,3]", conf=conf).getOrCreate()
    yield started
    started.stop()
