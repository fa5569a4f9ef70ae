"""Spark in ten minutes: a topic as a DataFrame, first as a batch, then as a stream.

Start a node with `headrace dev` in one terminal and this file in another:

    python examples/spark_orders.py
"""

import json
import os
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import headrace
from headrace.client import AlreadyExists
from headrace.spark.session import session

ORDERS = 1000
ADDRESS = os.environ.get("HEADRACE_ADDRESS", "127.0.0.1:8090")


def send_orders(first: int) -> None:
    """Send orders as JSON; each customer's go to one partition."""
    with headrace.connect(ADDRESS) as client:
        try:
            client.create_stream("shop")
            client.create_topic("shop/orders", partitions=2)
        except AlreadyExists:
            pass
        with client.producer("shop/orders") as producer:
            for number in range(first, first + ORDERS):
                customer = f"customer {number % 10}"
                order = {"id": number, "customer": customer, "amount": number % 7}
                producer.send(json.dumps(order), key=customer)


def show_batch(spark: SparkSession) -> None:
    """Read all that the topic holds now, and look at it with SQL."""
    orders = (
        spark.read.format("headrace")
        .option("address", ADDRESS)
        .option("topic", "shop/orders")
        .option("valueFormat", "json")
        .option("valueSchema", "id BIGINT, customer STRING, amount BIGINT")
        .option("columns", "partition,offset")
        .load()
    )
    orders.createOrReplaceTempView("orders")
    spark.sql(
        "SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders"
        " GROUP BY customer ORDER BY customer"
    ).show()


def write_stream(spark: SparkSession, folder: str) -> DataFrame:
    """Take what is new since the last run into a table; give the table."""
    orders = (
        spark.readStream.format("headrace")
        .option("address", ADDRESS)
        .option("topic", "shop/orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .option("groupId", "orders-to-parquet")
        .load()
    )
    query = (
        orders.withColumn("order", sql.col("payload").cast("string"))
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/orders")
    )
    query.awaitTermination()
    return spark.read.parquet(f"{folder}/orders")


def main() -> None:
    """Run both."""
    spark = session("orders", master="local[2]").getOrCreate()
    send_orders(0)
    show_batch(spark)
    with tempfile.TemporaryDirectory() as folder:
        print("rows after the first run:", write_stream(spark, folder).count())
        send_orders(ORDERS)
        print("rows after the second run:", write_stream(spark, folder).count())
    with headrace.connect(ADDRESS) as client:
        for partition in (0, 1):
            print(
                "the group has processed:",
                client.get_offset("shop/orders", partition, group="orders-to-parquet"),
            )
    spark.stop()


if __name__ == "__main__":
    main()
