"""The entry of the command: subcommands by name, loaded when they are used.

`headrace --help` and `--version` load nothing beyond click, so that they answer at once.
"""

import importlib
import os
import sys
from typing import NoReturn

import click

from headrace import __version__
from headrace.cli.exits import CommandError, Exit

# Name: where it is, and what it does in a few words.
SUBCOMMANDS = {
    "dev": ("headrace.cli.node:dev", "Start a node to try things out: loopback, user iggy/iggy."),
    "ping": ("headrace.cli.ping:ping", "Measure the round trip to a node."),
    "serve": ("headrace.cli.node:serve", "Start a node."),
}


class LazyGroup(click.Group):
    """Knows its subcommands by name and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in SUBCOMMANDS:
            return None
        module, _, name = SUBCOMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in SUBCOMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="headrace %(version)s")
def headrace() -> None:
    """A persistent message-streaming platform with Spark built in."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run the command; give its exit code. What went wrong is one sentence on stderr."""
    try:
        code = headrace.main(arguments, prog_name="headrace", standalone_mode=False)
    except CommandError as error:
        click.echo(f"headrace: {error}", err=True)
        return error.code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130  # as a shell says of a command that was interrupted
    except BrokenPipeError:
        # Whoever read our output has gone; nothing may be written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except OSError as error:
        click.echo(f"headrace: {error}", err=True)
        return Exit.FAILED
    return code if isinstance(code, int) else Exit.OK
