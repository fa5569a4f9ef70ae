"""A Spark session with the settings that this source is at its best with.

```python
from headrace.spark.session import session

spark = session("orders").getOrCreate()
orders = spark.readStream.format("headrace").option("topic", "shop/orders").load()
```

Any other session serves as well; it then needs Java 17 or newer and `PYSPARK_PYTHON` of its own.
"""

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from headrace.spark.java import find_java_home

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# What Spark tells the process of a streaming source, by variables of its environment.
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
    """Give a builder: `session("orders").getOrCreate()`; `conf` wins over what is set here.

    It finds Java, has tasks run by this very Python, lets filters of a batch be pushed down, and
    keeps a local Spark on loopback. It sets environment variables that Spark reads when its Java
    process starts.

    Raises:
        NoJavaError: There is no Java that could serve.
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
    """Make it safe to start several streams from topics at once; call it before the first.

    Every stream of a JVM puts the same variables into one map, each from its own thread and without
    a lock (Spark 4.3). Two that add a name at the same moment leave a map that Spark can never
    serialize again, and with it every query of the session fails until the JVM ends. A name that is
    there already is only given its value anew, so all of them are put there first.
    """
    variables = stream_variables(spark)
    for name in STREAM_VARIABLES:
        variables.putIfAbsent(name, "")


def stream_variables(spark: SparkSession) -> Any:  # noqa: ANN401 - a map of the JVM
    """Give the variables that all streams from topics share, as Spark holds them."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - no other way; a test holds these names
    source = session.sessionState().dataSourceManager().lookupDataSource("headrace")
    return source.dataSourceCls().envVars()


def spark_environment() -> dict[str, str]:
    """Give the variables that Spark's own commands need: which Java, and which Python.

    Raises:
        NoJavaError: There is no Java that could serve.
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
        # Spark's 200 are for a cluster: each costs 20 to 35 ms, whatever it holds.
        "spark.sql.shuffle.partitions": str(count),
    }
