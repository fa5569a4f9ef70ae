"""`headrace completion`: the script by which a shell completes the command."""

import importlib

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

VARIABLE = "_HEADRACE_COMPLETE"  # what click looks for, made from the name of the command
MAIN_MODULE = "headrace.cli.main"


class _ZshComplete(ZshComplete):
    """Names the function like the file that zsh loads by itself.

    Under another name zsh keeps the whole file as the function; run a second time, its end
    completes nothing.
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
    # By name: the main module names this one.
    root = importlib.import_module(MAIN_MODULE).headrace
    click.echo(SHELLS[shell](root, {}, "headrace", VARIABLE).source())
