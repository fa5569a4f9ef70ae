"""`headrace pipeline`: run, list, show and check declared jobs.

Loaded by name. Spark is loaded only by commands that run it.
"""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from headrace.pipelines.files import FileError

if TYPE_CHECKING:
    from headrace.pipelines.declared import JobFile, Pipeline
    from headrace.pipelines.run import Followed

FAILED, USAGE, NOT_FOUND = 1, 2, 3  # the exit codes of all commands


class PipelineCommandError(click.ClickException):
    """A command failed: one sentence, and an exit code for scripts."""

    def __init__(self, sentence: str, code: int = FAILED) -> None:
        super().__init__(sentence)
        self.exit_code = code  # type: ignore[misc]  # each error has its own


_file = click.argument("file", type=click.Path(path_type=Path))
_name = click.argument("name", required=False)
_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="[table]"
)


@click.group(short_help="Run declared jobs from topics to tables.")
def pipeline() -> None:
    """Jobs that are declared in a TOML or a Python file: topics, SQL or a function, a table."""


@pipeline.command(short_help="Run the jobs of a file.")
@_file
@_name
@click.option("--available-now", is_flag=True, help="Do what is there, then end.")
@click.option("--master", metavar="URL", help="The Spark master, instead of the file's.")
def run(file: Path, name: str | None, *, available_now: bool, master: str | None) -> None:
    """Run the job NAME of FILE, or all its jobs, until they end or a signal stops them.

    A job goes on where it was, whatever ended the last run.
    """
    jobs = _load(file)
    chosen = _choose(jobs, name)
    if available_now:
        chosen = [replace(each, interval_millis=None) for each in chosen]
    runner, screens = _module("run"), _module("screen")
    errors = (
        runner.RunError,
        _module("checkpoint").RunningError,
        _module("table_files").TableError,
    )
    try:
        with screens.open_screen() as screen:
            followed = runner.run_jobs(jobs, chosen, screen, master=master)
    except errors as error:
        raise PipelineCommandError(str(error)) from error
    for each in followed:
        click.echo(_conclude(each))


@pipeline.command("list", short_help="List the jobs of a file.")
@_file
@_output
def list_(file: Path, output: str) -> None:
    """List the jobs that FILE declares."""
    show = _module("show")
    rows = [show.summary(each) for each in _load(file).pipelines.values()]
    if output == "json":
        click.echo(json.dumps(rows))
        return
    for row in rows:
        batch = "never ran" if row["committed_batch"] is None else f"batch {row['committed_batch']}"
        topics = ", ".join(row["topics"])
        click.echo(f"{row['name']}: {topics} to {row['sink']}, every {row['trigger']}, {batch}")


@pipeline.command(short_help="Show a job and how far it has come.")
@_file
@_name
@_output
def show(file: Path, name: str | None, output: str) -> None:
    """Show the declaration, the checkpoint and the last progress of the job NAME of FILE."""
    rows = [_module("show").details(each) for each in _choose(_load(file), name)]
    if output == "json":
        click.echo(json.dumps(rows if name is None else rows[0]))
        return
    for row in rows:
        for key, value in row.items():
            if value:
                click.echo(f"{key}: {value if isinstance(value, str) else json.dumps(value)}")


@pipeline.command(short_help="Validate the jobs of a file without running them.")
@_file
@_name
@click.option("--spark", is_flag=True, help="Start Spark and let it analyse SQL and functions.")
def check(file: Path, name: str | None, *, spark: bool) -> None:
    """Validate the job NAME of FILE, or all its jobs, and say what was not looked at.

    Ends with 1 if something is wrong.
    """
    jobs = _load(file)
    chosen = _choose(jobs, name)
    checks = _module("check")
    findings = [each for job in chosen for each in checks.check_pipeline(job)]
    if spark:
        try:
            findings += _module("analyse").analyse(jobs, chosen)
        except _module("run").RunError as error:
            raise PipelineCommandError(str(error)) from error
    else:
        words = "--spark starts Spark and has it look"
        findings.append(checks.Finding("sql and functions", checks.Verdict.UNKNOWN, words))
    for each in findings:
        click.echo(str(each))
    wrong = sum(each.verdict is checks.Verdict.WRONG for each in findings)
    if wrong:
        raise PipelineCommandError(f"{wrong} of {len(findings)} findings are wrong")


def _load(file: Path) -> "JobFile":
    try:
        return _module("declarations").load_jobs(file)  # type: ignore[no-any-return]  # by name
    except FileError as error:
        raise PipelineCommandError(str(error), USAGE) from None


def _module(name: str) -> ModuleType:
    """Load a module of this package; all but the command itself need the extra."""
    try:
        return importlib.import_module(f"headrace.pipelines.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headrace"):
            raise
        raise PipelineCommandError(
            f"{error.name} is not installed: pip install 'headrace[spark,lake]'"
        ) from None


def _choose(jobs: "JobFile", name: str | None) -> "list[Pipeline]":
    if name is None:
        return list(jobs.pipelines.values())
    if name not in jobs.pipelines:
        known = ", ".join(jobs.pipelines)
        raise PipelineCommandError(f"{jobs.path}: no job {name}; there are {known}", NOT_FOUND)
    return [jobs.pipelines[name]]


def _conclude(each: "Followed") -> str:
    totals: Any = each.totals
    words = f"{each.name}: {totals.rows:,} rows in {totals.batches} batches"
    if totals.dead_letters:
        words += f", {totals.dead_letters:,} dead letters"
    if totals.late:
        words += f", {totals.late:,} late rows dropped"
    return words
