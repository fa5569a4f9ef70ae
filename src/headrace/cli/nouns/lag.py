"""How far behind a group is: what its topic holds, less what it has done with."""

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
    """One partition: its newest offset, the one stored for the group, and what lies between."""

    partition: int
    current_offset: int | None
    stored_offset: int | None
    lag: int

    def describe(self) -> Values:
        """Give what programs are told."""
        return {
            "partition": self.partition,
            "current_offset": self.current_offset,
            "stored_offset": self.stored_offset,
            "lag": self.lag,
        }


def measure_lag(client: Client, topic: TopicName, group: Identifier) -> list[PartitionLag]:
    """Give the lag of a group in every partition of a topic.

    The offsets are asked for before the state of the partitions, so that nothing counts as read
    that is not yet counted as there.
    """
    ids = [each.id for each in client.get_topic(topic).partitions]
    stored = {}
    for number in track(ids, "offsets"):
        found = client.get_offset(topic, number, group=group)
        stored[number] = None if found is None else found.stored_offset
    states = {each.id: each for each in client.get_topic(topic).partitions}
    return [make_lag(states[number], stored[number]) for number in ids if number in states]


def make_lag(state: Partition, stored: int | None) -> PartitionLag:
    """Give the lag in one partition.

    What retention has removed no longer waits to be read; an offset beyond the end is one of an
    earlier history, and reading begins anew.
    """
    newest = newest_offset(state)
    lag = state.messages_count
    if newest is not None and stored is not None and stored <= newest:
        lag = min(newest - stored, state.messages_count)
    return PartitionLag(state.id, newest, stored, lag)
