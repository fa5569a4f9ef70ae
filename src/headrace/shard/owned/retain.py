"""Proposes to drop segments that are too old or too many, and that no consumer needs (PT-28).

```
once in an interval, at the primary, of partitions with limits and sealed segments, in slices:
    limits of the topic -> segments beyond them
    stored offsets that count -> from which offset on messages stay -> a retain op, if any can go
```

Flow: apply.
"""

from collections import deque
from collections.abc import Container, Iterator, Mapping
from functools import partial

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.state import Topic
from headrace.metadata.target import PartitionTarget
from headrace.partitions.log import Segment
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.offsets import StoredMark
from headrace.partitions.retention import droppable_count, held_bytes
from headrace.partitions.shared import Owner
from headrace.ports.recovered import Finding
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.held import Held, group_name
from headrace.shard.owned.holders import Holders
from headrace.shard.owned.local import Local
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.vsr.events import OwnOp
from headrace.wire.codec import encode
from headrace.wire.commands.holders import HOLDERS_MAX, Holder, TopicHolders
from headrace.wire.commands.internal import RETAIN, Retain
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.topic_options import RESPECT_CONSUMERS, SERVER_DEFAULT_WORD


class Retention:
    """The retention of all partitions of a shard."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        plane: Plane,
        partitions: Mapping[int, Local],
        turn: Turn,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._plane = plane
        self._partitions = partitions
        self._clock = turn.clock
        self._probes = turn.probes
        self._due = settings.retention_ticks
        # Partitions with limits that have sealed segments, or had some and still have consumers.
        self._candidates: dict[int, None] = {}
        self._pass: deque[int] = deque()  # those that this pass has still to look at
        self._holders = Holders(settings.consumers_idle_ticks)
        self._held = Held(settings.consumers_idle_ticks)
        self._findings: list[Finding] = []

    def take_findings(self) -> list[Finding]:
        """Return what was noticed since the last call, once."""
        findings, self._findings = self._findings, []
        return findings

    def touch(self, namespace: int, kind: ConsumerKind, consumer_id: int) -> None:
        """Note that a stored offset is in use: it was stored, or polled under."""
        self._holders.touch(namespace, (kind, consumer_id), self._clock.now)

    def forget(self, namespace: int) -> None:
        """Forget a partition that is gone."""
        self._candidates.pop(namespace, None)
        self._holders.forget(namespace)

    def consider(self, local: Local) -> None:
        """Look at a partition from now on, if it has limits and sealed segments.

        Called when either may have changed.
        """
        group = local.target.group
        assert self._partitions[group] is local, "only what is here is looked at"
        if not _has_limits(local.target):
            self.forget(group)
        elif local.machine.oldest_sealed_stamp is not None:
            self._candidates[group] = None

    def tick(self) -> None:
        """Begin a pass over the partitions once in each interval, and go on with it."""
        now = self._clock.now
        if now >= self._due and not self._pass:
            self._due = now + self._settings.retention_ticks
            self._pass.extend(self._candidates)
        if self._pass:
            self._retain()

    def holders_of(self, topic: Topic) -> TopicHolders:
        """Return who keeps messages of a topic beyond its limits now, largest first."""
        now = self._clock.time.for_removal
        found = []
        for partition_id in range(len(topic.partitions)):
            local = self._partitions.get(topic.namespace(partition_id))
            epoch = topic.partitions[partition_id].created_revision
            if local is None or local.target.created_revision != epoch:
                continue
            if not _has_limits(local.target) or not self._waits(local.target):
                continue
            beyond = local.machine.surplus(_limits(local.target, now))
            found += [
                Holder(
                    partition_id=partition_id,
                    kind=mark.kind,
                    id=mark.id,
                    name=group_name(topic, (mark.kind, mark.id)),
                    stored_offset=mark.offset,
                    held_bytes=size,
                )
                for mark, size in _held_by(local.machine, beyond)
                if (mark.kind, mark.id) not in local.machine.waived
            ]
        assert all(each.held_bytes > 0 for each in found), "whoever is named keeps something"
        found.sort(key=lambda each: (-each.held_bytes, each.partition_id, each.kind, each.id))
        return TopicHolders(len(found), tuple(found[:HOLDERS_MAX]))

    def check(self, sealed: Container[Owner]) -> None:
        """Assert that it looks, in time, at all partitions that have limits and something to drop.

        Those in `sealed` it will be told of.
        """
        now = self._clock.now
        assert self._candidates.keys() <= self._partitions.keys(), "what is gone is not looked at"
        for group in self._candidates:
            assert _has_limits(self._partitions[group].target), "only limits drop segments"
        assert self._due <= now + self._settings.retention_ticks, "a pass begins in each interval"
        assert now < self._due or self._pass, "a pass that is due has begun"
        limited = {
            group: local for group, local in self._partitions.items() if _has_limits(local.target)
        }
        for group, local in limited.items():
            is_known = group in self._candidates or local.machine in sealed
            oldest = local.machine.oldest_sealed_stamp
            assert is_known or oldest is None, "what may be dropped is looked at"
        self._holders.check(now, limited)
        self._held.check(now)
        assert len(dict.fromkeys(self._pass)) == len(self._pass), "a pass looks at each once"

    def _retain(self) -> None:
        """Propose to drop what is too old or too much, where there is such (PT-28)."""
        now = self._clock.time.for_removal
        for _ in range(min(len(self._pass), self._settings.data.slice_groups_max)):
            group = self._pass.popleft()
            local = self._partitions.get(group)
            if local is None or group not in self._candidates:
                continue
            assert local.target.group == group, "a partition is found by its number"
            if not _has_anything(local.machine):
                del self._candidates[group]  # It comes back with the next segment that is sealed.
            elif local.replica.is_primary:
                self._look(local, _limits(local.target, now))
        if not self._pass:
            self._findings += self._held.end_look(self._metadata.state, self._clock.now)

    def _look(self, local: Local, limits: Retain) -> None:
        """Propose to drop what can go of one partition, and note who keeps the rest."""
        machine, group = local.machine, local.target.group
        machine.is_ignoring_consumers = not self._waits(local.target)
        machine.waived = self._find_idle(local)
        for key in machine.waived:
            self._held.add_idle(group, key)
        beyond = machine.surplus(limits)
        assert len(beyond) < machine.segments_count, "the active segment stays"
        if not beyond:
            return
        needed = msgspec.structs.replace(limits, keep_from=machine.needed_from())
        dropped_count = droppable_count(beyond, needed)
        assert dropped_count <= len(beyond), "only what is beyond the limits is dropped"
        if dropped_count:
            own = OwnOp(Operation.RETAIN, encode(RETAIN, limits))
            self._plane.propose(group, own)
        if machine.is_ignoring_consumers:
            return
        for mark, size in _held_by(machine, beyond):
            key = (mark.kind, mark.id)
            is_idle = key in machine.waived
            self._held.add(group, key, size, is_idle=is_idle)
            self._probes.hit("retention.released" if is_idle else "retention.waited")

    def _find_idle(self, local: Local) -> dict[tuple[ConsumerKind, int], None]:
        group = local.target.group
        generation_of = partial(self._generation_of, group)
        marks = local.machine.stored_marks()
        return self._holders.find_idle(group, marks, generation_of, self._clock.now)

    def _generation_of(self, namespace: GroupId, group_id: int) -> int:
        """Return how often the members of a consumer group have changed; 0 if it is gone."""
        stream_id, topic_id, _ = unpack_namespace(namespace)
        stream = self._metadata.state.streams.find(stream_id)
        topic = None if stream is None else stream.topics.find(topic_id)
        group = None if topic is None else topic.groups.find(group_id)
        return 0 if group is None else group.roster.generation

    def _waits(self, target: PartitionTarget) -> bool:
        if target.retention_consumers == SERVER_DEFAULT_WORD:
            return self._settings.is_waiting_for_consumers
        return target.retention_consumers == RESPECT_CONSUMERS


def _held_by(machine: PartitionMachine, beyond: list[Segment]) -> Iterator[tuple[StoredMark, int]]:
    """Yield the stored offsets that need something of the segments, and how many bytes."""
    if beyond:
        for mark in machine.stored_marks():
            size = held_bytes(beyond, mark.offset)
            assert size <= machine.size_bytes, "nobody keeps more than there is"
            if size:
                yield mark, size


def _has_anything(machine: PartitionMachine) -> bool:
    """Whether there is anything to drop, or a consumer of which it is known that it is idle."""
    return machine.oldest_sealed_stamp is not None or any(machine.stored_marks())


def _has_limits(target: PartitionTarget) -> bool:
    return bool(target.message_expiry or target.bytes_max)


def _limits(target: PartitionTarget, now: int) -> Retain:
    """Return the limits of a partition that has some; the machine says what consumers need."""
    stamp_max = now - target.message_expiry if target.message_expiry else 0
    assert stamp_max <= now, "what is to come is not too old"
    return Retain(max(0, stamp_max), target.bytes_max, 0)
