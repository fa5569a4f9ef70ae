"""Names the messages lost with records of the journal: those that no segment has yet."""

from headrace.partitions.log import PartitionLog
from headrace.ports.recovered import RecoveredEntry, RecoveredGroup
from headrace.server.doctor.report import FileReport, Lost, Verdict
from headrace.wire.batches import decode_batch_header
from headrace.wire.codec import decode_exactly
from headrace.wire.commands.internal import LOST_RANGE
from headrace.wire.numbers import Operation


def examine_losses(
    store: str, group: RecoveredGroup, log: PartitionLog | None, partition: str
) -> FileReport | None:
    """Judge what the journal still has of one partition; none if no message is known to be lost."""
    walk = _Offsets(log.next_offset if log else 0)
    for entry in group.entries:
        walk.take(entry)
    said = [str(each) for each in walk.lost]
    if walk.is_end_lost:
        said.append(f"from offset {walk.expected} on, nobody knows how many")
    if not said:
        return None
    return FileReport(
        path=f"{store}: {partition}",
        what="messages",
        verdict=Verdict.DAMAGED,
        text=f"only the journal had them; lost: {', '.join(said)}",
        partition=partition,
        lost=tuple(walk.lost),
    )


class _Offsets:
    """Follows the offsets of one partition through the ops that are left."""

    def __init__(self, next_offset: int) -> None:
        self.expected = next_offset
        self.lost: list[Lost] = []
        self.is_end_lost = False  # the last send is known, its messages are not

    def take(self, entry: RecoveredEntry) -> None:
        """Take the next op."""
        if entry.body is None:
            self.is_end_lost |= entry.header.operation == Operation.SEND_MESSAGES
            return
        match entry.header.operation:
            case Operation.SEND_MESSAGES:
                batch = decode_batch_header(memoryview(entry.body))
                self._go_on(batch.base_offset, batch.base_offset + batch.messages_count)
            case Operation.LOST_RANGE:
                skipped = decode_exactly(LOST_RANGE, entry.body)
                self._go_on(skipped.first, skipped.end)
            case Operation.PURGE_PARTITION:
                self.expected, self.lost, self.is_end_lost = 0, [], False
            case _:
                pass

    def _go_on(self, first: int, end: int) -> None:
        if first > self.expected:
            self.lost.append(Lost(self.expected, first - 1))
        self.expected = max(self.expected, end)
        self.is_end_lost = False
