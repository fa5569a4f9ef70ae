"""Has frames wait that come before their partition, and go on when it is made (SH-26, RC-16).

```
request  of a partition that metadata knows, and that is not here
prepare  of an incarnation that may be to come: this replica lags
   -> parked -> its partition is made           they go on, prepares first
             -> its incarnation is deleted      discarded: requests are answered 58
             -> three passes over               requests are answered 58, prepares wait on
```

A request is stamped with the incarnation that metadata knew when it came; an op carries its own
(O5.4). The stamp stays the same: a frame goes on in that incarnation, or not at all.

Flow:       route.
Invariants: no request is left without an answer; what metadata has seen created and does not know
            any more is not waited for.
"""

from collections.abc import Iterable
from typing import Protocol

from headrace.base.ids import GroupId
from headrace.base.placement import Placement
from headrace.metadata.target import target_of
from headrace.ports.bus import DropReason
from headrace.ports.network import Buffer
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.local import Local
from headrace.shard.owned.parked import Parked, ParkedFrame, ParkedPrepare, ParkedRequest
from headrace.shard.owned.staged import Staged
from headrace.shard.turn import Turn
from headrace.vsr.events import FrameReceived
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.kinds import ReplicaHeader

_PREPARES = (FrameKind.PREPARE, FrameKind.REPAIR_PREPARE)


class Requests(Protocol):
    """Who answers the requests that wait here."""

    def go_on(self, request: ParkedRequest) -> None:
        """Serve a request whose partition is here now."""

    def refuse(self, request: ParkedRequest) -> None:
        """Answer that a request was not accepted, and may come again."""

    def is_waiting(self, ticket: int) -> bool:
        """Whether somebody still waits for the answer."""


