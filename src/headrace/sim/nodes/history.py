"""What all nodes together have shown of one group: its committed ops, and what came of them."""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.sim.nodes.model import Batch, PartitionModel
from headrace.sim.nodes.repeats import Repeats, content_in_log
from headrace.sim.violation import SimViolationError
from headrace.wire.numbers import ConsumerKind
from headrace.wire.replica.prepares import PrepareHeader

CONSUMERS = tuple((kind, number) for kind in ConsumerKind for number in range(4))


class Incarnation(NamedTuple):
    """A group, and which bearer of its name it is."""

    group: int
    origin: int


class Reign(NamedTuple):
    """Which history of which bearer of a name a node serves; later ones are greater."""

    origin: int
    epoch: int


class Applied(NamedTuple):
    """One op as a node applied it: what was there before, and what came of it."""

    header: PrepareHeader
    body: bytes
    reply: bytes
    before: tuple[object, ...]  # the state, as far as it can be seen
    table: int | None  # what stands for the request table before it, where that could be seen
    state_hash: int


Facts = tuple[object, ...]


def facts_of(machine: PartitionMachine) -> Facts:
    """Return what a partition shows of its state."""
    return (
        machine.next_offset,
        machine.first_offset,
        machine.history_epoch,
        machine.purge_generation,
        machine.messages_count,
        machine.lost_ranges,
        machine.segments_count,
        tuple([machine.peek_offset(*key) for key in CONSUMERS]),
    )


def facts_wanted(model: PartitionModel) -> Facts:
    """Return what a partition must show."""
    segments = model.segments
    is_new_wanted = not segments or segments[-1].is_sealed
    return (
        model.next_offset,
        model.first_offset,
        model.epoch,
        model.generation,
        model.messages_count,
        tuple(model.gaps),
        len(segments) + is_new_wanted,
        tuple([model.marks.get(key) for key in CONSUMERS]),
    )


