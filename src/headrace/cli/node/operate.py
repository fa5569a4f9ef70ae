"""`headrace node`: operations on a running node."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.exits import CommandError
from headrace.cli.show.output import Done, with_output
from headrace.cli.show.quantities import write_duration, write_time
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.client.sync.client import Client

COUNTERS_MODULE = "headrace.cli.nouns.node_counters"  # loads the client's errors


@click.group(cls=Noun, short_help="What an operator does on a running node.")
def node() -> None:
    """What an operator does on a running node."""


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
