"""`headrace context`: named nodes, and the current one. Contacts no node."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.base.endpoints import parse_endpoint
from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.contexts import (
    DEFAULT,
    SECRETS,
    Context,
    check_name,
    find_file,
    load_contexts,
    save_contexts,
)
from headrace.cli.connect.target import ADDRESS_DEFAULT, ASK, read_secret
from headrace.cli.exits import CommandError, Exit
from headrace.cli.show.output import Done, Record, Rows, with_output
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.cli.show.output import Values

MASK = "***"


@click.group(cls=Noun, short_help="Named nodes, and which one is meant.")
def context() -> None:
    """Named nodes with their credentials. Commands use the current one unless flags override it."""


@context.command("list", short_help="List all contexts.")
@with_output
def list_contexts() -> Rows:
    """List all contexts.

    Example: headrace context list
    """
    contexts = load_contexts(os.environ)
    return Rows(
        [
            _describe(name, contexts.get(name), is_current=name == contexts.current)
            for name in contexts.names()
        ]
    )


@context.command("show", short_help="Show a context, its secrets masked.")
@click.argument("name", required=False)
@with_output
def show_context(name: str | None) -> Record:
    """Show a context, by default the current one; its secrets are masked.

    Example: headrace context show prod
    """
    contexts = load_contexts(os.environ)
    wanted = contexts.current if name is None else name
    shown = _describe(wanted, contexts.get(wanted), is_current=wanted == contexts.current)
    return Record({**shown, "file": str(find_file(os.environ))})


@context.command("create", short_help="Create a context.")
@click.argument("name")
@click.option("--address", metavar="HOST:PORT", help="Its node. [127.0.0.1:8090]")
@click.option("--username", metavar="NAME", help="The user to log in as.")
@click.option("--password", metavar="TEXT", help="Its password; - asks for it.")
@click.option("--token", metavar="TOKEN", help="A personal access token; - asks for it.")
@click.option("--use", is_flag=True, help="Make it the current one.")
@with_output
def create_context(name: str, use: bool, **given: str | None) -> Record:  # noqa: FBT001 - as click gives it
    """Create a context and show it. Give secrets as -, so that they are asked for, not typed here.

    Example: headrace context create prod --address 10.0.0.7:8090 --username ada --password -
    """
    contexts = load_contexts(os.environ)
    if name in contexts.named or name == DEFAULT:
        raise CommandError(f"there is a context {check_name(name)} already")
    made = _make_context(given)
    contexts = contexts.put(check_name(name), made)
    contexts = contexts.use(name) if use else contexts
    save_contexts(os.environ, contexts)
    return Record(_describe(name, made, is_current=use))


@context.command("use", short_help="Make a context the current one.")
@click.argument("name")
@with_output
def use_context(name: str) -> Done:
    """Make a context the current one.

    Example: headrace context use prod
    """
    contexts = load_contexts(os.environ)
    chosen = contexts.get(name)
    save_contexts(os.environ, contexts.use(name))
    address = chosen.address or ADDRESS_DEFAULT
    return Done(
        f"The current context is {name}, at {address}.", {"current": name, "address": address}
    )


@context.command("delete", short_help="Delete a context.")
@click.argument("name")
@with_yes
@with_output
def delete_context(name: str, be_sure: Sure) -> Done:
    """Delete a context with its secrets. Its login stays valid until it expires: log out first.

    Example: headrace context delete prod --yes
    """
    contexts = load_contexts(os.environ)
    if name == DEFAULT and DEFAULT not in contexts.named:
        raise CommandError(f"the context {DEFAULT} holds nothing that could be deleted")
    contexts.get(name)
    be_sure(f"delete the context {name}")
    save_contexts(os.environ, contexts.without(name))
    return Done(f"The context {name} is deleted.", {"context": name, "is_deleted": True})


def _make_context(given: dict[str, str | None]) -> Context:
    """Check the values to be stored; prompt for a secret given as `-`."""
    if given["token"] and (given["username"] or given["password"]):
        raise CommandError("give --token, or --username and --password, not both", Exit.USAGE)
    if given["address"] is not None:
        try:
            parse_endpoint(given["address"])
        except ValueError as error:
            raise CommandError(f"--address: {error}", Exit.USAGE) from None
    asked = {key: read_secret(key.capitalize()) for key in SECRETS if given[key] == ASK}
    told = {**given, **asked}
    return Context(told["address"], told["username"], told["password"], told["token"])


def _describe(name: str, found: Context, *, is_current: bool) -> Values:
    values = asdict(found)
    hidden = {key: MASK for key in SECRETS if values[key]}
    address = {"address": found.address or ADDRESS_DEFAULT}
    return {"name": name, "is_current": is_current, **values, **hidden, **address}
