"""The same job on a cluster: nothing changes but the master.

python examples/spark_cluster.py spark://master.example:7077 shop/orders
"""

import os
import sys

from pyspark.sql import functions as sql

from headrace.spark.session import session

ADDRESS = os.environ.get("HEADRACE_ADDRESS", "127.0.0.1:8090")


def main() -> None:
    """Count the messages of each partition of a topic."""
    master, topic = sys.argv[1:]
    spark = session("count", master=master).getOrCreate()
    rows = (
        spark.read.format("headrace")
        .option("address", ADDRESS)
        .option("topic", topic)
        .option("columns", "partition,offset")
        .option("minPartitions", 4)
        .load()
    )
    counts = rows.groupBy("partition").agg(sql.count("*").alias("messages")).collect()
    for partition, messages in sorted(counts):
        print(f"partition {partition}: {messages} messages")
    spark.stop()


if __name__ == "__main__":
    main()
