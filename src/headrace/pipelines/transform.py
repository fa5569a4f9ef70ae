"""From topics to the rows of a job: read, separate dead letters, then SQL or a function.

Flow:       transform.
Invariants: whether a row is a dead letter, and why, depends only on that row; so the job's query
            and its dead-letter query agree, and every message is in exactly one of them.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.pipelines.declared import Pipeline, Source
from headrace.pipelines.progress import REJECTED
from headrace.pipelines.source_options import source_options
from headrace.spark.schema import ERROR_COLUMN

REASON = "_reason"


class NoRowsError(Exception):
    """A function did not return a DataFrame."""


def build_rows(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """Return the rows to write: SQL or a function over the valid rows of the sources.

    Raises:
        NoRowsError: The function does not return a DataFrame.
    """
    frames = []
    # Table names are resolved when the SQL is parsed: the next job may reuse them.
    for source in pipeline.sources:
        frame = judge(_read(spark, source_options(pipeline, source)), source)
        good = frame.where(f.col(REASON).isNull()).drop(REASON, ERROR_COLUMN)
        if source.watermark is not None:
            good = good.withWatermark(source.watermark.column, source.watermark.delay)
        good.createOrReplaceTempView(source.view)
        frames.append(good)
    if pipeline.sql:
        return spark.sql(pipeline.sql)
    if pipeline.function is None:
        return _union(frames)
    given = pipeline.function(*frames)
    if not isinstance(given, DataFrame):
        raise NoRowsError(f"{pipeline.function_name} gives {type(given).__name__}, no DataFrame")
    return given


def build_dead_letters(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """Return the messages that the job cannot use, each with its place and the reason."""
    rejected = []
    for source in pipeline.sources:
        # The group shows the progress of the job itself, so only its own query has it.
        options = source_options(pipeline, source, is_reporting=False)
        frame = judge(_read(spark, options), source)
        rejected.append(frame.where(f.col(REASON).isNotNull()).select(*_place(frame)))
    return _union(rejected).observe(REJECTED, f.count(f.lit(1)).alias("rows"))


def judge(frame: DataFrame, source: Source) -> DataFrame:
    """Apply the strict casts, and add the reason why a row is a dead letter, null if it is not."""
    names = frame.columns
    error = f.col(ERROR_COLUMN) if ERROR_COLUMN in names else f.lit(None).cast("string")
    failed = [_cast_failure(name, kind) for name, kind in source.cast.items()]
    judged = frame.withColumn(REASON, _join([error, *failed]))
    judged = judged.withColumns({name: _try_cast(name, t) for name, t in source.cast.items()})
    if not source.require:
        return judged
    broken = [_breach(name, condition) for name, condition in source.require.items()]
    # A row that could not be read fails every condition; the first reason is the real one.
    return judged.withColumn(REASON, f.coalesce(f.col(REASON), _join(broken)))


def _read(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format("headrace").options(**dict(options)).load()


def _union(frames: list[DataFrame]) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first


def _place(frame: DataFrame) -> list[Column]:
    time = f.col("timestamp") if "timestamp" in frame.columns else f.lit(None)
    return [
        f.col("stream"),
        f.col("topic"),
        f.col("partition"),
        f.col("offset"),
        time.cast("timestamp").alias("timestamp"),
        f.col(REASON).alias("reason"),
        f.col("payload"),
    ]


def _try_cast(name: str, kind: str) -> Column:
    return f.expr(f"try_cast(`{name}` AS {kind})")


def _cast_failure(name: str, kind: str) -> Column:
    has_failed = f.col(f"`{name}`").isNotNull() & _try_cast(name, kind).isNull()
    words = f.concat(f.lit(f"{name} cannot be read as {kind}: "), f.expr(f"string(`{name}`)"))
    return f.when(has_failed, words)


def _breach(name: str, condition: str) -> Column:
    is_kept = f.coalesce(f.expr(f"({condition})"), f.lit(False))  # noqa: FBT003 - a literal of SQL
    return f.when(~is_kept, f.lit(f"{name}: {condition} is not true"))


def _join(reasons: list[Column]) -> Column:
    joined = f.concat_ws("; ", *reasons)
    return f.when(joined != "", joined)