class Parking:
    """The frames of a shard that wait for their partitions."""

    def __init__(
        self, placement: Placement, metadata: Metadata, plane: Plane, turn: Turn, staged: Staged
    ) -> None:
        self._placement = placement
        self._metadata = metadata
        self._plane = plane
        self._turn = turn
        self._staged = staged
        self.parked = Parked()
        self.ready: list[ParkedRequest] = []  # whose partition was made in this turn
        self._requests: Requests
        plane.on_early = self.take_frame

    def begin(self, requests: Requests) -> None:
        """Take who answers requests."""
        self._requests = requests

    # What comes.

    def is_expected(self, group: GroupId, epoch: int) -> bool:
        """Whether an incarnation that is not here is the one that metadata knows."""
        target = target_of(self._metadata.state, group)
        is_known = target is not None and target.created_revision == epoch
        assert not is_known or epoch <= self._metadata.state.revision, "what is known was created"
        if not is_known:
            self._turn.probes.hit("partition_frames_rejected_stale_total")
        return is_known

    def has_room(self, group: GroupId, frame: Buffer) -> bool:
        """Whether a request can wait; one that cannot is counted, and answered by who asks."""
        assert self._placement.owns(group), "only the owner of a partition makes it"
        if self.parked.has_room(group, len(frame)):
            return True
        self._drop(FrameKind.REQUEST, group, DropReason.PARK_OVERFLOW)
        self._turn.probes.hit("partition_requests_denied_transient_total")
        return False

    def put(self, request: ParkedRequest) -> None:
        """Have a request wait for its partition."""
        self._turn.probes.hit("parked.request")
        self.parked.put_request(request)
        assert not self._is_dead(request), "it waits for what is to come"

    def take_frame(self, sender: int, kind: FrameKind, header: ReplicaHeader, frame: bytes) -> None:
        """Take a frame of another node for which there is no group here of its incarnation."""
        group = GroupId(getattr(header, "group", -1))
        probes = self._turn.probes
        if not self._placement.owns(group):
            self._drop(kind, group, DropReason.MISROUTED)
            return
        prepare = ParkedPrepare(group, header.origin, sender, kind, header, frame)
        if self._is_dead(prepare):
            probes.hit("partition_frames_rejected_stale_total")
        elif kind not in _PREPARES:
            probes.hit("partition_frames_rejected_ahead_total")  # It is sent again.
        elif self.parked.put_prepare(prepare):
            probes.hit("parked.prepare")
        else:
            self._drop(kind, group, DropReason.PARK_OVERFLOW)

    # What leaves.

    def release(self, local: Local) -> None:
        """Let frames go on that wait for a partition which was just made; earlier ones are stale.

        Prepares go on at once, and so before whatever comes later; requests once all that is
        staged is applied.
        """
        group, epoch = local.target.group, local.target.created_revision
        assert local.replica.origin == epoch, "a group is of the incarnation that was made"
        for each in self.parked.take(group, lambda each: each.stamp <= epoch):
            if each.stamp != epoch:
                self._discard(each)
            elif isinstance(each, ParkedPrepare):
                event = FrameReceived(each.sender, each.kind, each.header, each.frame)
                self._plane.inbox.hand_back(local.replica, event)
            else:
                self.ready.append(each)

    def go_on(self) -> None:
        """Serve the requests whose partitions were made, in the order in which they came."""
        ready, self.ready = self.ready, []
        for each in sorted(ready, key=lambda each: each.ticket):
            self._turn.probes.hit("parked.resumed")
            self._requests.go_on(each)
        assert not self.ready, "who goes on makes no partition"

    def sweep(self) -> list[int]:
        """End a pass: count it for all that wait; return the partitions of which something went.

        Those that are about to be made are left alone. A failed build, or that metadata does not
        know a partition yet, is no reason to discard anything (RC-16).
        """
        reclaimed: list[int] = []
        for group in self.parked.groups():
            if self._staged.is_inserting(group):
                continue
            assert self._placement.owns(GroupId(group)), "nothing waits for another shard"
            dead = self.parked.take(group, self._is_dead)
            aged = self.parked.age(group)
            self._discard_all(dead)
            self._refuse_all(aged)
            if dead or aged:
                reclaimed.append(group)
        return reclaimed

    def forget(self, group: int, epoch: int) -> None:
        """Discard what waits for an incarnation that is removed, or for an earlier one (RC-8)."""
        self._discard_all(self.parked.take(group, lambda each: each.stamp <= epoch))

    def tidy(self) -> None:
        """Free the places of requests for which nobody waits any more."""
        is_waiting = self._requests.is_waiting
        count = self.parked.count
        for group in self.parked.groups():
            self.parked.take(
                group,
                lambda each: isinstance(each, ParkedRequest) and not is_waiting(each.ticket),
            )
        assert self.parked.count <= count, "places are freed"

    def _is_dead(self, frame: ParkedFrame) -> bool:
        """Whether metadata has seen an incarnation created, and does not know it any more."""
        state = self._metadata.state
        if frame.stamp > state.revision:
            return False
        target = target_of(state, frame.group)
        assert target is None or target.created_revision <= state.revision, "it was created"
        return target is None or target.created_revision != frame.stamp

    def _discard_all(self, frames: Iterable[ParkedFrame]) -> None:
        for each in frames:
            self._discard(each)

    def _discard(self, frame: ParkedFrame) -> None:
        """Drop a frame of an incarnation that is gone; a request is answered."""
        assert self._is_dead(frame), "what is to come is waited for"
        self._turn.probes.hit("partition_frames_rejected_stale_total")
        if isinstance(frame, ParkedRequest):
            self._refuse_all([frame])
        else:
            self._drop(frame.kind, frame.group, DropReason.PARK_DROPPED)

    def _refuse_all(self, frames: Iterable[ParkedFrame]) -> None:
        for each in frames:
            assert each.group not in self._plane.groups or each.stamp > 0, "it is not served"
            assert isinstance(each, ParkedRequest)
            self._drop(FrameKind.REQUEST, each.group, DropReason.PARK_DROPPED)
            self._turn.probes.hit("partition_requests_denied_transient_total")
            self._requests.refuse(each)

    def _drop(self, kind: FrameKind, group: int, reason: DropReason) -> None:
        self._turn.drops.count(kind, reason, group=group)

    def check(self, here: Iterable[Local]) -> None:
        """Assert that what waits is within its bounds, and that what is here is not waited for."""
        self.parked.check([(each.target.group, each.target.created_revision) for each in here])
        assert not self.ready, "who can go on goes on in the same turn"
        for group in self.parked.groups():
            assert self._placement.owns(GroupId(group)), "nothing waits for another shard"
