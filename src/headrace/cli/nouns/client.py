"""`headrace client`: the connections of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.connect.target import with_client
from headrace.cli.show.output import Record, Rows, Values, with_output
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.client.sync.client import Client
    from headrace.wire.commands import clients

_NOT_LOGGED_IN = 0xFFFF_FFFF
_NUMBER_MAX = 0xFFFF_FFFF


@click.group(cls=Noun, short_help="Clients: who is connected.")
def client() -> None:
    """Clients: who is connected to the node."""


@client.command("list", short_help="List all connections of the node.")
@with_output
@with_client
def list_clients(client: Client) -> Rows:
    """List all connections of the node.

    Example: headrace client list
    """
    return Rows([describe_client(each) for each in client.get_clients()])


@client.command("get", short_help="Show one connection and its groups.")
@click.argument("number", type=click.IntRange(0, _NUMBER_MAX))
@with_output
@with_client
def get_client(client: Client, number: int) -> Record:
    """Show one connection, by its number in the list, and the groups that it belongs to.

    Example: headrace client get 17
    """
    return Record(describe_details(client.get_client(number)))


def describe_details(found: clients.ClientDetails) -> Values:
    """Return a connection and its groups as values for programs."""
    groups: list[Values] = [
        {"stream_id": each.stream_id, "topic_id": each.topic_id, "group_id": each.group_id}
        for each in found.groups
    ]
    return {**describe_client(found.client), "groups": groups}


def describe_client(found: clients.Client) -> Values:
    """Return a connection as values for programs; its user is None before the login."""
    return {
        "id": found.client_id,
        "user_id": None if found.user_id == _NOT_LOGGED_IN else found.user_id,
        "transport": found.transport.name.lower(),
        "address": found.address,
        "groups_count": found.groups_count,
    }
