"""The options of a topic as flags: the common ones by name, the others by `--option KEY=VALUE`."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import click

from headrace.cli.names import read_pairs

CHECKS_MODULE = "headrace.cli.nouns.topic_checks"  # loads the table of options

# From a flag to the option that it sets.
_NAMED = {"expiry": "message_expiry", "max_size": "max_topic_size", "durability": "durability"}


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags; the command gets their values as `settings`, from key to text."""

    @click.option("--expiry", metavar="TIME", help='How long to keep messages: "7 days", never.')
    @click.option("--max-size", metavar="SIZE", help='How much to keep: "10 GiB", unlimited.')
    @click.option("--durability", metavar="CLASS", help="persisted or replicated.")
    @click.option(
        "--option",
        "pairs",
        metavar="KEY=VALUE",
        multiple=True,
        callback=read_pairs,
        help="Any option; may be given more than once.",
    )
    @functools.wraps(command)
    def told(*, pairs: dict[str, str], **rest: Any) -> Any:  # noqa: ANN401 - the command's own
        named = {key: rest.pop(flag) for flag, key in _NAMED.items()}
        given = {key: text for key, text in named.items() if text is not None}
        twice = [key for key in given if key in pairs]
        if twice:
            raise click.UsageError(
                f"{', '.join(twice)} is given twice, by its flag and by --option"
            )
        settings = given | pairs
        importlib.import_module(CHECKS_MODULE).check(settings)
        return command(settings=settings, **rest)

    return told
