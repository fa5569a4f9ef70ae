"""What must hold, whatever the seed does; a broken rule raises `SimViolationError`.

P1  nothing acknowledged is lost            P2  one order, offsets without gap or reuse
P3  nothing uncommitted is visible          P4  a request is applied once and has one answer
P5  stored offsets move back by request only, and never lie past the end
P6  every served batch is what was committed
R1  an op has one identity                  R2  equal ops give equal state, on every node
R4, R5  promises (see `sim.promises`)       R6  an answer tells what was applied
H2  nothing is applied that nobody asked for
H6  acknowledged before sent means a lower offset
CK1  no stamp without support, and no message goes too early (see `ages`)
O3.4 retention drops nothing that a stored offset still needs
H10, H12  registers (see `registers`)       H11  one member at a time (see `ownership`)
H13 to H15  what was made is found, what is gone is not, and messages go where they were sent
     (see `presence`)
"""

from bisect import bisect_right
from collections.abc import Callable

from headrace.base.ids import METADATA_GROUP, pack_namespace
from headrace.base.ids import Namespace as Ids
from headrace.kernel.layout import BATCH_HEADER_BYTES
from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.sim.nodes.ages import Ages
from headrace.sim.nodes.begins import check_begin, check_floor, check_one_history
from headrace.sim.nodes.history import (
    Applied,
    History,
    Incarnation,
    Reign,
    facts_of,
    facts_wanted,
)
from headrace.sim.nodes.model import Batch, is_part_of, span_of
from headrace.sim.nodes.ownership import Ownership
from headrace.sim.nodes.presence import Choices, Presence, Purges
from headrace.sim.nodes.repeats import Repeats
from headrace.sim.nodes.witness import Witness
from headrace.sim.promises import Promises
from headrace.sim.violation import SimViolationError
from headrace.wire.batches import decode_batch_header, split_batches, verify_batch
from headrace.wire.codec import decode_exactly
from headrace.wire.commands.internal import ACCEPT_TIME, OFFSET_MARK, PURGE_PARTITION, RETAIN
from headrace.wire.commands.messages import Confirmation, PolledMessages, StoredOffset
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.identifiers import Strategy
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replica.prepares import PrepareHeader

METADATA = Incarnation(METADATA_GROUP, 0)


