"""`headrace dev` and `headrace serve`: run a node in the foreground until a signal.

The server is loaded by name: the command line does not depend on it, and client commands do not
load it.
"""

import importlib
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from headrace.cli.exits import CommandError, Exit

CONFIG_MODULE = "headrace.server.config.load"
BOOTSTRAP_MODULE = "headrace.server.bootstrap"
SHARDS_MODULE = "headrace.server.shard_count"
THROWAWAY_MODULE = "headrace.server.throwaway"

# From an option of the command line to the path of its configuration key.
_KEYS = {
    "data": "server.data_dir",
    "shards": "server.shards",
    "tcp": "tcp.address",
    "http": "http.address",
    "allow_plaintext": "tls.allow_plaintext",
}


def node_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a node; the command gets `config`, and the others as text by name."""
    for option in (
        click.option("--config", type=click.Path(path_type=Path), help="TOML file of settings."),
        click.option("--http", metavar="HOST:PORT", help="Where HTTP listens. [127.0.0.1:3000]"),
        click.option("--tcp", metavar="HOST:PORT", help="Where clients connect. [127.0.0.1:8090]"),
        click.option(
            "--shards",
            metavar="N|auto|all|A..B|numa:...",
            help="Processes that share the partitions. [the folder's; new: dev 1, serve auto]",
        ),
        click.option("--data", metavar="DIR", help="Folder of all data."),
    ):
        command = option(command)
    return command


def plaintext_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--allow-plaintext`; the command gets `allow_plaintext`, "true" or None."""
    return click.option(
        "--allow-plaintext",
        is_flag=True,
        flag_value="true",
        default=None,
        help="Listen off loopback without TLS.",
    )(command)


@click.command(short_help="Start a node to try things out: loopback, user iggy/iggy.")
@node_options
@click.option("--nodes", metavar="N", type=click.IntRange(min=1), default=1, help="Nodes. [1]")
def dev(nodes: int, config: Path | None, **options: str | None) -> int:
    """Start a node to try things out.

    It listens on loopback alone, its user is iggy with the password iggy, and without --data its
    folder is removed when it ends.
    """
    if nodes != 1:
        raise CommandError(f"--nodes {nodes}: a cluster of several nodes comes later", Exit.USAGE)
    return _run_node("dev", config, options)


@click.command(short_help="Start a node.")
@node_options
@plaintext_option
def serve(config: Path | None, **options: str | None) -> int:
    """Start a node.

    The password of its root user comes from HEADRACE_ROOT_PASSWORD or the configuration file;
    without one, the first start makes a password and shows it once.

    There is no TLS yet. Addresses off loopback need the flag --allow-plaintext: passwords and
    messages then travel in clear.
    """
    return _run_node("serve", config, options)


def _run_node(profile: str, file: Path | None, options: dict[str, str | None]) -> int:
    if not __debug__:
        raise CommandError(
            "the server does not start under python -O: its assertions keep data safe"
        )
    flags = flags_of(options)
    config = load_config(profile, file, flags)
    is_throwaway = profile == "dev" and config.origin("server.data_dir") == "default"
    places = _settle_shards(config, None if is_throwaway else config.server.data_dir)
    with ExitStack() as stack:
        if is_throwaway:
            module = importlib.import_module(THROWAWAY_MODULE)
            folder = stack.enter_context(module.throwaway_folder())
            config = load_config(profile, file, flags | {"server.data_dir": str(folder)})
        bootstrap = importlib.import_module(BOOTSTRAP_MODULE)
        code: int = bootstrap.run(config, is_throwaway=is_throwaway, places=places)
    return code


def _settle_shards(config: Any, folder: Path | None) -> Any:  # noqa: ANN401 - the server's own types
    """Return where the shards of a node run.

    Raises:
        CommandError: They cannot be.
    """
    module = importlib.import_module(SHARDS_MODULE)
    try:
        return module.settle_shards(config, folder=folder).shards
    except module.AllocationError as error:
        raise CommandError(str(error), Exit.USAGE) from None


def flags_of(options: dict[str, str | None]) -> dict[str, str]:
    """Return the flags that were given, by the path of their key."""
    return {_KEYS[name]: text for name, text in options.items() if text is not None}


def load_config(profile: str, file: Path | None, flags: dict[str, str]) -> Any:  # noqa: ANN401 - the server's own type
    """Return the configuration of a node.

    Raises:
        CommandError: It is wrong; the sentence lists all problems.
    """
    module = importlib.import_module(CONFIG_MODULE)
    try:
        return module.load_config(file, os.environ, flags, profile)
    except module.ConfigError as error:
        raise CommandError(sentence_of(error.problems), Exit.USAGE) from None


def sentence_of(problems: list[Any]) -> str:
    """Return a sentence that lists all problems of a configuration."""
    if len(problems) == 1:
        return str(problems[0])
    lines = "".join(f"\n  {problem}" for problem in problems)
    return f"the configuration has {len(problems)} problems:{lines}"
