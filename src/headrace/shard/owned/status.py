"""How far a shard is with making its partitions those of the metadata: for `node reconcile`.

Flow: reply.
"""

import msgspec

from headrace.base.ids import GroupId
from headrace.base.placement import Placement
from headrace.metadata.state import State
from headrace.metadata.target import groups_of, topic_keys
from headrace.shard.owned.failures import Cause, name_of
from headrace.shard.owned.reconcile import Ledger, Reconciler


class FailureStatus(msgspec.Struct, frozen=True):
    """What fails: the next try is in so many ticks, or with the next pass if that is 0."""

    partition: str
    cause: Cause
    count: int
    due_ticks: int
    text: str


class TombstoneStatus(msgspec.Struct, frozen=True):
    """A partition that ends: nothing reaches it, and its files are not known to be gone."""

    partition: str
    created_revision: int
    phase: str


class ReconcileStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Wanted and actual partitions of one shard, and all that is in between."""

    shard: int
    revision: int  # of the metadata
    passed_revision: int  # at which the last whole pass began
    wanted: int
    actual: int
    routed: int  # rows of partitions of other shards
    staged: int
    doubted: int  # that wait until all metadata is applied again
    parked: int  # frames that wait for their partition (SH-26)
    is_passing: bool
    tombstoned: tuple[TombstoneStatus, ...]
    failures: tuple[FailureStatus, ...]


def make_status(
    state: State, placement: Placement, reconciler: Reconciler, ledger: Ledger, now: int
) -> ReconcileStatus:
    """Return how far a shard is; this counts all partitions of the metadata."""
    actual = len(ledger.partitions)
    return ReconcileStatus(
        shard=placement.shard,
        revision=state.revision,
        passed_revision=reconciler.revision,
        wanted=_count_wanted(state, placement),
        actual=actual,
        routed=len(ledger.table) - actual,
        staged=len(ledger.staged),
        doubted=reconciler.doubted_count,
        parked=ledger.parking.parked.count,
        is_passing=reconciler.is_passing,
        tombstoned=tuple(
            [
                TombstoneStatus(name_of(each.group), each.created_revision, each.phase.name.lower())
                for each in ledger.tombstones
            ]
        ),
        failures=tuple(
            [
                FailureStatus(name_of(group), cause, each.count, max(0, each.due - now), each.text)
                for group, cause, each in ledger.failures
            ]
        ),
    )


def _count_wanted(state: State, placement: Placement) -> int:
    if placement.shard_count == 1:
        return sum(len(topic.partitions) for stream in state.streams for topic in stream.topics)
    groups = [group for key in topic_keys(state) for group in groups_of(state, key)]
    return sum(placement.owns(GroupId(group)) for group in groups)
