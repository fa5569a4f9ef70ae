"""Topics in the other places that Spark runs in: Connect, Declarative Pipelines, a cluster.

Each runs in processes of its own, for one process has one kind of session. `tools.night_spark` runs
them.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyspark
from pyarrow import dataset

import headrace
from headrace.spark.session import spark_environment
from tests.node import running_node
from tests.spark.cluster import running_cluster
from tests.spark.kills import JOBS, PARTITIONS, TOPIC, Run, Tally, compare, send

RUN_SECONDS_MAX = 600.0
MESSAGES = 5000

_CONNECT = """
import sys
from pyspark.sql import SparkSession

address, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
options = {"address": address, "topic": "shop/orders"}
print("batch", spark.read.format("headrace").options(**options).load().count())
rows = spark.readStream.format("headrace").options(
    **options, startingOffsets="earliest", maxOffsetsPerTrigger="2000"
).load()
query = (
    rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True).start(f"{folder}/out")
)
query.awaitTermination()
out = spark.read.parquet(f"{folder}/out")
print("stream", out.count(), out.select("partition", "offset").distinct().count())
spark.stop()
"""

_DECLARED = """
from pyspark import pipelines as dp

OPTIONS = {{"address": "{address}", "topic": "shop/orders", "startingOffsets": "earliest"}}


@dp.table
def orders():
    options = OPTIONS | {{"maxOffsetsPerTrigger": "2000"}}
    return spark.readStream.format("headrace").options(**options).load()


@dp.materialized_view
def counts():
    return spark.read.table("orders").groupBy("partition").count()
"""

_PROJECT = """
name: orders
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""


class PlaceError(Exception):
    """A place gave another result than was sent."""


def run_connect(folder: Path) -> str:
    """Read a topic as a batch and as a stream through Spark Connect; give what was seen."""
    with running_node() as node:
        address = str(node.tcp)
        _fill(address)
        script = folder / "job.py"
        script.write_text(_CONNECT)
        said = _run([sys.executable, str(script), address, str(folder)], folder)
    _expect(said, f"batch {MESSAGES}")
    _expect(said, f"stream {MESSAGES} {MESSAGES}")
    return f"batch and stream of {MESSAGES} messages are whole"


def run_declarative(folder: Path) -> str:
    """Run a declared pipeline, and again after more was sent; give what was seen.

    The second run finds the tables of the first in Spark's Hive catalog, which is a folder here:
    the catalog that is the default is gone with its process.
    """
    if find_spec("yaml") is None:
        return "not run: spark-pipelines needs pyyaml, which pyspark[pipelines] brings"
    with running_node() as node:
        address = str(node.tcp)
        _fill(address)
        (folder / "transformations").mkdir()
        (folder / "transformations" / "orders.py").write_text(_DECLARED.format(address=address))
        (folder / "spark-pipeline.yml").write_text(_PROJECT.format(folder=folder))
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run"]
        command += ["--conf", "spark.sql.catalogImplementation=hive"]
        _run(command, folder)
        _expect_rows(folder / "spark-warehouse" / "orders", MESSAGES)
        _fill(address)
        _run(command, folder)
    _expect_rows(folder / "spark-warehouse" / "orders", 2 * MESSAGES)
    counts = dataset.dataset(folder / "spark-warehouse" / "counts", format="parquet").to_table()
    if sum(counts["count"].to_pylist()) != 2 * MESSAGES:
        raise PlaceError(f"the view says {counts.to_pylist()}, {2 * MESSAGES} messages were sent")
    return f"after a restart the table has the {2 * MESSAGES} messages that were sent, each once"


def run_cluster(folder: Path) -> str:
    """Count a topic on a cluster, as the example does; give what was seen."""
    example = Path(__file__).parent.parent.parent / "examples" / "spark_cluster.py"
    with running_node() as node, running_cluster() as master:
        _fill(str(node.tcp))
        said = _run(
            [sys.executable, str(example), master, "shop/orders"],
            folder,
            HEADRACE_ADDRESS=str(node.tcp),
        )
    counted = sum(int(line.split()[2]) for line in said.splitlines())
    if counted != MESSAGES:
        raise PlaceError(f"{MESSAGES} messages were sent:\n{said}")
    return f"two workers counted {MESSAGES} messages"


def run_pipeline_on_cluster(folder: Path) -> str:
    """Run declared jobs on a cluster, and again after more was sent; give what was seen."""
    (folder / "jobs.py").write_text(JOBS)
    tally = Tally()
    with (
        running_node() as node,
        running_cluster() as master,
        headrace.connect(str(node.tcp)) as client,
    ):
        client.create_stream("shop")
        client.create_topic(TOPIC, partitions=PARTITIONS)
        for _ in range(2):
            send(client, tally)
            Run(folder, str(node.tcp), "--available-now", "--master", master).wait_end()
        compare(folder, client, tally)
    return (
        f"after two runs on two workers Delta and Parquet have the {tally.messages} messages that"
        f" were sent, each once, {tally.dead_letters} of them as dead letters"
    )


def _expect_rows(table: Path, wanted: int) -> None:
    """See that a table of Parquet files has each message once, without Spark."""
    columns = ["partition", "offset"]
    rows = dataset.dataset(table, format="parquet").to_table(columns=columns).to_pylist()
    different = {(row["partition"], row["offset"]) for row in rows}
    if (len(rows), len(different)) != (wanted, wanted):
        raise PlaceError(
            f"{len(rows)} rows in the table, {len(different)} different, {wanted} messages sent"
        )


def _fill(address: str) -> None:
    with headrace.connect(address) as client:
        if not client.get_streams():
            client.create_stream("shop")
            client.create_topic("shop/orders", partitions=2, options={"segment_size": "1 MiB"})
        with client.producer("shop/orders") as producer:
            for number in range(MESSAGES):
                producer.send(f"order {number}".ljust(500, "."))


def _run(command: list[str], folder: Path, **more: str) -> str:
    environment = os.environ | spark_environment() | {"SPARK_LOCAL_IP": "127.0.0.1"} | more
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise PlaceError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _expect(said: str, wanted: str) -> None:
    if wanted not in said.splitlines():
        raise PlaceError(f"{wanted!r} was not said:\n{said}")
