"""`headrace doctor`: checks a data folder without a node.

The server's modules are loaded by name: the command line does not depend on them.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from headrace.cli.exits import CommandError, Exit
from headrace.cli.show.output import Record, Rows, output_option, show

DOCTOR_MODULE = "headrace.server.doctor.examine"
FINE = "fine"
_COLUMNS = ("path", "verdict", "text", "partition")


@click.command(short_help="Check a data folder while no node runs.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--problems", is_flag=True, help="Show only what is not fine.")
@output_option
def doctor(*, folder: Path, problems: bool, output: str) -> int:
    """Check the data folder DIR of a node that does not run; nothing in it is changed.

    Every file is read and gets a verdict: fine, repaired at start, look at it, unknown file, or
    damaged, with the offsets that are lost. Ends with 1 if anything is damaged.
    """
    module = importlib.import_module(DOCTOR_MODULE)
    try:
        with _progress() as tell:
            report = module.examine(folder, tell)
    except module.DoctorError as error:
        raise CommandError(str(error)) from None
    except PermissionError as error:
        raise CommandError(
            f"{error.filename} cannot be read by this user: run the doctor as the user of the node"
        ) from None
    values = report.plain()
    if problems:
        values["files"] = [each for each in values["files"] if each["verdict"] != FINE]
    if output in ("json", "yaml"):
        show(Record(values), output)
    elif values["files"]:
        show(Rows(values["files"], _COLUMNS), output)
    click.echo(report.summary, err=True)
    return Exit.FAILED if report.is_damaged else Exit.OK


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show on a terminal which file is being read: a check can take minutes."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    console = importlib.import_module("rich.console").Console(stderr=True)
    with console.status("reading") as status:
        yield lambda what: status.update(f"reading {what}")
