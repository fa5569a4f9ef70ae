"""Which consumers keep messages of a topic beyond its limits. Loaded when a command runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.node.shards import tell_missing
from headrace.cli.nouns.own_commands import ask_if_supported
from headrace.wire.numbers import ConsumerKind

if TYPE_CHECKING:
    from headrace.cli.names import TopicName
    from headrace.cli.show.output import Values
    from headrace.client.sync.client import Client
    from headrace.wire.commands.holders import Holder


def ask_holders(client: Client, topic: TopicName) -> tuple[Holder, ...] | None:
    """Return the consumers that keep most; None if the server does not report them.

    Shards that did not answer are named on stderr.
    """
    found = ask_if_supported(lambda: client.get_holders(topic))
    if found is None:
        return None
    tell_missing(found.missing, "who keeps messages of its partitions is not known")
    return found.holders


def describe_holders(client: Client, topic: TopicName) -> Values:
    """Return the consumers as values for programs; empty if there are none or none reported."""
    holders = ask_holders(client, topic)
    if not holders:
        return {}
    described: list[Values] = [
        {
            "partition": each.partition_id,
            "kind": each.kind.name.lower(),
            "name": each.name if each.kind == ConsumerKind.GROUP else str(each.id),
            "stored_offset": each.stored_offset,
            "held_bytes": each.held_bytes,
        }
        for each in holders
    ]
    return {"held_back": described}


def held_by_group(client: Client, topic: TopicName, group_id: int) -> dict[int, int] | None:
    """Return how many bytes a group keeps, by partition; None if the server does not report it."""
    holders = ask_holders(client, topic)
    if holders is None:
        return None
    return {
        each.partition_id: each.held_bytes
        for each in holders
        if each.kind == ConsumerKind.GROUP and each.id == group_id
    }
