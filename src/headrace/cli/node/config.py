"""`headrace config`: shows the configuration of a node, and checks a file.

The server's modules are loaded by name: the command line does not depend on them.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.cli.exits import CommandError, Exit
from headrace.cli.node.run import (
    CONFIG_MODULE,
    flags_of,
    load_config,
    node_options,
    plaintext_option,
    sentence_of,
)
from headrace.cli.show.output import Done, Rows, output_option, show
from headrace.cli.tree import Noun

SHOW_MODULE = "headrace.server.config.show"
PROFILES = ("serve", "dev")


def _profile_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--profile",
        type=click.Choice(PROFILES),
        default="serve",
        help="Whose defaults: those of serve or of dev. [serve]",
    )(command)


@click.group(cls=Noun, short_help="Show and check the configuration.")
def config() -> None:
    """Show and check the configuration of a node: file, environment and flags."""


@config.command("show", short_help="Show every key with its value.")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@_profile_option
@node_options
@plaintext_option
@output_option
def show_config(
    *, origin: bool, profile: str, config: Path | None, output: str, **options: str | None
) -> None:
    """Show every key with the value that a node started here would have; secrets are masked.

    Example: headrace config show --origin --config node.toml
    """
    loaded = load_config(profile, config, flags_of(options))
    rows = importlib.import_module(SHOW_MODULE).describe(loaded)
    show(Rows(rows, ("key", "value", *(("origin",) if origin else ()))), output)


@config.command("check", short_help="Say all that is wrong with a file.")
@click.argument("file", type=click.Path(path_type=Path))
@_profile_option
@output_option
def check_config(*, file: Path, profile: str, output: str) -> int:
    """Check FILE alone, without environment and flags, and list all its problems.

    Each problem names the key, its value and what is allowed; for an unknown key, the most similar
    one. Ends with 2 if there are any.

    Example: headrace config check node.toml
    """
    module = importlib.import_module(CONFIG_MODULE)
    try:
        loaded = module.load_config(file, {}, {}, profile)
    except module.ConfigError as error:
        if output == "table":
            raise CommandError(sentence_of(error.problems), Exit.USAGE) from None
        problems = [{"key": each.path, "problem": str(each)} for each in error.problems]
        show(Rows(problems), output)
        return Exit.USAGE
    given = len(loaded.origins)
    sentence = f"{file} is right; keys that it gives: {given}, all others have their default"
    show(Done(sentence, {"file": str(file), "keys_given": given}), output)
    return Exit.OK
