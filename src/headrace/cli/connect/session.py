"""`headrace session`: the stored login. Contacts no node."""

import os
import time

import click

from headrace.cli.connect.contexts import load_contexts
from headrace.cli.connect.target import ADDRESS_DEFAULT
from headrace.cli.exits import CommandError, Exit
from headrace.cli.show.output import Record, with_output
from headrace.cli.tree import Noun

_MICROS = 1_000_000


@click.group(cls=Noun, short_help="The login that is stored here.")
def session() -> None:
    """The login that is kept in the current context."""


@session.command("status", short_help="Show who is logged in where, and until when.")
@with_output
def show_status() -> Record:
    """Show who is logged in where, and until when. Ends with 4 if nobody is, or no longer.

    Example: headrace session status
    """
    contexts = load_contexts(os.environ)
    found = contexts.get(contexts.current)
    if not found.token_name:
        raise CommandError(
            f"nobody is logged in, in the context {contexts.current}: headrace login", Exit.AUTH
        )
    if 0 < (found.token_expires_at or 0) <= time.time() * _MICROS:
        raise CommandError(
            f"the login of {found.username} in the context {contexts.current} has expired:"
            " headrace login",
            Exit.AUTH,
        )
    return Record(
        {
            "context": contexts.current,
            "address": found.address or ADDRESS_DEFAULT,
            "username": found.username,
            "token_name": found.token_name,
            "expires_at": found.token_expires_at,
        }
    )
