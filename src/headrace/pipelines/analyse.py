"""Lets Spark analyse the SQL and the functions of jobs, without running them.

Spark checks names, types and whether the result has the columns of an existing table. It does not
check what fails only when a query starts, such as an aggregation without a watermark.
"""

from collections.abc import Iterator

from pyspark.errors import PySparkException

from headrace.pipelines.check import Finding, Verdict
from headrace.pipelines.declared import JobFile, Pipeline
from headrace.pipelines.run import first_lines, open_session
from headrace.pipelines.transform import NoRowsError, build_dead_letters, build_rows


def analyse(jobs: JobFile, pipelines: list[Pipeline]) -> Iterator[Finding]:
    """Return Spark's analysis of each job: its result columns, or what is wrong."""
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
