"""`headrace options`: the options that objects can have, and their defaults."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from headrace.cli.connect.target import with_client
from headrace.cli.show.output import Rows, Values, with_output

if TYPE_CHECKING:
    from headrace.client.sync.client import Client
    from headrace.wire.commands.system import OptionSpec

SCOPES = ("topic", "stream", "user")
# Loaded when the command runs; its help page needs neither.
NUMBERS_MODULE = "headrace.wire.numbers"
FIELDS_MODULE = "headrace.wire.fields"


@click.command(short_help="Show the options that topics can have.")
@click.argument("scope", type=click.Choice(SCOPES), default="topic")
@with_output
@with_client
def options(client: Client, scope: str) -> Rows:
    """Show the options that topics can have, with their defaults at this node.

    SCOPE is topic, stream or user. The protocol has options for all three; a node may know none
    for a stream or a user.

    Example: headrace options topic
    """
    kind = importlib.import_module(NUMBERS_MODULE).OptionsScope[scope.upper()]
    columns = ("key", "kind", "default", "description")
    return Rows([describe_option(each) for each in client.describe_options(kind)], columns)


def describe_option(option: OptionSpec) -> Values:
    """Return an option as values for programs; a missing default is None."""
    fields = importlib.import_module(FIELDS_MODULE)
    kinds = {int(kind): kind.name.lower() for kind in fields.FieldKind}
    default = fields.Field(option.kind, option.default).value if option.default else None
    return {
        "key": option.key,
        "kind": kinds.get(option.kind, str(option.kind)),
        "default": default.hex() if isinstance(default, bytes) else default,
        "description": option.description,
    }
