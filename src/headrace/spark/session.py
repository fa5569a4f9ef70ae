"""A Spark session with the recommended settings for this source.

```python
from headrace.spark.session import session

spark = session("orders").getOrCreate()
orders = spark.readStream.format("headrace").option("topic", "shop/orders").load()
```

Any other session works too; it needs Java 17 or newer, and `PYSPARK_PYTHON` must be set.
"""

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from headrace.spark.java import find_java_home

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# The environment variables that Spark sets for the process of a streaming source.
STREAM_VARIABLES = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
_LOOPBACK = "127.0.0.1"
_CORES = re.compile(r"local\[(\d+)(?:,\d+)?\]")


def session(
    app: str, *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession.Builder:
    """Return a builder: `session("orders").getOrCreate()`; `conf` overrides the settings here.

    It finds Java, runs tasks with this Python, enables filter pushdown for batches, and binds a
    local Spark to loopback. It sets environment variables that Spark reads when its Java process
    starts.

    Raises:
        NoJavaError: There is no suitable Java.
    """
    os.environ.update(spark_environment())
    settings = {PUSHDOWN: "true", "spark.pyspark.python": sys.executable}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        settings |= _local_settings(master)
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in (settings | dict(conf or {})).items():
        builder = builder.config(name, value)
    return builder


def prepare_streams(spark: SparkSession) -> None:
    """Make it safe to start several streams at once; call it once before the first.

    Every stream of a JVM puts the same variables into one map, each from its own thread and without
    a lock (Spark 4.3). Two that add a name at the same moment can corrupt the map: Spark cannot
    serialize it any more, and every query of the session fails until the JVM ends. Setting a name
    that exists only changes its value, so all of them are added here first.
    """
    variables = stream_variables(spark)
    for name in STREAM_VARIABLES:
        variables.putIfAbsent(name, "")


def stream_variables(spark: SparkSession) -> Any:  # noqa: ANN401 - a map of the JVM
    """Return the variables that all streams from topics share, as Spark holds them."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - no other way; a test checks these names
    source = session.sessionState().dataSourceManager().lookupDataSource("headrace")
    return source.dataSourceCls().envVars()


def spark_environment() -> dict[str, str]:
    """Return the environment variables for Spark's own commands: the Java and the Python.

    Raises:
        NoJavaError: There is no suitable Java.
    """
    return {
        "JAVA_HOME": str(find_java_home(os.environ)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _local_settings(master: str) -> dict[str, str]:
    cores = _CORES.fullmatch(master)
    count = int(cores[1]) if cores else os.cpu_count() or 1
    return {
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        # Spark's default of 200 is for a cluster: each partition costs 20 to 35 ms, even if empty.
        "spark.sql.shuffle.partitions": str(count),
    }
