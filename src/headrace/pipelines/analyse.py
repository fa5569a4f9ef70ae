"""Lets Spark look at the SQL and the functions of jobs, without running them.

It sees names, types and whether the result has the columns of an existing table. What it sees only
when a query starts, such as an aggregation that needs a watermark, is not seen here.
"""

from collections.abc import Iterator

from pyspark.errors import PySparkException

from headrace.pipelines.check import Finding, Verdict
from headrace.pipelines.declared import JobFile, Pipeline
from headrace.pipelines.run import first_lines, open_session
from headrace.pipelines.transform import NoRowsError, build_dead_letters, build_rows


def analyse(jobs: JobFile, pipelines: list[Pipeline]) -> Iterator[Finding]:
    """Give what Spark says of each job: the columns that it gives, or what is wrong."""
    spark = open_session(jobs, jobs.master)
    try:
        for pipeline in pipelines:
            what = f"{pipeline.name}: {pipeline.function_name or 'sql'}"
            try:
                rows = build_rows(spark, pipeline)
                if pipeline.dead_letters is not None:
                    build_dead_letters(spark, pipeline)
                yield Finding(what, Verdict.RIGHT, rows.schema.simpleString())
            except (PySparkException, NoRowsError) as error:
                yield Finding(what, Verdict.WRONG, first_lines(error))
    finally:
        spark.stop()
