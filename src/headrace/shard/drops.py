"""Counts dropped frames: `frame_drops_total{variant, reason}` (SH-18).

Every drop is counted where it happens: refused by a lane at the sender, or of no use at the
receiver. A run without injected loss ends with no drop at all.
"""

from collections.abc import Iterator
from enum import Enum

import msgspec

from headrace.base.ids import METADATA_GROUP
from headrace.ports.bus import BusRefused, DropReason, FrameLost
from headrace.wire.numbers import FrameKind

FRAME_DROPS = "frame_drops_total"


class Variant(Enum):
    """What kind of frame was dropped, and so what recovers from it."""

    CONSENSUS = "consensus"  # retransmission
    PARTITION = "partition"  # the client gets 58; a prepare is repaired
    FD_TRANSFER = "fd_transfer"  # the peer connects again
    FORWARD_CLIENT_SEND = "forward_client_send"  # nothing: an alert
    FORWARD_REPLICA_SEND = "forward_replica_send"  # retransmission
    METADATA_COMMIT_TICK = "metadata_commit_tick"  # the feed asks for a gap
    REPLICA_HANDSHAKE_ACK = "replica_handshake_ack"  # the slot expires
    # Not in the list of the rule.
    METADATA_SUBMIT = "metadata_submit"  # the client gets 58; a departure is repeated
    GATHER = "gather"  # the shard is named as missing


class Drop(msgspec.Struct, frozen=True):
    """One pair of labels, and how often it was dropped."""

    variant: Variant
    reason: DropReason
    count: int


class Drops:
    """The drops of one member; a pair of labels appears with its first drop."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Variant, DropReason], int] = {}

    @property
    def total(self) -> int:
        """How many frames were dropped."""
        return sum(self._counts.values())

    def count(self, kind: int, reason: DropReason, *, group: int = METADATA_GROUP) -> None:
        """Count one frame of this kind, for this group if it has one."""
        pair = variant_of(kind, group), reason
        self._counts[pair] = self._counts.get(pair, 0) + 1

    def count_event(self, event: BusRefused | FrameLost) -> None:
        """Count the frame of which the bus reports that it was dropped."""
        self.count(event.kind, event.reason, group=event.group)

    def counts(self) -> Iterator[Drop]:
        """Yield the pairs that have occurred, ordered by their labels."""
        for variant, reason in sorted(
            self._counts, key=lambda pair: (pair[0].value, pair[1].value)
        ):
            yield Drop(variant, reason, self._counts[variant, reason])

    def rows(self) -> list[tuple[str, str, int]]:
        """Return variant, reason and count of each pair that has occurred."""
        found = [(drop.variant.value, drop.reason.value, drop.count) for drop in self.counts()]
        assert len(found) == len(self._counts), "a pair is shown once"
        return found

    def check(self) -> None:
        """Assert that a pair is counted once it has occurred, and that nothing is left out."""
        assert all(count > 0 for count in self._counts.values()), "a pair shows when it occurs"
        assert sum(drop.count for drop in self.counts()) == self.total, "all are shown"


def variant_of(kind: int, group: int) -> Variant:
    """Return the variant of a frame; kinds that nobody knows count as consensus."""
    if kind in _OF_PARTITIONS and group != METADATA_GROUP:
        return Variant.PARTITION
    return _VARIANTS.get(kind, Variant.CONSENSUS)


_OF_PARTITIONS = (
    FrameKind.REQUEST,
    FrameKind.PREPARE,
    FrameKind.REPAIR_PREPARE,
    FrameKind.FORWARDED_REQUEST,
)
_VARIANTS: dict[int, Variant] = {
    FrameKind.FORWARDED_REQUEST: Variant.METADATA_SUBMIT,
    FrameKind.FORWARDED_REPLY: Variant.FORWARD_CLIENT_SEND,
    FrameKind.CONNECTION_SETUP: Variant.FD_TRANSFER,
    FrameKind.REPLICA_INBOUND_SETUP: Variant.FD_TRANSFER,
    FrameKind.REPLICA_INBOUND_DONE: Variant.REPLICA_HANDSHAKE_ACK,
    FrameKind.FORWARD_REPLICA_SEND: Variant.FORWARD_REPLICA_SEND,
    FrameKind.CONNECTION_ORDER: Variant.FORWARD_CLIENT_SEND,
    FrameKind.CONNECTION_GONE: Variant.METADATA_SUBMIT,
    FrameKind.FEED_OP: Variant.METADATA_COMMIT_TICK,
    FrameKind.FEED_IMAGE: Variant.METADATA_COMMIT_TICK,
    FrameKind.FEED_ASK: Variant.METADATA_COMMIT_TICK,
    FrameKind.FEED_POINT: Variant.METADATA_COMMIT_TICK,
    FrameKind.GATHER: Variant.GATHER,
    FrameKind.GATHERED: Variant.GATHER,
}
assert all(kind >= FrameKind.FORWARDED_REQUEST for kind in _VARIANTS), "others are of replicas"
assert Variant.PARTITION not in _VARIANTS.values(), "its group makes a frame one of a partition"
assert all(
    variant in (Variant.CONSENSUS, Variant.PARTITION) or variant in _VARIANTS.values()
    for variant in Variant
), "every variant can occur"
