"""`headrace pat`: personal access tokens of the current user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.show.output import Done, Record, Rows, with_output
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.client.sync.client import Client


@click.group(cls=Noun, short_help="Personal access tokens of your own user.")
def pat() -> None:
    """Personal access tokens of your own user: they log in instead of name and password."""


@pat.command("list", short_help="List your tokens, without their secrets.")
@with_output
@with_client
def list_tokens(client: Client) -> Rows:
    """List your tokens, without their secrets; 0 or never is a token that does not expire.

    Example: headrace pat list
    """
    return Rows(
        [{"name": each.name, "expires_at": each.expires_at} for each in client.get_tokens()]
    )


@pat.command("create", short_help="Make a token and show its secret, this once.")
@click.argument("name")
@click.option("--expiry", metavar="TIME", help='How long it lives: "30 days". [for ever]')
@with_output
@with_client
def create_token(client: Client, name: str, expiry: str | None) -> Record:
    """Make a token and show its secret, which is never shown again.

    Example: headrace pat create laptop --expiry "30 days"
    """
    return Record({"name": name, "token": client.create_token(name, expiry=expiry)})


@pat.command("delete", short_help="Revoke a token.")
@click.argument("name")
@with_yes
@with_output
@with_client
def delete_token(client: Client, name: str, be_sure: Sure) -> Done:
    """Revoke a token: who uses it is logged out.

    Example: headrace pat delete laptop --yes
    """
    be_sure(f"revoke the token {name}")
    client.delete_token(name)
    return Done(f"The token {name} is revoked.", {"name": name, "is_deleted": True})
