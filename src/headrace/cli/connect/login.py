"""`headrace login` and `headrace logout`: log in once for all later commands.

The node creates a personal access token for the login. It is stored in the current context instead
of a password, it expires, and the logout revokes it.
"""

from __future__ import annotations

import importlib
import os
import secrets
from typing import TYPE_CHECKING

import click

from headrace.cli.connect.contexts import Context, load_contexts, save_contexts
from headrace.cli.connect.target import (
    ADDRESS_VARIABLE,
    DIAL_MODULE,
    naming_context,
    with_client,
)
from headrace.cli.exits import CommandError, Exit
from headrace.cli.show.output import Done, with_output
from headrace.cli.show.quantities import write_time

if TYPE_CHECKING:
    from headrace.client.sync.client import Client

TOKEN_PREFIX = "cli-"  # noqa: S105 - part of a name
EXPIRY_DEFAULT = "1 day"
REVOKE_TIMEOUT = "10 s"


@click.command(short_help="Log in once, for later commands.")
@click.option("--expiry", metavar="TIME", default=EXPIRY_DEFAULT, help="How long. [1 day]")
@with_output
@with_client
def login(client: Client, expiry: str) -> Done:
    """Log in and keep a token, instead of the password, in the current context.

    Later commands use it until it expires or `headrace logout` revokes it.

    Example: headrace login --address 10.0.0.7:8090 --username ada
    """
    contexts = load_contexts(os.environ)
    before = contexts.get(contexts.current)
    name = f"{TOKEN_PREFIX}{secrets.token_hex(4)}"
    token = client.create_token(name, expiry=expiry)
    known = {each.name: each.expires_at for each in client.get_tokens()}
    kept = Context(
        address=str(client.address),
        username=client.get_user(client.get_me().client.user_id).user.username,
        token=token,
        token_name=name,
        token_expires_at=known[name],
    )
    save_contexts(os.environ, contexts.put(contexts.current, kept))
    if before.address == kept.address and before.token_name in known:
        client.delete_token(before.token_name)  # last: this session may depend on it
    return Done(
        f"{kept.username} is logged in at {kept.address} until {write_time(known[name])} UTC,"
        f" in the context {contexts.current}.",
        {
            "context": contexts.current,
            "address": kept.address,
            "username": kept.username,
            "token_name": name,
            "expires_at": known[name],
        },
    )


@click.command(short_help="Forget the login, here and there.")
@click.option("--local", is_flag=True, help="Only remove it here; the token stays valid.")
@with_output
def logout(local: bool) -> Done:  # noqa: FBT001 - as click gives it
    """Revoke the token of the current context's login and forget it.

    A token that has expired is only forgotten.

    Example: headrace logout
    """
    contexts = load_contexts(os.environ)
    found = contexts.get(contexts.current)
    if not found.token_name:
        raise CommandError(
            f"nobody is logged in, in the context {contexts.current}", Exit.NOT_FOUND
        )
    with naming_context({**os.environ, ADDRESS_VARIABLE: ""}, None):
        is_revoked = not local and _revoke(found)
    save_contexts(os.environ, contexts.put(contexts.current, Context(found.address)))
    return Done(
        f"{found.username} is logged out of {found.address}.",
        {
            "context": contexts.current,
            "address": found.address,
            "token_name": found.token_name,
            "is_revoked": is_revoked,
        },
    )


def _revoke(found: Context) -> bool:
    """Revoke the token; return whether it was still valid."""
    opener = importlib.import_module(DIAL_MODULE)
    try:
        with opener.dial(found.address, {"token": found.token}, REVOKE_TIMEOUT, {}) as client:
            client.delete_token(found.token_name)
    except CommandError as error:
        if error.code in (Exit.AUTH, Exit.NOT_FOUND):
            return False
        if error.code == Exit.UNAVAILABLE:
            raise CommandError(f"{error}; to forget the login here: --local", error.code) from None
        raise
    return True
