"""`headrace node`: operations on a running node."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, TypeVar

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.exits import CommandError
from headrace.cli.node.shards import (
    check_told,
    describe_node,
    describe_reconcile,
    describe_shards,
)
from headrace.cli.show.output import Done, Record, with_output
from headrace.cli.show.quantities import write_duration, write_time
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.sync.client import Client

    R = TypeVar("R")

# Both load the client's errors.
COUNTERS_MODULE = "headrace.cli.nouns.node_counters"
OWN_MODULE = "headrace.cli.nouns.own_commands"


@click.group(cls=Noun, short_help="What an operator does on a running node.")
def node() -> None:
    """What an operator does on a running node."""


@node.command("get", short_help="Show a node: its shards together.")
@with_output
@with_client
def get_node(client: Client) -> Record:
    """Show a node: how many shards it has, and what they are and hold together.

    A shard that does not answer within 3 s is named, and its figures are not in the sums.

    Example: headrace node get
    """
    found = _ask_own(client.get_shards)
    check_told(found.shards, found.missing)
    # Shard 0 answers this without the others.
    counted = importlib.import_module(COUNTERS_MODULE).ask_counters(client, 0)
    profile = counted.profile if counted else None
    return Record(describe_node(found, name=client.get_cluster().name, profile=profile))


@node.command("shards", short_help="Show each shard of a node.")
@with_output
@with_client
def show_shards(client: Client) -> Record:
    """Show each shard: its process, CPUs, partitions, connections, lanes, drops, lag and journal.

    A shard that does not answer within 3 s is named, never left out in silence.

    Example: headrace node shards -o json
    """
    found = _ask_own(client.get_shards)
    check_told(found.shards, found.missing)
    return Record(describe_shards(found))


@node.command("reconcile", short_help="Show how far each shard is with its partitions.")
@with_output
@with_client
def show_reconcile(client: Client) -> Record:
    """Show how far each shard is with opening and removing partitions, and what fails.

    A shard that does not answer within 3 s is named, never left out in silence.

    Example: headrace node reconcile
    """
    found = _ask_own(client.get_reconcile)
    check_told(found.shards, found.missing)
    return Record(describe_reconcile(found))


def _ask_own(ask: Callable[[], R]) -> R:
    """Return the answer to a command that only Headrace has.

    Raises:
        CommandError: The server does not support it.
    """
    found: R | None = importlib.import_module(OWN_MODULE).ask_if_supported(ask)
    if found is None:
        raise CommandError("this server does not tell of its shards")
    return found


@node.command("accept-time", short_help="Have the node go by its clock again, after a leap.")
@with_yes
@with_output
@with_client
def accept_time(client: Client, be_sure: Sure) -> Done:
    """Have the node go by its clock again, after a leap or a long downtime.

    A clock that is suddenly far ahead is not trusted, so that it deletes nothing. If it is right,
    this command makes the node accept it: expired messages are then deleted. A time is never set
    back.

    Example: headrace node accept-time --yes
    """
    counted = importlib.import_module(COUNTERS_MODULE).ask_counters(client)
    values = {each.name: each.value for each in counted.counters} if counted else {}
    if "time.clock" not in values:
        raise CommandError("this server does not support accept-time")
    clock, believed = values["time.clock"], values["time.believed"]
    if clock <= believed:
        return Done(
            "The clock is not ahead of what the node goes by: there is nothing to accept.",
            {"before_at": believed, "after_at": believed},
        )
    be_sure(
        f"have the node go by {write_time(clock)} UTC instead of {write_time(believed)}, and "
        "delete what has expired by then"
    )
    accepted = client.accept_time()
    gained = write_duration(accepted.after - accepted.before)
    return Done(
        f"The node goes by {write_time(accepted.after)} UTC, {gained} later than before.",
        {"before_at": accepted.before, "after_at": accepted.after},
    )
