"""`headrace completion`: prints the completion script of a shell."""

import importlib

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

VARIABLE = "_HEADRACE_COMPLETE"  # click derives it from the name of the command
MAIN_MODULE = "headrace.cli.main"


class _ZshComplete(ZshComplete):
    """Names the function like the file that zsh loads automatically.

    Under another name zsh keeps the whole file as the function, and a second run completes nothing.
    """

    @property
    def func_name(self) -> str:
        return "_headrace"


SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": _ZshComplete,
    "fish": FishComplete,
}


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the script by which a shell completes this command.

    bash reads it from ~/.local/share/bash-completion/completions/headrace, zsh from a file named
    _headrace in a folder of $fpath, fish from ~/.config/fish/completions/headrace.fish.

    Example: source <(headrace completion bash)
    """
    # Loaded by name, because the main module refers to this one.
    root = importlib.import_module(MAIN_MODULE).headrace
    click.echo(SHELLS[shell](root, {}, "headrace", VARIABLE).source())
