"""`headrace cluster`: the nodes of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.connect.target import with_client
from headrace.cli.show.output import Record, Values, with_output
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.client.sync.client import Client


@click.group(cls=Noun, short_help="The nodes of the cluster.")
def cluster() -> None:
    """The nodes that hold the data together."""


@cluster.command("metadata", short_help="Show the nodes, their addresses and who leads.")
@with_output
@with_client
def show_metadata(client: Client) -> Record:
    """Show the nodes of the cluster, where they listen, how they are and which one leads.

    Example: headrace cluster metadata
    """
    found = client.get_cluster()
    nodes: list[Values] = [
        {
            "name": node.name,
            "ip": node.ip,
            "tcp_port": node.tcp_port,
            "http_port": node.http_port,
            "websocket_port": node.websocket_port,
            "quic_port": node.quic_port,
            "role": node.role.name.lower(),
            "status": node.status.name.lower(),
        }
        for node in found.nodes
    ]
    return Record({"name": found.name, "nodes": nodes})
