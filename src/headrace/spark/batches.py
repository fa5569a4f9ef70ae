"""Wire batches of one partition with where they come from, so that damage is told exactly.

Flow: read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.client.errors import DataDamaged
from headrace.kernel import BATCH_HEADER_BYTES, BatchError
from headrace.wire.batches import BatchHeader, decode_batch_header


@dataclass(frozen=True)
class Batches:
    """Whole batches that lie back to back.

    `source` names the file or the poll that they are of, `position` is the byte of it that they
    begin at.
    """

    data: memoryview
    partition: int
    source: str
    position: int = 0

    def walk(self) -> Iterator[tuple[int, BatchHeader]]:
        """Give where in `data` each batch begins, and its header; nothing else is looked at.

        Raises:
            DataDamaged: There is no whole batch, or one of another partition.
        """
        at = 0
        while at < len(self.data):
            header = self._header(at)
            yield at, header
            at += header.length

    def _header(self, at: int) -> BatchHeader:
        left = len(self.data) - at
        place = f"{self.source}: byte {self.position + at}:"
        if left < BATCH_HEADER_BYTES:
            raise DataDamaged(f"{place} {left} bytes are no batch")
        header = decode_batch_header(self.data[at : at + BATCH_HEADER_BYTES])
        if not BATCH_HEADER_BYTES <= header.length <= left:
            raise DataDamaged(f"{place} batch of {header.length} bytes where {left} are left")
        if header.partition_id != self.partition:
            raise DataDamaged(
                f"{place} batch of partition {header.partition_id}, {self.partition} expected"
            )
        return header

    def damage(self, error: BatchError, start: int) -> DataDamaged:
        """Say which batch the kernel refused when it was given the data from `start` on."""
        fault = start + error.position
        at, header = next((at, header) for at, header in self.walk() if fault < at + header.length)
        exact = BatchError(
            error.reason, error.frame, self.position + fault, error.found, error.wanted
        )
        return DataDamaged(
            f"{self.source}: {exact}, in the batch at byte {self.position + at} with the offsets"
            f" {header.base_offset} to {header.base_offset + header.messages_count - 1}"
        )
