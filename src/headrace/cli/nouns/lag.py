"""The lag of a group: how many messages of its topic it has not processed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.nouns.partition import newest_offset
from headrace.cli.show.progress import track

if TYPE_CHECKING:
    from headrace.cli.names import TopicName
    from headrace.cli.show.output import Values
    from headrace.client.sync.client import Client
    from headrace.wire.commands.topics import Partition
    from headrace.wire.identifiers import Identifier


@dataclass(frozen=True)
class PartitionLag:
    """One partition: its newest offset, the group's stored offset, and the lag between them."""

    partition: int
    current_offset: int | None
    stored_offset: int | None
    lag: int

    def describe(self) -> Values:
        """Return the lag as values for programs."""
        return {
            "partition": self.partition,
            "current_offset": self.current_offset,
            "stored_offset": self.stored_offset,
            "lag": self.lag,
        }


def measure_lag(client: Client, topic: TopicName, group: Identifier) -> list[PartitionLag]:
    """Return the lag of a group in every partition of a topic.

    The offsets are requested before the state of the partitions, so that no message counts as read
    before it counts as stored.
    """
    ids = [each.id for each in client.get_topic(topic).partitions]
    stored = {}
    for number in track(ids, "offsets"):
        found = client.get_offset(topic, number, group=group)
        stored[number] = None if found is None else found.stored_offset
    states = {each.id: each for each in client.get_topic(topic).partitions}
    return [make_lag(states[number], stored[number]) for number in ids if number in states]


def make_lag(state: Partition, stored: int | None) -> PartitionLag:
    """Return the lag in one partition.

    Messages removed by retention do not count. A stored offset beyond the end belongs to messages
    from before a purge, and reading starts over.
    """
    newest = newest_offset(state)
    lag = state.messages_count
    if newest is not None and stored is not None and stored <= newest:
        lag = min(newest - stored, state.messages_count)
    return PartitionLag(state.id, newest, stored, lag)
