"""Makes the data source `headrace` known to Spark, which looks for modules named `pyspark_*`."""

from headrace.spark.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
