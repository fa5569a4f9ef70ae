"""`headrace tail`: shows the messages of a topic, all partitions merged, and follows it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Unpack

import click

from headrace.cli.connect.target import with_client
from headrace.cli.names import TopicName, read_identifier, topic_argument
from headrace.cli.show.output import output_option

if TYPE_CHECKING:
    from headrace.cli.tail.options import Given
    from headrace.client.sync.client import Client

RUN_MODULE = "headrace.cli.tail.run"  # loaded when the command runs


@click.command(short_help="Show the messages of a topic, and follow it.")
@topic_argument
@click.option("-f", "--follow", "is_following", is_flag=True, help="Wait for new messages.")
@click.option("--from", "start", metavar="PLACE", help="Where to begin. [end-10]")
@click.option("--partition", type=click.IntRange(min=0), help="The only one to read. [all]")
@click.option("--count", type=click.IntRange(min=1), help="Show so many, then end.")
@click.option("--filter", "filters", multiple=True, metavar="TEXT", help="Only what matches.")
@click.option("--json", "is_json", is_flag=True, help="Values are JSON: indent them.")
@click.option(
    "--show",
    metavar="COLUMNS",
    default="",
    help="Columns before each value: partition,offset,time,id,headers.",
)
@click.option("--delimiter", metavar="TEXT", default=r"\n", help=r"After each message. [\n]")
@click.option("--consumer", callback=read_identifier, metavar="NAME", help="Store its offsets.")
@click.option("--group", callback=read_identifier, metavar="NAME", help="Read as a member.")
@click.option("--skip-damaged", "is_skipping", is_flag=True, help="Go past damaged messages.")
@output_option
@with_client
def tail(client: Client, topic: TopicName, **given: Unpack[Given]) -> None:
    """Show the messages of a topic, by default the newest 10, merged by the time of their arrival.

    PLACE is earliest, latest, end-N for the newest N, an offset, a time such as 2026-01-31T12:00Z,
    or how long ago, such as -15min. Missing ranges are reported on stderr with their offsets.
    Damaged messages end the command with their range; --skip-damaged reports it and reads on.

    --filter is a text in the value, /a regular expression/, or .field=value of JSON; if it is given
    more than once, all must match. The whole topic is read for the newest N that match. A
    pipe gets values as they are; -o jsonl gives everything about a message.

    --consumer continues after the stored offset of that name, --group after that of the group;
    messages of a group are shown in the order of its polls.

    Example: headrace tail shop/orders -f --from -1h --filter .customer=ada
    """
    importlib.import_module(RUN_MODULE).tail(client, topic, given)
