"""`headrace group`: consumer groups, their members and their lag."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

import click

from headrace.base.units import parse_duration
from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import with_client
from headrace.cli.names import TopicName, read_identifier, show_topic, topic_argument
from headrace.cli.nouns.lag import measure_lag
from headrace.cli.show.output import Done, Record, Rows, Values, with_output
from headrace.cli.show.quantities import write_count
from headrace.cli.tree import Noun

if TYPE_CHECKING:
    from headrace.client.sync.client import Client
    from headrace.wire.commands.groups import Group
    from headrace.wire.identifiers import Identifier

HOLDERS_MODULE = "headrace.cli.nouns.holders"  # loads the protocol
_SECOND = 1_000_000

group_argument = click.argument("group", callback=read_identifier, metavar="GROUP")


@click.group(cls=Noun, short_help="Consumer groups: who shares a topic, and how far behind.")
def group() -> None:
    """Consumer groups: who shares the work on a topic, and how far behind they are."""


@group.command("list", short_help="List the groups of a topic.")
@topic_argument
@with_output
@with_client
def list_groups(client: Client, topic: TopicName) -> Rows:
    """List the consumer groups of a topic.

    Example: headrace group list shop/orders
    """
    return Rows([_describe(each) for each in client.get_groups(topic)])


@group.command("get", short_help="Show a group and its members.")
@topic_argument
@group_argument
@with_output
@with_client
def get_group(client: Client, topic: TopicName, group: Identifier) -> Record:
    """Show a consumer group, its members and the partitions of each.

    Example: headrace group get shop/orders billing
    """
    found = client.get_group(topic, group)
    members: list[Values] = [
        {"id": each.id, "partitions": each.partitions} for each in found.members
    ]
    return Record({**_describe(found.group), "members": members})


@group.command("create", short_help="Create a group of a topic.")
@topic_argument
@click.argument("name")
@with_output
@with_client
def create_group(client: Client, topic: TopicName, name: str) -> Record:
    """Create a consumer group of a topic and show it.

    Example: headrace group create shop/orders billing
    """
    return Record(_describe(client.create_group(topic, name).group))


@group.command("delete", short_help="Delete a group with its stored offsets.")
@topic_argument
@group_argument
@with_yes
@with_output
@with_client
def delete_group(client: Client, topic: TopicName, group: Identifier, be_sure: Sure) -> Done:
    """Delete a consumer group with its stored offsets.

    Example: headrace group delete shop/orders billing --yes
    """
    found = client.get_group(topic, group).group
    be_sure(
        f"delete the group {found.name} of {show_topic(topic)} with its offsets,"
        f" and end {write_count(found.members_count, 'membership')}"
    )
    client.delete_group(topic, group)
    return Done(
        f"The group {group} is deleted.",
        {"topic": show_topic(topic), "group": group, "is_deleted": True},
    )


@group.command("join", short_help="Be a member of a group for a while.")
@topic_argument
@group_argument
@click.option("--for", "span", metavar="TIME", default="0 s", help="How long to stay. [0 s]")
@with_output
@with_client
def join_group(client: Client, topic: TopicName, group: Identifier, span: str) -> Record:
    """Become a member of a group, stay for a while, leave, and show the assigned partitions.

    A member is a connection, so the membership ends with the command. Nothing is read: the
    partitions that are assigned to this member are not read until it leaves.

    Example: headrace group join shop/orders billing --for "30 s"
    """
    seconds = parse_duration(span) / _SECOND
    client.join_group(topic, group)
    dealt = client.sync_group(topic, group)
    time.sleep(seconds)
    client.leave_group(topic, group)
    return Record(
        {
            "topic": show_topic(topic),
            "group": group,
            "partitions": () if dealt is None else dealt.partitions,
            "generation": None if dealt is None else dealt.generation,
        }
    )


@group.command("lag", short_help="Show how many messages a group has not read.")
@topic_argument
@group_argument
@with_output
@with_client
def show_lag(client: Client, topic: TopicName, group: Identifier) -> Record:
    """Show how many messages a group has not read, in all and by partition.

    A partition without a stored offset counts with all that it holds. `held_bytes` is what the
    topic keeps beyond its limits because the group has not read it.

    Example: headrace group lag shop/orders billing
    """
    found = client.get_group(topic, group).group  # a group that does not exist has no lag
    parts = measure_lag(client, topic, group)
    held = importlib.import_module(HOLDERS_MODULE).held_by_group(client, topic, found.id)
    told: Values = {
        "topic": show_topic(topic),
        "group": group,
        "lag": sum(each.lag for each in parts),
    }
    partitions = [each.describe() for each in parts]
    if held is not None:
        told = {**told, "held_bytes": sum(held.values())}
        partitions = [
            {**part, "held_bytes": held.get(each.partition, 0)}
            for part, each in zip(partitions, parts, strict=True)
        ]
    return Record({**told, "partitions": partitions})


def _describe(found: Group) -> Values:
    return {
        "id": found.id,
        "name": found.name,
        "partitions_count": found.partitions_count,
        "members_count": found.members_count,
    }