class Checkers:
    """Told everything that happens; raises at the first thing that may not."""

    def __init__(
        self,
        tolerance: int = 0,
        now: Callable[[], int] = lambda: 0,
        *,
        is_waiting: bool = True,
    ) -> None:
        """Begin; `tolerance` is how far clocks are followed, `now` reads the true time.

        `is_waiting`: retention waits for consumers, however idle they are.
        """
        self.ages = Ages(tolerance, now)
        self._is_waiting = is_waiting
        self.promises: Promises[Incarnation] = Promises(Incarnation)
        self.witness = Witness()
        self.ownership = Ownership()
        self.presence = Presence()
        self.choices = Choices()
        self.purges = Purges()
        self.repeats = Repeats()
        self.histories: dict[Incarnation, History] = {METADATA: History(METADATA, None, "")}
        self.events: dict[str, int] = {}
        # By client and request: the batches of sends, and when they began.
        self._asked: dict[tuple[int, int], list[tuple[bytes, int]]] = {}

    @property
    def applied_count(self) -> int:
        """How many ops were committed, as far as any node has applied them."""
        return sum(len(history.ops) for history in self.histories.values())

    # Told by machines

    def known(self, target: PartitionTarget, name: str) -> Incarnation:
        """Take note of a partition that a node has taken up."""
        key = Incarnation(target.group, target.created_revision)
        history = self.histories.get(key)
        if history is None:
            if any(each.name == name for each in self.histories.values()):
                self.count("log.topic_made_again")
            self.histories[key] = History(
                key, target, name, is_waiting=self._is_waiting, repeats=self.repeats
            )
        elif history.name != name:
            raise SimViolationError("R2", why="one incarnation, two names", key=key, name=name)
        return key

    def applied(
        self, node: int, key: Incarnation, applied: Applied, machine: PartitionMachine | None
    ) -> bool:
        """Check one application against all others of that op; return whether it is the first.

        The first is checked against the model.
        """
        history = self.histories[key]
        header = applied.header
        if header.operation == Operation.SEND_MESSAGES and header.op not in history.ops:
            self._check_asked(key, header, applied.body)
            if self.choices.check(key, header.client, header.request):
                self.count("op.forwarded")
        if header.op not in history.ops:
            self.ages.committed(header.timestamp, node=node, group=key, op=header.op)
            self._check_age(history, header, applied.body)
        try:
            is_first = history.add(applied)
        except SimViolationError as violation:
            violation.facts["node"] = node
            raise
        if is_first:
            self._count_op(history, header)
        if is_first and header.operation == Operation.PURGE_PARTITION:
            self.purges.applied(key, decode_exactly(PURGE_PARTITION, applied.body).generation)
        if is_first and header.operation == Operation.AUTO_COMMIT_OFFSET:
            mark = decode_exactly(OFFSET_MARK, applied.body)
            self.witness.auto_committed(history.name, mark.kind, mark.id, mark.offset)
        if is_first and machine is not None:
            assert history.model is not None
            wanted, found = facts_wanted(history.model), facts_of(machine)
            if wanted != found:
                raise SimViolationError(
                    "R2",
                    why="not as the model",
                    node=node,
                    group=key,
                    op=header.op,
                    operation=header.operation,
                    found=found,
                    wanted=wanted,
                )
        return is_first

    def _count_op(self, history: History, header: PrepareHeader) -> None:
        """Count what an op was, and what it led to."""
        self.count(f"op.{Operation(header.operation).name.lower()}")
        model = history.model
        if model is None:
            return
        if header.operation == Operation.SEND_MESSAGES and model.segments[-1].is_sealed:
            self.count("log.segment_sealed")
        if model.first_offset > history.first_offset and model.epoch == history.epoch:
            self.count("log.segments_dropped")
        history.first_offset, history.epoch = model.first_offset, model.epoch

    def _check_asked(self, key: Incarnation, header: PrepareHeader, body: bytes) -> None:
        asked = self._asked.get((header.client, header.request), ())
        if not any(batch[BATCH_HEADER_BYTES:] == body[BATCH_HEADER_BYTES:] for batch, _ in asked):
            raise SimViolationError(
                "H2", group=key, op=header.op, client=header.client, request=header.request
            )

    def _check_age(self, history: History, header: PrepareHeader, body: bytes) -> None:
        """Check what an op does to the age of messages, before it is applied (CK1)."""
        match header.operation:
            case Operation.SEND_MESSAGES:
                assert history.model is not None
                offset = decode_batch_header(body).base_offset
                self.ages.came(history.key, history.model.epoch, offset)
            case Operation.ACCEPT_TIME:
                self.ages.accepted(decode_exactly(ACCEPT_TIME, body).clock)
            case Operation.RETAIN:
                assert history.model is not None
                assert history.target is not None
                stamp_max = decode_exactly(RETAIN, body).stamp_max
                for batch in history.model.older_than(stamp_max):
                    expiry = history.target.message_expiry
                    self.ages.goes(history.key, batch.epoch, batch.base_offset, expiry)
            case _:
                pass

    # Told by clients

    def sent(self, client: int, request: int, batch: bytes, now: int) -> None:
        """Take note of a send that begins."""
        self._asked.setdefault((client, request), []).append((batch, now))

    def confirmed(
        self,
        client: int,
        request: int,
        told: Confirmation,
        now: int,
        *,
        is_new: bool = False,
        since: int | None = None,
    ) -> None:
        """Check a confirmation: what was sent is committed there, and was always said to be.

        It is of what was sent last under that number; `is_new`: no try of it was a repetition.
        `since`: what the home that answers had told of the metadata when it was asked, if known.
        """
        facts = {"client": client, "request": request, "told": told}
        group = pack_namespace(
            Ids(told.stream_id, told.topic_id, told.partition_id)  # type: ignore[arg-type]  # ids
        )
        known = [each for each in self._batches_of(client, request) if each[0].key.group == group]
        if not known:
            raise SimViolationError("P1", why="acknowledged what was never committed", **facts)
        batch_sent, asked_at = self._asked[client, request][-1]
        found = [
            each
            for each in known
            if each[1].base_offset == told.base_offset
            and each[1].data[BATCH_HEADER_BYTES:] == batch_sent[BATCH_HEADER_BYTES:]
        ]
        if not found:  # Each incarnation has applied it once, so there is one answer.
            raise SimViolationError("P4", why="another answer", known=known[-1][1], **facts)
        history, batch = found[-1]
        if since is not None:
            self.presence.check_met(history.name, since, history.key.origin)
        place = (history.key, batch.epoch, batch.base_offset)
        self.repeats.confirmed(client, request, place, is_new=is_new)
        history.show(batch)
        index = bisect_right(history.acknowledged, (asked_at, 0, 0)) - 1
        if index >= 0:
            _, epoch, floor = history.acknowledged[index]
            if epoch == batch.epoch and batch.base_offset <= floor:
                raise SimViolationError("H6", acknowledged_before=floor, **facts)
        last = history.acknowledged[-1] if history.acknowledged else (0, -1, -1)
        floor = max(batch.base_offset, last[2]) if last[1] == batch.epoch else batch.base_offset
        if batch.epoch >= last[1]:
            history.acknowledged.append((now, batch.epoch, floor))

    def _batches_of(self, client: int, request: int) -> list[tuple[History, Batch]]:
        key = (client, request)
        return [
            (history, found)
            for history in self.histories.values()
            for found in history.batches.get(key) or history.lost.get(key) or ()
        ]

    def polled(
        self,
        node: int,
        name: str,
        told: PolledMessages,
        *,
        strategy: Strategy | None = None,
        floor: Reign | None = None,
    ) -> tuple[int, int] | None:
        """Check what a poll served; return the first and the last offset.

        `floor` is what the node served when it was asked, if it is known.
        """
        served: list[tuple[History, Batch]] = []
        expected: int | None = None
        first = 0
        facts = {"node": node, "name": name}
        try:
            for data in split_batches(told.batches):
                verify_batch(data)
                start, end = span_of(data)
                facts["offset"] = str(start)
                if expected not in (None, start):
                    raise SimViolationError("P2", why="a gap in a poll", expected=expected, **facts)
                if expected is None:
                    first = start
                expected = end
                served.append(self._find_served(name, bytes(data), facts))
        except (CorruptError, DecodeError) as error:
            raise SimViolationError("P6", why=str(error), **facts) from None
        if expected is None:
            return None
        if expected - first != told.messages_count or told.current_offset < expected - 1:
            raise SimViolationError("R6", count=told.messages_count, first=first, **facts)
        check_one_history(served, facts)
        history, batch = served[0]
        if floor is not None:
            check_floor(history, floor, batch, facts)
        if strategy is not None:
            check_begin(history, strategy, batch, first)
        for history, batch in served:
            history.show(batch)
        return first, expected - 1

    def audited(
        self, node: int, key: Incarnation, first: int, last: int, span: tuple[int, int] | None
    ) -> None:
        """Check that a poll found all that a segment holds, unless retention took it (P1)."""
        self.count("client.audited")
        model = self.histories[key].model
        assert model is not None
        is_found = span is not None and span[0] == first and span[1] >= last
        if not is_found and model.first_offset <= first:
            raise SimViolationError(
                "P1", why="not found at the end", node=node, group=key, first=first, last=last,
                span=span,
            )  # fmt: skip

    def _find_served(
        self, name: str, data: bytes, facts: dict[str, object] | dict[str, str]
    ) -> tuple[History, Batch]:
        """Return the committed batch that served bytes are of (P3, P6)."""
        offset = span_of(data)[0]
        for history in reversed(self.histories.values()):
            if history.name != name:
                continue
            for batch in history.find_batches(offset):
                if is_part_of(data, batch):
                    return history, batch
        raise SimViolationError("P3", why="served what was never committed", **facts)

    def offset_told(
        self, name: str, kind: ConsumerKind, number: int, told: StoredOffset, node: int
    ) -> None:
        """Check a stored offset that was read: one that was stored, within the log (P5)."""
        if told.stored_offset > told.current_offset:
            raise SimViolationError("P5", why="past the end", name=name, told=told, node=node)
        for history in self.histories.values():
            if history.name == name and (kind, number, told.stored_offset) in history.marks_seen:
                return
        raise SimViolationError("P5", why="an offset that nobody stored", name=name, told=told)

    def is_start(self, name: str, offset: int) -> bool:
        """Whether a log of that name has ever begun with an offset."""
        return any(
            offset in history.starts for history in self.histories.values() if history.name == name
        )

    def answered(self, op: int, client: int, request: int, body: bytes) -> None:
        """Check the answer of a metadata op against what was applied."""
        applied = self.histories[METADATA].ops.get(op)
        if applied is None or (applied.header.client, applied.header.request, applied.reply) != (
            client,
            request,
            body,
        ):
            raise SimViolationError("R6", op=op, client=client, request=request, applied=applied)

    # Told by the world

    def lose_power_alone(self) -> None:
        """Take note that the only replica has lost power: classes without syncs lost their end."""
        for history in self.histories.values():
            if history.is_shortenable:
                history.is_shortened = True
                self.witness.lost(history.name.partition("/")[0])

    def count(self, event: str, times: int = 1) -> None:
        """Count something that happened."""
        self.events[event] = self.events.get(event, 0) + times
