"""Topics for the Spark measurements: filled, sealed, and the same rows once more as Parquet."""

import json
import os
from array import array
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from bench.frames import REPLICATED, STREAM, Shape
from headrace.client import Client
from headrace.client.calls.messages import send_batch
from headrace.client.messages import build_batch

PARTITIONS = 4
SEGMENT_SIZE = "64 MiB"
MESSAGES_PER_BATCH = 1000
# So many batches of random bytes are sent in turn: Parquet finds nothing to fold together.
BATCHES = 64
FIRST_TIME = 1_700_000_000_000_000


class Topic(NamedTuple):
    """A topic, how much of it is read, and where the same rows lie as Parquet."""

    name: str
    shape: Shape
    ends: dict[int, int]  # by partition, up to which offset; all of that is sealed
    parquet: Path

    @property
    def rows(self) -> int:
        """How many messages are read."""
        return sum(self.ends.values())

    @property
    def payload_bytes(self) -> int:
        """How many bytes they carry."""
        return self.rows * self.shape.payload_bytes

    def begin(self, rows: int) -> "Topic":
        """Give its first rows, about so many, evenly from all partitions."""
        share = min(rows // len(self.ends), *self.ends.values())
        return self._replace(ends=dict.fromkeys(self.ends, share))


def fill(client: Client, shape: Shape, messages: int, parquet: Path) -> Topic:
    """Create a topic of so many messages, all of its sealed segments written."""
    name = f"{STREAM}/spark-{shape.payload_bytes}"
    options = {"segment_size": SEGMENT_SIZE, "durability": REPLICATED}
    client.create_topic(name, partitions=PARTITIONS, options=options)
    batches = [make_batch(shape) for _ in range(BATCHES)]
    for number in range(messages // shape.messages):
        client.ask(send_batch(name, number % PARTITIONS, batches[number % BATCHES], shape.messages))
    ends = {}
    for partition in range(PARTITIONS):
        client.flush_partition(name, partition, sync=True)
        ends[partition] = client.plan_segments(name, partition).sealed_end
    return Topic(name, shape, ends, parquet)


def make_batch(shape: Shape) -> bytes:
    """Give a batch of random payloads, as a producer sends it."""
    payloads = [os.urandom(shape.payload_bytes) for _ in range(shape.messages)]
    times = array("Q", range(FIRST_TIME, FIRST_TIME + shape.messages))
    return build_batch(payloads, [b""] * shape.messages, times)


def reader(spark: SparkSession, topic: Topic, kind: str = "headrace") -> DataFrameReader:
    """Give a reader of what is read of a topic; address and account are in the environment."""
    ending = {topic.name: {str(partition): end for partition, end in topic.ends.items()}}
    return (
        spark.read.format(kind)
        .option("topic", topic.name)
        .option("endingOffsets", json.dumps(ending))
    )


def write_parquet(spark: SparkSession, topic: Topic) -> None:
    """Write what is read of a topic as Parquet, with Spark's own settings."""
    reader(spark, topic).load().write.mode("overwrite").parquet(str(topic.parquet))


def drain(frame: DataFrame) -> None:
    """Have Spark make every row and every column of a frame, and throw them away."""
    frame.write.format("noop").mode("overwrite").save()