class History:
    """One incarnation of one group."""

    def __init__(
        self,
        key: Incarnation,
        target: PartitionTarget | None,
        name: str,
        *,
        is_waiting: bool = True,
        repeats: Repeats | None = None,
    ) -> None:
        self.key = key
        self._repeats = repeats or Repeats()
        self._is_waiting = is_waiting
        self.target = target
        self.name = name  # of the topic and its partition; empty for the metadata group
        self.ops: dict[int, Applied] = {}
        self.head = 0
        self.model = None if target is None else self._new_model(target)
        self.by_request: dict[tuple[int, int, int], list[int]] = {}  # ops
        self.batches: dict[tuple[int, int], list[Batch]] = {}  # by client and request
        self.by_offset: dict[tuple[int, int], Batch] = {}  # by epoch and offset
        self.lost: dict[
            tuple[int, int], list[Batch]
        ] = {}  # taken by a power cut; answers may be late
        self.starts: dict[int, None] = {0: None}  # offsets with which the log ever began
        self.marks_seen: dict[tuple[ConsumerKind, int, int], None] = {}
        self.visible: dict[tuple[int, int], tuple[int, int]] = {}  # by epoch and offset
        self.acknowledged: list[tuple[int, int, int]] = []  # when, epoch, highest offset so far
        # Whether a power cut may lawfully have taken the end of the log, and maybe has.
        self.is_shortenable = target is not None and not (
            target.is_persisted and target.is_offset_persisted
        )
        self.is_shortened = False
        self.first_offset = self.epoch = 0  # as last counted

    def _new_model(self, target: PartitionTarget) -> PartitionModel:
        return PartitionModel(target, is_waiting=self._is_waiting)

    def add(self, applied: Applied) -> bool:
        """Take an op as a node applied it; return whether it is the first to do so."""
        header = applied.header
        known = self.ops.get(header.op)
        if known is not None and known.header.checksum != header.checksum and self.is_shortened:
            self._truncate(header.op)
            known = None
        if known is not None:
            self._check_known(known, applied)
            return False
        if header.op <= self.head:
            raise self._violation("R1", header, why="applied by none of those who went on")
        parent = self.ops.get(header.op - 1)
        if parent is not None and parent.header.checksum != header.parent:
            raise self._violation("R1", header, why="another parent", known=parent.header.checksum)
        self.is_shortened = False
        self._extend(applied)
        return True

    def _check_known(self, known: Applied, applied: Applied) -> None:
        header = applied.header
        if known.header.checksum != header.checksum:
            raise self._violation("R1", header, known=known.header.checksum)
        if known.before != applied.before:
            raise self._violation(
                "R2", header, why="before", before=applied.before, known=known.before
            )
        if None not in (known.table, applied.table) and known.table != applied.table:
            raise self._violation("R2", header, why="request table")
        if (known.reply, known.state_hash) != (applied.reply, applied.state_hash):
            raise self._violation("R2", header, why="after", reply=applied.reply, known=known.reply)

    def _extend(self, applied: Applied) -> None:
        header = applied.header
        if header.client and header.request:
            self._check_times(applied)
        self.ops[header.op] = applied
        self.head = header.op
        if self.model is not None:
            self._extend_model(self.model, applied)

    def _check_times(self, applied: Applied) -> None:
        """Check that a request is applied as often as it may be: once, where numbers are used once.

        What comes first under a number in a group is what the group remembers.
        """
        header = applied.header
        request = (header.client, header.user_id, header.request)
        ops = self.by_request.setdefault(request, [])
        known = [content_in_log(self.ops[op].header, self.ops[op].body) for op in ops]
        content = content_in_log(header, applied.body)
        ops.append(header.op)
        if not known:
            return
        is_first = content == known[0]
        times_max = 1
        if self.model is not None:
            times_max = self._repeats.times_max(
                header.client, header.request, content, is_first=is_first
            )
        if known.count(content) >= times_max:
            raise self._violation("P4", header, why="applied twice", first=ops[0])

    def _extend_model(self, model: PartitionModel, applied: Applied) -> None:
        batch = model.apply(applied.header, applied.body, applied.reply)
        if batch is not None:
            self._check_unseen(batch)
            self.batches.setdefault((batch.client, batch.request), []).append(batch)
            for offset in range(batch.base_offset, batch.end_offset):
                self.by_offset[batch.epoch, offset] = batch
        self.starts[model.first_offset] = None
        for _, gap_end in model.gaps:
            self.starts[gap_end] = None
        for (kind, number), offset in model.marks.items():
            self.marks_seen[kind, number, offset] = None

    def _check_unseen(self, batch: Batch) -> None:
        """Check that no offset of a new batch was ever seen to be another message's."""
        if not self.is_shortenable:
            return
        for offset in range(batch.base_offset, batch.end_offset):
            seen = self.visible.get((batch.epoch, offset))
            if seen not in (None, (batch.client, batch.request)):
                raise SimViolationError(
                    "P2", why="an offset given twice", group=self.key, offset=offset, seen=seen
                )

    def find_batches(self, offset: int) -> Iterator[Batch]:
        """Return the batches that have an offset in some history, the newest first."""
        assert self.model is not None
        for epoch in range(self.model.epoch, -1, -1):
            batch = self.by_offset.get((epoch, offset))
            if batch is not None:
                yield batch
        for lost in [batch for batches in self.lost.values() for batch in batches]:
            if lost.base_offset <= offset < lost.end_offset:
                yield lost

    def show(self, batch: Batch) -> None:
        """Take note that a client has seen a batch, or where it landed."""
        if self.is_shortenable:
            for offset in range(batch.base_offset, batch.end_offset):
                self.visible[batch.epoch, offset] = (batch.client, batch.request)

    def _truncate(self, op: int) -> None:
        """Forget the ops from one on: a power cut took them, within the limits of their class."""
        assert self.target is not None
        kept = [applied for number, applied in self.ops.items() if number < op]
        for request, batches in self.batches.items():
            self.lost.setdefault(request, []).extend(batches)
        self.ops, self.by_request, self.batches, self.by_offset, self.head = {}, {}, {}, {}, 0
        self.is_shortened = False
        self.model = self._new_model(self.target)
        self.acknowledged.clear()
        for applied in kept:
            self._extend(applied)

    def _violation(self, code: str, header: PrepareHeader, **facts: object) -> SimViolationError:
        return SimViolationError(
            code,
            group=self.key,
            name=self.name,
            op=header.op,
            operation=header.operation,
            client=header.client,
            request=header.request,
            **facts,
        )
