"""`headrace completion`: the script by which a shell completes the command."""

import importlib

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HEADRACE_COMPLETE"  # what click looks for, made from the name of the command
MAIN_MODULE = "headrace.cli.main"


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script by which a shell completes this command.

    bash reads it from ~/.local/share/bash-completion/completions/headrace, zsh from a file named
    _headrace in a folder of $fpath, fish from ~/.config/fish/completions/headrace.fish.

    Example: source <(headrace completion bash)
    """
    made = get_completion_class(shell)
    assert made is not None
    # By name: the main module names this one.
    root = importlib.import_module(MAIN_MODULE).headrace
    click.echo(made(root, {}, "headrace", VARIABLE).source())
