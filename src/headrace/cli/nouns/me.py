"""`headrace me`: this connection as the node sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.connect.target import with_client
from headrace.cli.nouns.client import describe_details
from headrace.cli.show.output import Record, with_output

if TYPE_CHECKING:
    from headrace.client.sync.client import Client


@click.command(short_help="Show this connection as the node sees it.")
@with_output
@with_client
def me(client: Client) -> Record:
    """Show this connection as the node sees it: its number, its user, where it comes from.

    Example: headrace me -o json
    """
    return Record(describe_details(client.get_me()))
